//! [`Unit`]: several commands that run as one.
//!
//! The shards that they may touch stay locked from the first command to the last, so nobody sees a state
//! between two of them: what one command is by itself, strictly serializable, they are together.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, CommandResult, Run},
    context::{Environment, ExclusiveContext, Garbage, KeyspaceContext, Worker},
    execute::{Engine, Request, run_locked},
    keyspace::{Locked, ShardSet},
};

/// Commands that run as one.
#[derive(Debug)]
pub struct Unit<'k> {
    engine: &'k Engine,
    locked: Locked<'k>,
    /// The shards that are locked; `None` where nobody else runs at all.
    shards: Option<ShardSet>,
    /// What is to be freed before the answer leaves, outside of the locks.
    freed: Vec<Garbage>,
}

impl Engine {
    /// Begins a unit on these shards. The caller is inside the gate and holds no locks.
    pub fn begin(&self, shards: ShardSet) -> Unit<'_> {
        let locked = self.keyspace.lock_set(shards);
        Unit { engine: self, locked, shards: Some(shards), freed: Vec::new() }
    }

    /// Begins a unit that may do anything: nobody else runs meanwhile. The caller is not inside the
    /// gate, and passes it again when the unit has ended.
    pub fn begin_alone(&self) -> Unit<'_> {
        Unit { engine: self, locked: self.keyspace.close(), shards: None, freed: Vec::new() }
    }
}

impl Unit<'_> {
    /// Whether nobody else runs.
    pub fn is_alone(&self) -> bool {
        self.shards.is_none()
    }

    /// Whether a command of the store may run: its keys are in shards that are locked.
    #[inline]
    pub fn covers(&self, request: &Request<'_>) -> bool {
        let Some(shards) = &self.shards else { return true };
        match request.entry.command.run {
            Run::Read(_) | Run::Write(_) => {
                if request.entry.strays(request.words) {
                    return false;
                }
                let keyspace = &self.engine.keyspace;
                let mut positions = request.entry.key_positions(request.words);
                positions.all(|position| shards.contains(keyspace.shard_of(request.words[position])))
            }
            Run::Help(_) => true,
            Run::Keyspace(_) | Run::Exclusive(_) | Run::Host(_) | Run::Container => false,
        }
    }

    /// Runs a command of the store that the unit covers and appends its reply; on an error the reply is
    /// as it was.
    ///
    /// # Panics
    /// For a command that it does not cover, and for those of the host and containers.
    pub fn execute(
        &mut self,
        request: &Request<'_>,
        database: usize,
        environment: &Environment,
        worker: &mut Worker,
        reply: &mut ReplyBuffer,
    ) -> CommandResult {
        let mark = reply.mark();
        let mut args = Args::new(request.words, request.entry.name_words());
        let result = match request.entry.command.run {
            Run::Read(_) | Run::Write(_) => {
                run_locked(&mut self.locked, request, &mut args, database, environment, worker, reply)
            }
            Run::Keyspace(handler) => {
                assert!(self.is_alone(), "{} looks at every shard", request.entry.full_name());
                let keyspace = &self.engine.keyspace;
                let mut context = KeyspaceContext::new(keyspace, database, environment, worker);
                handler(&mut context, &mut args, reply)
            }
            Run::Exclusive(handler) => {
                assert!(self.is_alone(), "{} changes every shard", request.entry.full_name());
                let mut context = ExclusiveContext::new(self.locked.shards(), database, environment, worker);
                let result = handler(&mut context, &mut args, reply);
                self.freed.push(context.finish());
                result
            }
            Run::Help(lines) => {
                reply.array(lines.len());
                lines.iter().for_each(|line| reply.simple(line));
                Ok(())
            }
            Run::Host(_) | Run::Container => unreachable!("{} is not the store's", request.entry.full_name()),
        };
        if result.is_err() {
            reply.rewind(mark);
        }
        result
    }

    /// Ends the unit: others see what it has done.
    pub fn end(self, worker: &mut Worker) {
        drop(self.locked);
        drop(self.freed);
        worker.garbage.free_marked();
    }
}
