//! Command scripts: a scenario of commands and the exact replies they get.
//!
//! ```text
//! > SET key "a value" PX 100      a command, words quoted as on an inline request
//! +OK                             its reply, CR LF shown as a blank
//! @ +100                          time passes: milliseconds
//! 3> HELLO …                      the same in RESP3
//! ```

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use dunlin_resp::{Batch, Limits, Protocol, ReplyBuffer, RequestDecoder, SharedSlice};

use crate::{
    Caller, Computed, Engine, Environment, Host, Log, Offloaded, Outcome, Policy, Request, Worker,
    command::CommandTable, commands, keyspace::Keyspace, write_command,
};

/// The host of commands that are offloaded, whose client waits to the end.
pub(crate) struct ConnectedHost;

impl Host for ConnectedHost {
    fn is_wanted(&self) -> bool {
        true
    }

    fn pause(&self) {
        unreachable!("no script runs beside a scenario")
    }
}

/// A store to talk to, in database 0.
pub(crate) struct Scenario {
    pub(crate) engine: Engine,
    pub(crate) table: Arc<CommandTable>,
    pub(crate) worker: Worker,
    pub(crate) policy: Policy,
    pub(crate) caller: Caller,
    pub(crate) database: usize,
    /// The outcome of the last command, if it was not answered at once.
    pub(crate) offloaded: Option<Box<Offloaded>>,
    /// The result that the next command has computed before.
    pub(crate) computed: Option<Box<Computed>>,
}

impl Scenario {
    pub(crate) fn new() -> Self {
        Self {
            engine: Engine::new(Keyspace::new(1, 1, 16, [1, 2, 3, 4])),
            table: Arc::new(CommandTable::new(commands::FAMILIES)),
            worker: Worker::new(0, 1),
            policy: Policy { string_bytes_max: 512 << 20, compress_dumps: true, ..Policy::default() },
            caller: Caller { now_ms: 1_700_000_000_000, ..Caller::default() },
            database: 0,
            offloaded: None,
            computed: None,
        }
    }

    /// A store whose records are kept.
    pub(crate) fn recorded() -> (Self, Arc<Records>) {
        let records = Arc::new(Records::default());
        let mut scenario = Self::new();
        scenario.engine = Engine::with_log(Keyspace::new(1, 1, 16, [1, 2, 3, 4]), Arc::clone(&records) as _);
        scenario.engine.log.turn(crate::LogConsumer::File, true);
        (scenario, records)
    }

    pub(crate) fn turn_log(&mut self, on: bool) {
        self.engine.log.turn(crate::LogConsumer::File, on);
    }

    /// Expires due keys and elements, as background work does.
    pub(crate) fn expire(&mut self) {
        let engine = &self.engine;
        for stripe in engine.keyspace.stripes() {
            while !engine.expire(stripe, Environment::new(&self.policy, &self.caller), 16, &mut self.worker) {
            }
        }
    }

    /// The reply to one command line.
    pub(crate) fn reply(&mut self, line: &str, protocol: Protocol) -> Vec<u8> {
        let table = Arc::clone(&self.table);
        self.reply_from(&table, line, protocol)
    }

    /// The reply to one line with a command of another table.
    pub(crate) fn reply_from(&mut self, table: &CommandTable, line: &str, protocol: Protocol) -> Vec<u8> {
        self.reply_to(table, format!("{line}\n").as_bytes(), protocol)
    }

    /// The reply to one request as it comes.
    pub(crate) fn reply_to(&mut self, table: &CommandTable, input: &[u8], protocol: Protocol) -> Vec<u8> {
        let mut batch = Batch::default();
        let limits = Limits { bulk_bytes_max: 512 << 20, authenticated: true };
        let decoded = RequestDecoder::default().decode(input, &mut 0, &mut batch, &limits, 1);
        decoded.expect("a well-formed request");
        let words: Vec<&[u8]> = batch.words(input).collect();
        self.reply_to_words(table, &words, input, protocol)
    }

