//! Commands that take long, run apart from the worker that read them (`docs/decisions/0012-long-commands.md`).
//!
//! ```text
//! worker                              anywhere
//! ──────                              ────────
//! lock · look up · weigh: too long
//! take a view of the keys · unlock ──▶ run the same handler on the view
//! go on with other clients            the reply ──▶ to the client
//! ```
//!
//! The view is a point in time: the command has run when it was taken, and whoever changes one of its keys
//! later comes later.

use std::fmt;

use dunlin_resp::{Protocol, ReplyBuffer};

use crate::{
    command::{Args, Run},
    context::{Environment, ReadContext, Worker},
    execute::{Engine, Request},
    keyspace::{Locked, View},
};

/// A command that reads, and what it reads.
pub struct Deferred {
    run: Run,
    name_words: usize,
    words: Vec<Box<[u8]>>,
    database: usize,
    environment: Environment,
    protocol: Protocol,
    view: View,
}

impl fmt::Debug for Deferred {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Deferred").field("view", &self.view).finish_non_exhaustive()
    }
}

impl Deferred {
    /// A command whose keys are locked.
    #[cold]
    pub(crate) fn new(
        locked: &Locked<'_>,
        request: &Request<'_>,
        database: usize,
        environment: &Environment,
        protocol: Protocol,
    ) -> Self {
        let keys = request.entry.key_positions(request.words).map(|position| request.words[position]);
        Self {
            run: request.entry.command.run,
            name_words: request.entry.name_words(),
            words: request.words.iter().map(|word| Box::from(*word)).collect(),
            database,
            // Accesses were noted when it was first run.
            environment: Environment { no_touch: true, ..environment.clone() },
            protocol,
            view: View::new(locked, database, keys, environment.now_ms),
        }
    }

    /// The words of the command, the name first.
    pub fn words(&self) -> &[Box<[u8]>] {
        &self.words
    }

    /// Runs the command; its reply. The worker's counters and events are nobody's: what there is to count
    /// has been.
    pub fn run(&self, engine: &Engine, worker: &mut Worker) -> ReplyBuffer {
        let Run::Read(handler) = self.run else { unreachable!("only commands that read are deferred") };
        let words: Vec<&[u8]> = self.words.iter().map(|word| &**word).collect();
        let mut reply = ReplyBuffer::default();
        reply.set_protocol(self.protocol);
        let mark = reply.mark();
        let mut context =
            ReadContext::apart(&engine.keyspace, &self.view, self.database, &self.environment, worker);
        if let Err(error) = handler(&mut context, &mut Args::new(&words, self.name_words), &mut reply) {
            reply.rewind(mark);
            reply.error(error.line());
        }
        worker.events.clear();
        reply
    }
}
