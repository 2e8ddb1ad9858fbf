//! Any bytes as a dump: RESTORE refuses them or stores a value that can be used, dumped and restored again.
//!
//! ```text
//! input: version: u8 │ type │ value      the checksum is put behind it, or nothing would get past it
//! ```

#![no_main]

use std::cell::RefCell;

use dunlin_engine::{
    Caller, Engine, Environment, Policy, Request, Worker,
    command::CommandTable,
    commands,
    keyspace::Keyspace,
    rdb::{Version, seal_dump},
};
use dunlin_resp::ReplyBuffer;
use libfuzzer_sys::fuzz_target;

/// The reply if there is no such key.
const NULL: &[u8] = b"$-1\r\n";

struct Store {
    engine: Engine,
    table: CommandTable,
    debug: CommandTable,
    policy: Policy,
    caller: Caller,
    worker: Worker,
}

impl Store {
    fn new() -> Self {
        Self {
            engine: Engine::new(Keyspace::new(1, 1, 1, [1, 2, 3, 4])),
            table: CommandTable::new(commands::FAMILIES),
            debug: CommandTable::new(&[commands::debug::COMMANDS]),
            policy: Policy { string_bytes_max: 512 << 20, ..Policy::default() },
            caller: Caller { now_ms: 1_700_000_000_000, ..Caller::default() },
            worker: Worker::new(0, 1),
        }
    }

    /// The reply, without its head if it is a bulk string; `None` for an error.
    fn run(&mut self, words: &[&[u8]]) -> Option<Vec<u8>> {
        let found = self.table.find(words[0]);
        let entry = found.or_else(|| self.debug.find(words[0])).expect("a command");
        let request = Request { entry, words, keys: &[], encoded: &[] };
        let mut reply = ReplyBuffer::default();
        let mut inside = Some(self.engine.keyspace.enter(0));
        let (environment, worker) = (Environment::new(&self.policy, &self.caller), &mut self.worker);
        self.engine.execute(&request, 0, environment, worker, &mut inside, &mut reply).ok()?;
        drop(worker.garbage.take());
        let reply: Vec<u8> = reply.chunks().flatten().copied().collect();
        let head = reply.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let start = if reply.starts_with(b"$") && reply != NULL { head } else { 0 };
        Some(reply[start..reply.len() - 2].to_vec())
    }
}

thread_local! {
    static STORE: RefCell<Store> = RefCell::new(Store::new());
}

fuzz_target!(|data: &[u8]| {
    let [version, value @ ..] = data else { return };
    let number = if *version < 128 { u16::from(version % 16) } else { 80 + u16::from(version % 2) };
    let Some(version) = Version::from_number(number, false) else { return };
    let mut dump = value.to_vec();
    seal_dump(&mut dump, version);
    STORE.with_borrow_mut(|store| {
        store.run(&[b"flushall"]);
        if store.run(&[b"restore", b"k", b"0", &dump]).is_none() {
            assert_eq!(store.run(&[b"exists", b"k"]).as_deref(), Some(&b":0"[..]));
            return;
        }
        let own = store.run(&[b"dump", b"k"]).expect("a value that was stored can be dumped");
        if own == b"$-1" {
            // A hash all of whose fields had expired.
            return;
        }
        store.run(&[b"restore", b"copy", b"0", &own]).expect("what was dumped can be restored");
        assert_eq!(store.run(&[b"digest-value", b"k"]), store.run(&[b"digest-value", b"copy"]));
        store.run(&[b"copy", b"k", b"other"]).expect("it can be copied");
        store.run(&[b"del", b"k"]).expect("and removed");
    });
});
