//! Commands that take long, offloaded (`docs/decisions/0013-long-commands.md`).
//!
//! ```text
//! worker                              anywhere
//! ──────                              ────────
//! lock · look up · weigh: too long
//! take a view of the keys · unlock ──▶ run the same handler on the view
//! go on with other clients            the reply ──▶ to the client
//! ```
//!
//! The view is a point in time: a command that reads has run when it was taken, and a command that changes one of its
//! keys later comes later. A command that stores what it computes has not run: it is run again, under its locks, with
//! what it has computed, unless one of the keys has changed meanwhile; then it starts anew.
//!
//! A command that reads the keyspace as a whole has no view. The command walks over the stripes in slices
//! (`context/walk.rs`), and is run at all those moments: a client that sees a change which the walk has seen sees the
//! walk's reply later.

use std::{any::Any, fmt};

use dunlin_resp::{Protocol, ReplyBuffer};

use crate::{
    command::{Access, Args, CommandError, CommandResult, Run},
    context::{
        Caller, Environment, Garbage, Host, KeyspaceContext, Policy, ReadContext, Worker, WriteContext,
    },
    execute::{Engine, Request},
    keyspace::{Locked, StripeSet, View},
    long_words::{LongWords, OwnedWord},
};

/// The outcome of an offloaded command.
#[derive(Debug)]
pub enum OffloadOutcome {
    /// The command has been run.
    Answered {
        /// Its words, the name first.
        words: Vec<OwnedWord>,
        /// Its reply.
        reply: ReplyBuffer,
    },
    /// The command is to be run again, with what it has computed.
    Computed(Computed),
    /// The command was given up: no client wants the reply.
    Abandoned,
}

/// The result that a command has computed from keys that it will not change.
pub struct Computed {
    /// The words of the command, the name first.
    pub words: Vec<OwnedWord>,
    /// Its client's database.
    pub database: usize,
    /// The protocol that its client is answered in.
    pub protocol: Protocol,
    view: View,
    result: Box<dyn Any + Send>,
}

impl fmt::Debug for Computed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Computed").field("view", &self.view).finish_non_exhaustive()
    }
}

impl Computed {
    /// The result, if it still holds: the keys that it was computed from, whose stripes are locked, are as they
    /// were. Nothing large is freed here.
    pub(crate) fn into_current(
        self,
        locked: &Locked<'_>,
        environment: Environment<'_>,
        garbage: &mut Garbage,
    ) -> Option<Box<dyn Any + Send>> {
        if !self.view.is_current(locked, environment.caller.now_ms) {
            garbage.push_other(Box::new(self.view));
            garbage.push_other(self.result);
            return None;
        }
        // The keyspace has all that it shares, and may now change it without a copy.
        drop(self.view);
        Some(self.result)
    }
}

/// The rest of a command that takes long.
#[derive(Debug)]
pub struct Offloaded {
    /// Its words, the name first.
    words: Vec<OwnedWord>,
    task: Task,
}

#[derive(Debug)]
enum Task {
    /// Run it on a view of the keys that it reads.
    Run(Box<Running>),
    /// Run it on the keyspace as a whole.
    Walk(Box<Walking>),
    /// Free the values that it has removed, before its reply.
    Free { garbage: Garbage, reply: ReplyBuffer },
}

/// A command to be run, and the keys that it reads.
struct Running {
    run: Run,
    name_words: usize,
    database: usize,
    policy: Policy,
    caller: Caller,
    protocol: Protocol,
    view: View,
}

impl fmt::Debug for Running {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Running").field("view", &self.view).finish_non_exhaustive()
    }
}

/// A command that looks at the keyspace as a whole, to be run.
struct Walking {
    handler: WalkingHandler,
    name_words: usize,
    database: usize,
    policy: Policy,
    caller: Caller,
    protocol: Protocol,
}

type WalkingHandler = fn(&mut KeyspaceContext<'_>, &mut Args<'_>, &mut ReplyBuffer) -> CommandResult;

impl fmt::Debug for Walking {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Walking").field("database", &self.database).finish_non_exhaustive()
    }
}

impl Offloaded {
    /// A command whose keys are locked.
    #[cold]
    pub(crate) fn new(
        locked: &Locked<'_>,
        request: &Request<'_>,
        database: usize,
        environment: Environment<'_>,
        long_words: &LongWords,
        protocol: Protocol,
    ) -> Self {
        let keys = request.entry.keys_with_access(request.words);
        let keys = keys.filter_map(|(key, access)| (access != Access::Overwrite).then_some(key));
        let running = Running {
            run: request.entry.command.run,
            name_words: request.entry.name_words(),
            database,
            // Accesses were noted when it was first run.
            policy: environment.policy.clone(),
            caller: Caller { no_touch: true, ..*environment.caller },
            protocol,
            view: View::new(locked, database, keys, environment.caller.now_ms),
        };
        Self { words: OwnedWord::all(request.words, long_words), task: Task::Run(Box::new(running)) }
    }

