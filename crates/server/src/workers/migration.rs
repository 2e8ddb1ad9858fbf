//! Keys on their way to another server (MIGRATE): what workers and the threads that send keys hand to each other.

use std::{
    fmt,
    time::{Duration, Instant},
};

use dunlin_engine::{MigratingKeys, NotRemoved, OwnedWord, command::CommandError};
use dunlin_net::{Address, WorkerQueues};

use super::WorkerMessage;

/// How often keys are sent that change under way.
const ROUNDS_MAX: u32 = 8;

/// How a client identifies itself at the target.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// Without one, the default user.
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) password: Vec<u8>,
}

/// Secrets are not printed.
impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(redacted)")
    }
}

/// The server that gets the keys, and how it lets this one in.
#[derive(Debug, Clone)]
pub(crate) struct MigrationTarget {
    pub(crate) host: Vec<u8>,
    pub(crate) port: Vec<u8>,
    pub(crate) database: i64,
    /// For each wait of a socket.
    pub(crate) timeout: Duration,
    /// The keys stay here.
    pub(crate) copy: bool,
    /// The target's keys of the same names are replaced.
    pub(crate) replace: bool,
    pub(crate) credentials: Option<Credentials>,
}

/// A MIGRATE under way.
#[derive(Debug)]
pub(crate) struct Migration {
    pub(crate) target: MigrationTarget,
    /// The words of the command, the name first.
    words: Vec<OwnedWord>,
    pub(crate) client: Address,
    pub(crate) queues: WorkerQueues<WorkerMessage>,
    begun: Instant,
    rounds: u32,
    pub(crate) migrating: Option<Box<MigratingKeys>>,
    /// Keys that have arrived in an earlier round, and are gone here.
    pub(crate) gone: Vec<Box<[u8]>>,
    /// By key of the migrating: whether the target has it now.
    pub(crate) arrived: Vec<bool>,
    pub(crate) failure: Option<CommandError>,
}

impl Migration {
    pub(crate) fn new(
        target: MigrationTarget,
        words: &[&[u8]],
        migrating: Box<MigratingKeys>,
        client: Address,
        queues: WorkerQueues<WorkerMessage>,
    ) -> Self {
        Self {
            target,
            words: words.iter().map(|word| OwnedWord::Short(Box::from(*word))).collect(),
            client,
            queues,
            begun: Instant::now(),
            rounds: 0,
            migrating: Some(migrating),
            gone: Vec::new(),
            arrived: Vec::new(),
            failure: None,
        }
    }

    /// Takes the keys out that have been sent; none are left if they stay here.
    pub(crate) fn take_migrating(&mut self) -> Option<Box<MigratingKeys>> {
        self.migrating.take()
    }

    /// Gives them back.
    pub(crate) fn keep(&mut self, migrating: Box<MigratingKeys>) {
        self.migrating = Some(migrating);
    }

    /// Whether the target has the nth of them.
    pub(crate) fn has_arrived(&self, nth: usize) -> bool {
        self.arrived.get(nth).copied().unwrap_or(false)
    }

    /// Refuses it, unless it has failed before.
    pub(crate) fn fail(&mut self, error: CommandError) {
        self.failure.get_or_insert(error);
    }

    /// Looks at keys that have arrived and could not be removed. Returns the keys that are to be sent again, unless it
    /// is over.
    pub(crate) fn again(&mut self, not_removed: NotRemoved) -> Option<Vec<Box<[u8]>>> {
        self.rounds += 1;
        if not_removed.is_empty() || self.failure.is_some() {
            return None;
        }
        if self.rounds == ROUNDS_MAX {
            let text = "ERR the keys change faster than they can be moved, and are still here";
            self.failure = Some(CommandError::text(text));
            return None;
        }
        self.gone = not_removed.gone;
        // The target's keys under these names are ours.
        self.target.replace = true;
        Some(not_removed.changed)
    }

    /// The words of the command, the result, and the time that it has taken.
    pub(crate) fn finish(self) -> (Vec<OwnedWord>, Result<(), CommandError>, Duration) {
        (self.words, self.failure.map_or(Ok(()), Err), self.begun.elapsed())
    }

    /// Whether the keys stay here.
    pub(crate) fn keeps_keys(&self) -> bool {
        self.target.copy
    }

    /// Notes those of some keys as gone that are not among the ones to be sent.
    pub(crate) fn note_gone(&mut self, keys: &[Box<[u8]>]) {
        let sent = self.migrating.as_ref().map_or(&[][..], |migrating| migrating.keys());
        self.gone.extend(keys.iter().filter(|key| !sent.contains(key)).cloned());
    }

    /// Whether there is another round: keys to be sent, or to be removed at the target.
    pub(crate) fn goes_on(&self) -> bool {
        self.failure.is_none() && (self.migrating.is_some() || !self.gone.is_empty())
    }
}
