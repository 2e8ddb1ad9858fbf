//! How the node's last process ended, in a file of the data directory: whether the data set that is loaded is all that it had
//! acknowledged.
//!
//! ```text
//! dir/cluster-end       durable                     everything counted when it was synced (appendfsync always)
//!                       clean HISTORY OFFSET        it ended in good order, and had this much
//! ```
//!
//! A start reads the file and writes it anew, before it sends the first message.

use std::path::Path;

use dunlin_cluster::HistoryId;

use super::data;
use crate::{
    config::{describe, replace_file},
    shared::Shared,
};

/// The name of the file.
const FILE: &str = "cluster-end";

/// The end of a process, or its kind while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ending {
    /// Everything counted when it was synced.
    pub(super) is_durable: bool,
    /// The data set at an end in good order.
    pub(super) clean: Option<(HistoryId, u64)>,
}

impl Ending {
    /// Reads the file; nothing is promised where there is none.
    pub(super) fn read(directory: &Path) -> Self {
        std::fs::read_to_string(directory.join(FILE)).map_or(Self::default(), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let clean = text.lines().find_map(|line| {
            let (history, offset) = line.strip_prefix("clean ")?.split_once(' ')?;
            Some((history.parse().ok()?, offset.parse().ok()?))
        });
        Self { is_durable: text.lines().any(|line| line == "durable"), clean }
    }

    /// Writes the file, durably. The error is a line for the operator.
    pub(super) fn keep(self, directory: &Path) -> Result<(), String> {
        let mut text = String::new();
        if self.is_durable {
            text += "durable\n";
        }
        if let Some((history, offset)) = self.clean {
            text += &format!("clean {history} {offset}\n");
        }
        let path = directory.join(FILE);
        replace_file(&path, text.as_bytes())
            .map_err(|error| format!("cannot write {}: {}", path.display(), describe(&error)))
    }

    /// Whether a data set that was loaded has all that was acknowledged.
    pub(super) fn covers(self, history: Option<HistoryId>, end: u64) -> bool {
        history.is_some_and(|history| self.is_durable || self.clean == Some((history, end)))
    }
}

/// Notes how the process has ended: nothing is added to the data set any more.
pub(crate) fn note_end(shared: &Shared) {
    let Some(history) = shared.cluster.clean.get().copied() else { return };
    let config = shared.config.current();
    let is_durable = data::is_durable(&config);
    let data = shared.replication.data(&shared.engine, &shared.durability, false);
    if data.is_whole() && data.history.map(data::history_of) == Some(history) {
        let ending = Ending { is_durable, clean: Some((history, data.end)) };
        if let Err(line) = ending.keep(&config.dir) {
            tracing::error!("{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;

    #[test]
    fn ending_covers_what_was_there_and_nothing_less() {
        let scratch = ScratchDir::new("ending");
        let directory = scratch.path("");
        let history = HistoryId::from_bytes([1; 20]);
        assert_eq!(Ending::read(&directory), Ending::default());
        let clean = Ending { is_durable: false, clean: Some((history, 7)) };
        clean.keep(&directory).unwrap();
        assert_eq!(Ending::read(&directory), clean);
        assert!(clean.covers(Some(history), 7) && !clean.covers(Some(history), 6) && !clean.covers(None, 7));
        let durable = Ending { is_durable: true, clean: None };
        durable.keep(&directory).unwrap();
        assert_eq!(Ending::read(&directory), durable);
        assert!(durable.covers(Some(history), 6) && !durable.covers(None, 0));
        assert_eq!(Ending::parse("clean x 7\nclean \ndurable \n"), Ending::default());
    }
}
