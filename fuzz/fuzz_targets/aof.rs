//! Any bytes as an append-only file: its commands come out, cut anywhere they are the first of the same, and
//! memory follows what has arrived.

#![no_main]

use dunlin_persist::aof::{Progress, ReadError, Reader};
use libfuzzer_sys::fuzz_target;

/// The commands of a file, how far it was read, and whether it just ended too early.
fn read(bytes: &[u8]) -> (Vec<Vec<Vec<u8>>>, Progress, bool) {
    let mut reader = Reader::new(bytes, 0);
    let mut commands = Vec::new();
    loop {
        match reader.read_command() {
            Ok(Some(words)) => commands.push(words.iter().map(|word| word.to_vec()).collect()),
            Ok(None) => return (commands, reader.progress(), true),
            Err(error) => return (commands, reader.progress(), matches!(error, ReadError::Cut)),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let (commands, progress, _) = read(data);
    assert!(progress.offset <= data.len() as u64);
    assert_eq!(progress.commands, commands.len() as u64);
    let good = &data[..progress.offset as usize];
    let (again, same, ends_well) = read(good);
    assert!(ends_well && again == commands && same == progress);
    let (part, _, _) = read(&good[..good.len() / 2]);
    assert!(commands.starts_with(&part));
});