    /// The reply to a command with its words, and the bytes that these came in.
    pub(crate) fn reply_to_words(
        &mut self,
        table: &CommandTable,
        words: &[&[u8]],
        encoded: &[u8],
        protocol: Protocol,
    ) -> Vec<u8> {
        let mut entry = table.find(words[0]).unwrap_or_else(|| panic!("no such command: {words:?}"));
        if !entry.subcommands.is_empty() {
            entry = table.find_subcommand(entry, words[1]).expect("a subcommand");
        }
        let mut reply = ReplyBuffer::default();
        reply.set_protocol(protocol);
        if !entry.command.arity.accepts(words.len()) {
            reply.error(format!("ERR wrong number of arguments for '{}' command", entry.full_name()));
        } else {
            let request = Request { entry, words, keys: &[], encoded };
            let mut inside = Some(self.engine.keyspace.enter(0));
            self.caller.access = self.engine.keyspace.access_clock().access(self.caller.now_ms);
            let (environment, worker) = (Environment::new(&self.policy, &self.caller), &mut self.worker);
            let (engine, database) = (&self.engine, self.database);
            let result = match self.computed.take() {
                None => engine.execute(&request, database, environment, worker, &mut inside, &mut reply),
                Some(computed) => {
                    let inside = &mut inside;
                    engine.execute_computed(
                        computed,
                        &request,
                        database,
                        environment,
                        worker,
                        inside,
                        &mut reply,
                    )
                }
            };
            match result {
                Ok(Outcome::Offloaded(offloaded)) => self.offloaded = Some(offloaded),
                Ok(_) => {}
                Err(error) => reply.error(error.line()),
            }
        }
        reply.chunks().flatten().copied().collect()
    }

    /// Plays a script and compares every reply.
    pub(crate) fn play(&mut self, script: &str) {
        let mut lines = script.lines().map(str::trim).filter(|line| !line.is_empty());
        while let Some(line) = lines.next() {
            if let Some(passed) = line.strip_prefix("@ +") {
                self.caller.now_ms += passed.parse::<u64>().expect("milliseconds");
                continue;
            }
            let (protocol, command) = match (line.strip_prefix("> "), line.strip_prefix("3> ")) {
                (Some(command), _) => (Protocol::Resp2, command),
                (_, Some(command)) => (Protocol::Resp3, command),
                _ => panic!("neither a command nor a time: {line}"),
            };
            let reply = String::from_utf8_lossy(&self.reply(command, protocol)).replace("\r\n", " ");
            let expected = lines.next().expect("a reply");
            assert_eq!(reply.trim_end(), expected, "reply to {command}");
        }
    }
}

/// A log that keeps its records as lines: words separated by blanks, commands by `; `.
#[derive(Debug, Default)]
pub(crate) struct Records(Mutex<Vec<String>>, AtomicUsize);

impl Records {
    /// The records since this was last asked.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// How many of all records shared some of their bytes.
    pub(crate) fn shared(&self) -> usize {
        self.1.load(Relaxed)
    }
}

impl Log for Records {
    fn append(&self, _: usize, record: &[u8]) -> u64 {
        let mut batch = Batch::default();
        let limits = Limits { bulk_bytes_max: u64::MAX, authenticated: true };
        RequestDecoder::default().decode(record, &mut 0, &mut batch, &limits, usize::MAX).unwrap();
        let mut canonical = Vec::new();
        let commands = batch.commands().map(|(spans, _)| {
            let words: Vec<&[u8]> = spans.iter().map(|span| batch.bytes(record, *span)).collect();
            write_command(&mut canonical, &words);
            String::from_utf8_lossy(&words.join(&b' ')).into_owned()
        });
        let commands: Vec<String> = commands.collect();
        assert_eq!(record, canonical, "not in the log's form");
        self.0.lock().unwrap().push(commands.join("; "));
        0
    }

    fn append_shared(&self, participant: usize, record: Vec<SharedSlice>) -> u64 {
        self.1.fetch_add(1, Relaxed);
        self.append(participant, &record.iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>())
    }
}

/// Plays a script on an empty store.
pub(crate) fn check(script: &str) {
    Scenario::new().play(script);
}
