//! [`Filter`]: the records of some slots, out of the log's stream.

use std::ops::Range;

use dunlin_engine::{
    command::CommandTable,
    keyspace::{SlotBits, slot},
    write_command,
};
use dunlin_replication::StreamReader;

use crate::aof::entry_in_log;

/// Why a move cannot go on with the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The data set was emptied.
    Flushed,
    /// The stream makes no sense.
    Malformed(String),
}

/// Takes the stream apart. Commands that belong together stay together, as far as they are about these slots.
pub(super) struct Filter<'a> {
    commands: &'a CommandTable,
    slots: &'a SlotBits,
    reader: StreamReader,
    input: Vec<u8>,
    /// The commands since MULTI that are about these slots, by their places among the bytes; `None` outside of a block.
    block: Option<(Vec<u8>, usize)>,
}

impl<'a> Filter<'a> {
    pub(super) fn new(commands: &'a CommandTable, slots: &'a SlotBits) -> Self {
        Self { commands, slots, reader: StreamReader::default(), input: Vec::new(), block: None }
    }

    /// Takes some bytes of the stream, and appends the records of the slots.
    pub(super) fn take(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> Result<(), Unfit> {
        self.input.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let frame = self.reader.next(&self.input[at..]);
            let Some(frame) = frame.map_err(|error| Unfit::Malformed(error.to_string()))? else { break };
            let (start, end) = (at, at + frame.end);
            at = end;
            let kind = self.kind(start, &frame.words)?;
            let record = &self.input[start..end];
            match (kind, &mut self.block) {
                (Kind::Begin, block) => *block = Some((Vec::new(), 0)),
                (Kind::End, block) => {
                    let (commands, count) = block.take().unwrap_or_default();
                    if count > 1 {
                        write_command(output, &[b"MULTI"]);
                    }
                    output.extend_from_slice(&commands);
                    if count > 1 {
                        write_command(output, &[b"EXEC"]);
                    }
                }
                (Kind::Wanted, Some((commands, count))) => {
                    commands.extend_from_slice(record);
                    *count += 1;
                }
                (Kind::Wanted, None) => output.extend_from_slice(record),
                (Kind::Other, _) => {}
            }
            self.reader.recycle(frame.words);
        }
        self.input.drain(..at);
        Ok(())
    }

    fn kind(&self, start: usize, words: &[Range<usize>]) -> Result<Kind, Unfit> {
        let words: Vec<&[u8]> =
            words.iter().map(|word| &self.input[start + word.start..start + word.end]).collect();
        let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
        if words.len() == 1 && is("multi") {
            return Ok(Kind::Begin);
        }
        if words.len() == 1 && is("exec") {
            return Ok(Kind::End);
        }
        if is("flushall") || is("flushdb") {
            return Err(Unfit::Flushed);
        }
        // Commands that are not about data are the link's to replicas: PING, SELECT, PUBLISH.
        let Ok(entry) = entry_in_log(self.commands, &words) else { return Ok(Kind::Other) };
        // All keys of a command are in one slot, but for removals of keys that this shard no longer owns.
        let key = entry.key_positions(&words).next().and_then(|at| words.get(at));
        let is_wanted = key.is_some_and(|key| self.slots.contains(slot(key)));
        Ok(if is_wanted { Kind::Wanted } else { Kind::Other })
    }
}

/// The filter's treatment of a command.
enum Kind {
    Begin,
    End,
    Wanted,
    Other,
}

#[cfg(test)]
mod tests {
    use dunlin_engine::commands::FAMILIES;

    use super::*;

    fn stream(lines: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            write_command(&mut bytes, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        }
        bytes
    }

    /// The records of the slot of `{foo}`, however the stream is cut.
    fn filtered(lines: &[&str]) -> Result<Vec<u8>, Unfit> {
        let commands = CommandTable::new(FAMILIES);
        let slots: SlotBits = [slot(b"foo")].into_iter().collect();
        let bytes = stream(lines);
        let mut results = [1, 7, bytes.len()].map(|step| {
            let (mut filter, mut output) = (Filter::new(&commands, &slots), Vec::new());
            bytes.chunks(step).try_for_each(|part| filter.take(part, &mut output)).map(|()| output)
        });
        assert!(results.iter().all(|result| *result == results[0]));
        std::mem::replace(&mut results[0], Ok(Vec::new()))
    }

    #[test]
    fn filter_keeps_the_records_of_its_slots() {
        for (lines, expected) in [
            (&["SET foo 1", "SET bar 2", "DEL {foo}x", "PING"][..], &["SET foo 1", "DEL {foo}x"][..]),
            (&["SELECT 0", "XGROUP CREATE foo g $ MKSTREAM"], &["XGROUP CREATE foo g $ MKSTREAM"]),
            (&["MULTI", "SET bar 1", "EXEC", "SET foo 1"], &["SET foo 1"]),
            (&["MULTI", "SET bar 1", "INCR foo", "EXEC"], &["INCR foo"]),
            (
                &["MULTI", "INCR foo", "SET bar 1", "DEL {foo}a", "EXEC"],
                &["MULTI", "INCR foo", "DEL {foo}a", "EXEC"],
            ),
            (&["UNLINK bar {foo}", "PUBLISH foo 1"], &[]),
        ] {
            assert_eq!(filtered(lines), Ok(stream(expected)), "{lines:?}");
        }
        assert_eq!(filtered(&["SET foo 1", "FLUSHALL"]), Err(Unfit::Flushed));
        assert_eq!(filtered(&["MULTI", "FLUSHDB"]), Err(Unfit::Flushed));
    }
}
