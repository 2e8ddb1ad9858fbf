//! Any bytes, cut anywhere: the reply decoder finds the same replies and the same error as in one piece,
//! and keeps to its limits.
//!
//! ```text
//! input: step | the stream
//! step: the pieces' lengths follow from it
//! ```

#![no_main]

use dunlin_resp::{ReplyLimits, Value, ValueDecoder, ValueError};
use libfuzzer_sys::fuzz_target;

const LIMITS: ReplyLimits = ReplyLimits { bulk_bytes_max: 1 << 16, elements_max: 1 << 12, depth_max: 16 };

fn decode(stream: &[u8], mut piece: impl FnMut() -> usize) -> (Vec<Value>, Result<(), ValueError>) {
    let mut decoder = ValueDecoder::new(LIMITS);
    let mut found = Vec::new();
    let mut input = Vec::new();
    let mut arrived = 0;
    while arrived < stream.len() {
        let end = (arrived + piece().max(1)).min(stream.len());
        input.extend_from_slice(&stream[arrived..end]);
        arrived = end;
        loop {
            match decoder.decode(&input) {
                Ok((used, reply)) => {
                    input.drain(..used);
                    match reply {
                        Some(value) => found.push(value),
                        None => break,
                    }
                }
                Err(error) => return (found, Err(error)),
            }
        }
    }
    (found, Ok(()))
}

fuzz_target!(|data: &[u8]| {
    let [step, stream @ ..] = data else { return };
    let whole = decode(stream, || stream.len());
    let mut state = u32::from(*step);
    let pieces = decode(stream, || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 29 == 0 { (state >> 16 & 0xff) as usize } else { (state >> 16 & 7) as usize }
    });
    // Compared as text, because a double that is not a number is not equal to itself.
    assert_eq!(format!("{whole:?}"), format!("{pieces:?}"));
});
