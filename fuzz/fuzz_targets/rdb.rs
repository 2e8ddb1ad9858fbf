//! Any bytes as an RDB file: it is read to its end or refused, in memory that follows what it holds.
//!
//! ```text
//! input: the file, behind its first nine bytes if those are no magic
//! ```

#![no_main]

use std::cell::RefCell;

use dunlin_engine::{Caller, Engine, Environment, Policy, Worker, keyspace::Keyspace};
use dunlin_persist::rdb::{Item, ReadOptions, Reader};
use libfuzzer_sys::fuzz_target;

thread_local! {
    static STORE: RefCell<(Engine, Worker)> = RefCell::new((
        Engine::new(Keyspace::new(1, 1, 16, [1, 2, 3, 4])),
        Worker::new(0, 1),
    ));
}

fuzz_target!(|data: &[u8]| {
    let has_magic = data.starts_with(b"REDIS") || data.starts_with(b"VALKEY");
    let file = if has_magic { data.to_vec() } else { [&b"REDIS0011"[..], data].concat() };
    let (policy, caller) = (Policy::default(), Caller { now_ms: 1_700_000_000_000, ..Caller::default() });
    STORE.with_borrow_mut(|(engine, worker)| {
        engine.exclusively(0, Environment::new(&policy, &caller), worker, |context| {
            let options = ReadOptions { checksum: false, known_versions: true };
            let Ok(mut reader) = Reader::open(file.as_slice(), options) else { return };
            let layout = context.layout();
            while let Ok(Some(item)) = reader.next(layout) {
                if let Item::Key { database, key, value: Some(value), expiry_ms, idle_seconds } = item {
                    let expiry_ms = expiry_ms.and_then(|at| u64::try_from(at).ok());
                    context.insert(database as usize % 16, &key, value, expiry_ms, idle_seconds.unwrap_or(0));
                }
            }
            context.flush(None, false);
        });
    });
});
