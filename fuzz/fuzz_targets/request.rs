//! Any bytes, cut anywhere: the request decoder finds the same commands and the same error as in one
//! piece, and its commands read the same when they are encoded anew. Arguments that are kept elsewhere change nothing.
//!
//! ```text
//! input: flags | step | the stream
//! flags bit 0: authenticated; bits 1-3: how many commands a call may take, less one; bits 4-7: how long the arguments are
//! that are kept elsewhere when the stream comes in pieces
//! step: the pieces' lengths follow from it
//! ```

#![no_main]

use dunlin_resp::{Batch, Decoded, Detached, Limits, ProtocolError, RequestDecoder};
use libfuzzer_sys::fuzz_target;

type Command = Vec<Vec<u8>>;

/// Drives the decoder as a connection does: consumed bytes are dropped, the rest is presented again, and arguments of
/// at least `detached_bytes_min` bytes that come in pieces are kept elsewhere.
fn decode(
    stream: &[u8],
    limits: &Limits,
    commands_max: usize,
    detached_bytes_min: usize,
    mut piece: impl FnMut() -> usize,
) -> (Vec<Command>, Result<(), ProtocolError>) {
    let mut decoder = RequestDecoder::default();
    let mut batch = Batch::default();
    let mut found = Vec::new();
    let mut input = Vec::new();
    let mut arrived = 0;
    let mut detached: Option<(Vec<u8>, usize)> = None;
    while arrived < stream.len() {
        let end = (arrived + piece().max(1)).min(stream.len());
        if let Some((mut bytes, length)) = detached.take() {
            let end = end.min(arrived + length - bytes.len());
            bytes.extend_from_slice(&stream[arrived..end]);
            arrived = end;
            match bytes.len() == length {
                true => decoder.attach(bytes.into()),
                false => detached = Some((bytes, length)),
            }
            continue;
        }
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
            if !batch.is_empty() {
                decoder.forget_detached();
            }
            if !more {
                if let Some(Detached { length, arrived }) = decoder.detach(&input, limits, detached_bytes_min)
                {
                    detached = Some((input.split_off(input.len() - arrived), length));
                }
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

    let whole = decode(stream, &limits, usize::MAX, usize::MAX, || stream.len());
    let mut state = u32::from(*step);
    let detached_bytes_min = usize::from(flags >> 4);
    let pieces = decode(stream, &limits, commands_max, detached_bytes_min, || {
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
    assert_eq!(decode(&again, &limits, usize::MAX, usize::MAX, || again.len()), (whole.0, Ok(())));
});
