//! The stamp of the log in a snapshot: how the data set stood to the log beside it when it was cut.
//!
//! ```text
//! auxiliary field dunlin-log = NAME GENERATION on|off|apart        NAME and GENERATION as in the manifest
//! ```
//!
//! A start that finds a log and a snapshot decides by it which of them holds more ([`crate::durability`]).

use std::fmt;

use dunlin_persist::manifest::LogId;

use crate::system::host::random_id;

/// How a data set stands to the log beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LogRelation {
    /// The log records all changes, so it holds the whole data set.
    On,
    /// The log does not, and the data set holds all that the log does.
    Off,
    /// The log does not, and the data set was not made from all of it: each may hold data that the other one lacks.
    #[default]
    Apart,
}

impl LogRelation {
    const ALL: [(Self, &str); 3] = [(Self::On, "on"), (Self::Off, "off"), (Self::Apart, "apart")];
}

/// The stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogStamp {
    pub(crate) name: String,
    pub(crate) generation: u64,
    pub(crate) relation: LogRelation,
}

impl fmt::Display for LogStamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = LogRelation::ALL.iter().find(|(relation, _)| *relation == self.relation);
        write!(out, "{} {} {}", self.name, self.generation, word.map_or("", |(_, word)| *word))
    }
}

impl LogStamp {
    /// Reads the auxiliary field.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let (name, generation) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let word = words.next()?;
        let (relation, _) = *LogRelation::ALL.iter().find(|(_, other)| *other == word)?;
        Some(Self { name, generation, relation })
    }
}

/// Which log the one is that a data set begins: the next one of the name of `log`, which it holds all of, or a new one.
pub(crate) fn next_id(log: Option<&LogId>) -> Result<LogId, String> {
    match log {
        Some(log) => Ok(LogId { generation: log.generation + 1, ..log.clone() }),
        None => Ok(LogId { name: random_id()?, generation: 1, origin: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_reads_back_what_it_prints() {
        for (relation, _) in LogRelation::ALL {
            let stamp = LogStamp { name: "f".repeat(40), generation: 7, relation };
            assert_eq!(LogStamp::parse(&stamp.to_string()), Some(stamp));
        }
        for other in ["", "f", "f x on", "f 1", "f 1 of"] {
            assert_eq!(LogStamp::parse(other), None, "{other}");
        }
    }
}
