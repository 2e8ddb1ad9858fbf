//! Any bytes, cut anywhere: the request decoder finds the same commands and the same error as in one
//! piece, and what it found reads the same when it is encoded anew.
//!
//! ```text
//! input: flags | step | the stream
//! flags bit 0: authenticated; bits 1-3: how many commands a call may take, less one
//! step: the pieces' lengths follow from it
//! ```

#![no_main]

use dunlin_resp::{Batch, Decoded, Limits, ProtocolError, RequestDecoder};
use libfuzzer_sys::fuzz_target;

type Command = Vec<Vec<u8>>;

/// Drives the decoder as a connection does: what is consumed is dropped, what is left is presented again.
fn decode(
    stream: &[u8],
    limits: &Limits,
    commands_max: usize,
    mut piece: impl FnMut() -> usize,
) -> (Vec<Command>, Result<(), ProtocolError>) {
    let mut decoder = RequestDecoder::default();
    let mut batch = Batch::default();
    let mut found = Vec::new();
    let mut input = Vec::new();
    let mut arrived = 0;
    while arrived < stream.len() {
        let end = (arrived + piece().max(1)).min(stream.len());
        input.extend_from_slice(&stream[arrived..end]);
        arrived = end;
        loop {
            batch.clear();
            let mut position = 0;
            let decoded = decoder.decode(&input, &mut position, &mut batch, limits, commands_max);
            assert!(position <= input.len());
            let mut before = 0;
            for index in 0..batch.len() {
                let spans = batch.spans(index);
                assert!(!spans.is_empty(), "a command has a name");
                let command: Command = spans.iter().map(|&span| batch.bytes(&input, span).to_vec()).collect();
                let end = batch.input_end(index);
                assert!(before < end && end <= input.len());
                before = end;
                found.push(command);
            }
            let more = match decoded {
                Ok(Decoded::Full) => true,
                Ok(Decoded::Incomplete { .. }) => false,
                Err(error) => return (found, Err(error)),
            };
            input.drain(..position);
            if !more {
                break;
            }
        }
    }
    (found, Ok(()))
}

fuzz_target!(|data: &[u8]| {
    let [flags, step, stream @ ..] = data else { return };
    let limits = Limits { bulk_bytes_max: 1 << 20, authenticated: flags & 1 == 1 };
    let commands_max = usize::from(flags >> 1 & 7) + 1;

    let whole = decode(stream, &limits, usize::MAX, || stream.len());
    let mut state = u32::from(*step);
    let pieces = decode(stream, &limits, commands_max, || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Mostly a few bytes; sometimes many at once.
        if state >> 29 == 0 { (state >> 16 & 0xff) as usize } else { (state >> 16 & 7) as usize }
    });
    assert_eq!(whole, pieces);

    let mut again = Vec::new();
    for command in &whole.0 {
        again.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
        for argument in command {
            again.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            again.extend_from_slice(argument);
            again.extend_from_slice(b"\r\n");
        }
    }
    let limits = Limits { bulk_bytes_max: 1 << 20, authenticated: true };
    assert_eq!(decode(&again, &limits, usize::MAX, || again.len()), (whole.0, Ok(())));
});