    /// A command that looks at the keyspace as a whole.
    #[cold]
    pub(crate) fn walking(
        handler: WalkingHandler,
        request: &Request<'_>,
        database: usize,
        environment: Environment<'_>,
        protocol: Protocol,
    ) -> Self {
        let name_words = request.entry.name_words();
        let (policy, caller) = (environment.policy.clone(), *environment.caller);
        let walking = Walking { handler, name_words, database, policy, caller, protocol };
        Self {
            words: OwnedWord::all(request.words, &LongWords::default()),
            task: Task::Walk(Box::new(walking)),
        }
    }

    /// A command that has been run, whose reply waits until the values that it removed are freed.
    #[cold]
    pub(crate) fn freeing(garbage: Garbage, request: &Request<'_>, reply: ReplyBuffer) -> Self {
        Self {
            words: OwnedWord::all(request.words, &LongWords::default()),
            task: Task::Free { garbage, reply },
        }
    }

    /// Whether the command has been run, and only frees the values that it has removed.
    pub fn has_run(&self) -> bool {
        matches!(self.task, Task::Free { .. })
    }

    /// Whether its place among all changes is decided: it shows none that comes after it was handed out.
    pub fn is_decided(&self) -> bool {
        !matches!(self.task, Task::Walk(_))
    }

    /// Puts words in front of the command's, which are those of a part of another command.
    pub fn prepend_words(&mut self, words: &[&[u8]]) {
        self.words.splice(0..0, OwnedWord::all(words, &LongWords::default()));
        if let Task::Walk(walking) = &mut self.task {
            walking.name_words += words.len();
        }
    }

    /// Runs the command, or what it computes before it changes something. The worker's counters and events
    /// are dropped: what there is to count has been.
    pub fn run(self, engine: &Engine, worker: &mut Worker, host: &dyn Host) -> OffloadOutcome {
        match self.task {
            Task::Run(running) => running.run(self.words, engine, worker),
            Task::Walk(walking) => walking.run(self.words, engine, worker, host),
            Task::Free { garbage, reply } => {
                drop(garbage);
                OffloadOutcome::Answered { words: self.words, reply }
            }
        }
    }
}

impl Walking {
    fn run(
        self,
        owned_words: Vec<OwnedWord>,
        engine: &Engine,
        worker: &mut Worker,
        host: &dyn Host,
    ) -> OffloadOutcome {
        let words: Vec<&[u8]> = owned_words.iter().map(|word| &**word).collect();
        let mut args = Args::new(&words, self.name_words);
        let mut reply = ReplyBuffer::default();
        reply.set_protocol(self.protocol);
        let mark = reply.mark();
        let (keyspace, environment) = (&engine.keyspace, Environment::new(&self.policy, &self.caller));
        let mut context = KeyspaceContext::offloaded(keyspace, self.database, environment, worker, host);
        match (self.handler)(&mut context, &mut args, &mut reply) {
            Ok(()) => {}
            Err(CommandError::Abandoned) => return OffloadOutcome::Abandoned,
            Err(error) => {
                reply.rewind(mark);
                reply.error(error.line());
            }
        }
        OffloadOutcome::Answered { words: owned_words, reply }
    }
}

impl Running {
    fn run(self, owned_words: Vec<OwnedWord>, engine: &Engine, worker: &mut Worker) -> OffloadOutcome {
        let words: Vec<&[u8]> = owned_words.iter().map(|word| &**word).collect();
        let mut args = Args::new(&words, self.name_words);
        let mut reply = ReplyBuffer::default();
        reply.set_protocol(self.protocol);
        let mark = reply.mark();
        let mut computed = None;
        let result = match self.run {
            Run::Read(handler) => {
                let (keyspace, environment) =
                    (&engine.keyspace, Environment::new(&self.policy, &self.caller));
                let mut context =
                    ReadContext::offloaded(keyspace, &self.view, self.database, environment, worker);
                handler(&mut context, &mut args, &mut reply)
            }
            Run::Write(_) | Run::Block(_) => {
                let mut nothing = engine.keyspace.lock_set(StripeSet::EMPTY);
                let (view, environment) = (&self.view, Environment::new(&self.policy, &self.caller));
                let mut context = WriteContext::preparing(
                    &mut nothing,
                    view,
                    &mut computed,
                    self.database,
                    environment,
                    worker,
                );
                match self.run {
                    Run::Write(handler) => handler(&mut context, &mut args, &mut reply),
                    // The command has found something, or would not have been offloaded.
                    Run::Block(handler) => handler(&mut context, &mut args, &mut reply).map(drop),
                    _ => unreachable!("matched above"),
                }
            }
            _ => unreachable!("nothing else is offloaded"),
        };
        worker.notices.clear();
        if let Some(result) = computed {
            let Self { database, protocol, view, .. } = self;
            return OffloadOutcome::Computed(Computed {
                words: owned_words,
                database,
                protocol,
                view,
                result,
            });
        }
        if let Err(error) = result {
            reply.rewind(mark);
            reply.error(error.line());
        }
        OffloadOutcome::Answered { words: owned_words, reply }
    }
}
