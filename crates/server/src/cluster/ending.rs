//! How the node's last process ended, in a file of the data directory: whether the data set that is loaded is all that it had
//! acknowledged.
//!
//! ```text
//! dir/cluster-end       durable                     everything counted when it was synced (appendfsync always)
//!                       clean HISTORY OFFSET        it ended in good order, and had this much
//! ```
//!
//! A start reads the file when the data set is loaded, and writes it anew before it sends the first message. The word `durable` is
//! about the log that a start loads, so it goes before that is another one:
//! - before a copy of the primary's data replaces the data set. Another node may count on what was there before, until
//!   the primary says otherwise; and until the new log has a base, a start loads the one before.
//! - before a start loads a snapshot instead of the log, and before a tool changes the files.
//! - where `CONFIG SET` asks for a weaker `appendfsync`. Data that are not synced count only once the word is gone.

use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use dunlin_cluster::HistoryId;

use crate::config::{describe, replace_file};

/// The name of the file.
const FILE: &str = "cluster-end";

/// The end of a process, or its kind while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Everything counted when it was synced.
    pub(crate) is_durable: bool,
    /// The data set at an end in good order.
    pub(crate) clean: Option<(HistoryId, u64)>,
}

impl Ending {
    /// Reads the file; nothing is promised where there is none.
    pub(crate) fn read(directory: &Path) -> Self {
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
    fn write(self, directory: &Path) -> Result<(), String> {
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

    /// Takes the word `durable` back: a start loads something else than the log that it was said of. The line `clean` stays, since it
    /// is compared with what is loaded. The error is a line for the operator.
    pub(crate) fn forget_synced(directory: &Path) -> Result<(), String> {
        let ending = Self::read(directory);
        if ending.is_durable { Self { is_durable: false, ..ending }.write(directory) } else { Ok(()) }
    }

    /// Whether a data set that was loaded has all that was acknowledged.
    pub(crate) fn covers(self, history: Option<HistoryId>, end: u64) -> bool {
        history.is_some_and(|history| self.is_durable || self.clean == Some((history, end)))
    }
}

/// The file while the process runs.
#[derive(Debug, Default)]
pub(crate) struct EndingFile(Mutex<Ending>);

impl EndingFile {
    fn lock(&self) -> MutexGuard<'_, Ending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the file, durably. The error is a line for the operator.
    pub(crate) fn keep(&self, ending: Ending, directory: &Path) -> Result<(), String> {
        let mut kept = self.lock();
        ending.write(directory)?;
        *kept = ending;
        Ok(())
    }

    /// Notes an end in good order, with all of this data set. The word `durable` stays only if it is there already.
    pub(crate) fn end(
        &self,
        is_durable: bool,
        data: (HistoryId, u64),
        directory: &Path,
    ) -> Result<(), String> {
        let is_durable = is_durable && self.lock().is_durable;
        self.keep(Ending { is_durable, clean: Some(data) }, directory)
    }

    /// The data set is about to be replaced: from here on nothing is promised. Nothing is written if nothing was
    /// promised, as in a server without a cluster.
    pub(crate) fn void(&self, directory: &Path) -> Result<(), String> {
        self.count_synced(false, directory, || true)
    }

    /// Makes the file say whether what is synced counts. The file says that it does only if `is_still` holds while no
    /// other thread voids it.
    pub(crate) fn count_synced(
        &self,
        is_durable: bool,
        directory: &Path,
        is_still: impl FnOnce() -> bool,
    ) -> Result<(), String> {
        let mut kept = self.lock();
        if kept.is_durable != is_durable && (!is_durable || is_still()) {
            let ending = Ending { is_durable, clean: None };
            ending.write(directory)?;
            *kept = ending;
        }
        Ok(())
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
        clean.write(&directory).unwrap();
        assert_eq!(Ending::read(&directory), clean);
        assert!(clean.covers(Some(history), 7) && !clean.covers(Some(history), 6) && !clean.covers(None, 7));
        let durable = Ending { is_durable: true, clean: None };
        durable.write(&directory).unwrap();
        assert_eq!(Ending::read(&directory), durable);
        assert!(durable.covers(Some(history), 6) && !durable.covers(None, 0));
        assert_eq!(Ending::parse("clean x 7\nclean \ndurable \n"), Ending::default());
    }

    #[test]
    fn synced_data_count_no_more_once_they_are_replaced() {
        let scratch = ScratchDir::new("ending-void");
        let directory = scratch.path("");
        let file = EndingFile::default();
        file.void(&directory).unwrap();
        assert!(!directory.join(FILE).exists(), "a server without a cluster has no such file");
        file.keep(Ending { is_durable: true, clean: None }, &directory).unwrap();
        file.void(&directory).unwrap();
        assert_eq!(Ending::read(&directory), Ending::default());
        // Another copy has begun meanwhile.
        file.count_synced(true, &directory, || false).unwrap();
        assert_eq!(Ending::read(&directory), Ending::default());
        file.count_synced(true, &directory, || true).unwrap();
        assert!(Ending::read(&directory).is_durable);
        file.count_synced(false, &directory, || unreachable!()).unwrap();
        assert!(!Ending::read(&directory).is_durable);
    }

    #[test]
    fn end_in_good_order_vouches_for_synced_data_only_if_they_counted() {
        let scratch = ScratchDir::new("ending-end");
        let directory = scratch.path("");
        let (file, data) = (EndingFile::default(), (HistoryId::from_bytes([1; 20]), 7));
        // As after a copy, while the log has no base: a start loads the log before.
        file.end(true, data, &directory).unwrap();
        assert_eq!(Ending::read(&directory), Ending { is_durable: false, clean: Some(data) });
        file.count_synced(true, &directory, || true).unwrap();
        file.end(true, data, &directory).unwrap();
        assert_eq!(Ending::read(&directory), Ending { is_durable: true, clean: Some(data) });
        Ending::forget_synced(&directory).unwrap();
        assert_eq!(Ending::read(&directory), Ending { is_durable: false, clean: Some(data) });
    }
}
