//! A store and clients that talk to it without a network.

#![allow(dead_code, reason = "each test uses its part")]

use dunlin_engine::{
    Blocked, Caller, Computed, Engine, Environment, Host, Offloaded, Outcome, Policy, Request, Worker,
    command::{CommandError, CommandTable, Run},
    commands,
    keyspace::Keyspace,
};
use dunlin_resp::ReplyBuffer;

pub const DATABASES: usize = 4;
pub const START_MS: u64 = 1_700_000_000_000;

/// A store for some clients.
pub struct Store {
    pub engine: Engine,
    pub table: CommandTable,
}

impl Store {
    pub fn new(clients: usize) -> Self {
        Self {
            engine: Engine::new(Keyspace::new(1, clients, DATABASES, [1, 2, 3, 4])),
            table: CommandTable::new(commands::FAMILIES),
        }
    }

    pub fn client(&self, number: usize) -> Client<'_> {
        Client {
            store: self,
            worker: Worker::new(number, number as u64),
            policy: Policy { string_bytes_max: 512 << 20, ..Policy::default() },
            caller: Caller { now_ms: START_MS, ..Caller::default() },
            database: 0,
            blocked: None,
            offloaded: None,
            computed: None,
        }
    }
}

/// The host of commands that are offloaded, whose client waits to the end.
pub struct ConnectedHost;

impl Host for ConnectedHost {
    fn is_wanted(&self) -> bool {
        true
    }

    fn pause(&self) {
        std::thread::yield_now();
    }
}

/// A client with a worker of its own.
pub struct Client<'a> {
    pub store: &'a Store,
    pub worker: Worker,
    pub policy: Policy,
    pub caller: Caller,
    pub database: usize,
    /// The wait that the last command ended in.
    pub blocked: Option<Blocked>,
    /// The rest of the last command, if that was offloaded.
    pub offloaded: Option<Box<Offloaded>>,
    /// The result that the next command has computed before.
    pub computed: Option<Box<Computed>>,
}

impl Client<'_> {
    /// Runs a command; its reply as encoded.
    pub fn run(&mut self, words: &[&[u8]]) -> Vec<u8> {
        self.try_run(words).unwrap_or_else(|error| {
            let mut reply = ReplyBuffer::default();
            reply.error(error.line());
            reply.chunks().flatten().copied().collect()
        })
    }

    /// Runs a command as a worker does, hashing and prefetching ahead; its reply as encoded.
    pub fn try_run(&mut self, words: &[&[u8]]) -> Result<Vec<u8>, CommandError> {
        let keyspace = &self.store.engine.keyspace;
        let mut entry = self.store.table.find(words[0]).expect("a known command");
        if matches!(entry.command.run, Run::Container) {
            entry = self.store.table.find_subcommand(entry, words[1]).expect("a known subcommand");
        }
        assert!(entry.command.arity.accepts(words.len()), "{words:?}");
        let mut inside = Some(keyspace.enter(self.worker.id()));
        let keys: Vec<_> = entry.key_positions(words).map(|at| keyspace.key(words[at])).collect();
        keyspace.prefetch(inside.as_ref().expect("just entered"), self.database, &keys);
        let request = Request { entry, words, keys: &keys, encoded: &[] };
        let mut reply = ReplyBuffer::default();
        let (environment, worker) = (Environment::new(&self.policy, &self.caller), &mut self.worker);
        let (engine, database, inside) = (&self.store.engine, self.database, &mut inside);
        let result = match self.computed.take() {
            None => engine.execute(&request, database, environment, worker, inside, &mut reply),
            Some(computed) => {
                engine.execute_computed(computed, &request, database, environment, worker, inside, &mut reply)
            }
        };
        *inside = None;
        match result? {
            Outcome::Done | Outcome::DoneAlone => {}
            Outcome::Blocked(blocked) => self.blocked = Some(blocked),
            Outcome::Offloaded(offloaded) => self.offloaded = Some(offloaded),
            Outcome::Retry => return Err(CommandError::text("RETRY a key is being read")),
        }
        Ok(reply.chunks().flatten().copied().collect())
    }

    /// Runs a command line; its reply with blanks for line ends.
    pub fn say(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        String::from_utf8_lossy(&self.run(&words)).replace("\r\n", " ").trim_end().to_owned()
    }

    /// Removes expired keys, in small slices, until nothing more is due.
    pub fn expire(&mut self) {
        let engine = &self.store.engine;
        let inside = engine.keyspace.enter(self.worker.id());
        for stripe in engine.keyspace.stripes() {
            while !engine.expire(stripe, Environment::new(&self.policy, &self.caller), 3, &mut self.worker) {}
        }
        drop(inside);
    }
}
