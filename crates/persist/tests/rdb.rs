//! Files as a whole: what is written is read, what was written elsewhere too, what is broken is refused
//! with its place.

use dunlin_engine::{
    Caller, Engine, Environment, Policy, Request, Worker,
    command::CommandTable,
    commands,
    keyspace::{Keyspace, Usage},
    rdb::{Compressor, Version},
    snapshot::{DatabaseSize, Form},
};
use dunlin_persist::rdb::{Item, ReadError, ReadOptions, Reader, Writer};
use dunlin_resp::ReplyBuffer;

const NOW_MS: u64 = 1_700_000_000_000;
const OPTIONS: ReadOptions = ReadOptions { checksum: true, known_versions: true };

/// A data set.
struct Store {
    engine: Engine,
    table: CommandTable,
    policy: Policy,
    caller: Caller,
    worker: Worker,
}

impl Store {
    fn new() -> Self {
        Self {
            engine: Engine::new(Keyspace::new(1, 1, 16, [1, 2, 3, 4])),
            table: CommandTable::new(commands::FAMILIES),
            policy: Policy { string_bytes_max: 512 << 20, ..Policy::default() },
            caller: Caller { now_ms: NOW_MS, ..Caller::default() },
            worker: Worker::new(0, 1),
        }
    }

    /// The reply to a command, its words parted by blanks.
    fn run(&mut self, database: usize, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let debug = CommandTable::new(&[commands::debug::COMMANDS]);
        // There is a DIGEST for clients, too.
        let table = if words[0] == b"DIGEST" { &debug } else { &self.table };
        let mut entry = table.find(words[0]).expect("a command");
        if !entry.subcommands.is_empty() {
            entry = table.find_subcommand(entry, words[1]).expect("a subcommand");
        }
        let request = Request { entry, words: &words, keys: &[], encoded: &[] };
        let mut reply = ReplyBuffer::default();
        let mut inside = Some(self.engine.keyspace.enter(0));
        let (environment, worker) = (Environment::new(&self.policy, &self.caller), &mut self.worker);
        self.engine.execute(&request, database, environment, worker, &mut inside, &mut reply).expect(line);
        let bytes: Vec<u8> = reply.chunks().flatten().copied().collect();
        String::from_utf8_lossy(&bytes).trim_end().replace("\r\n", " ")
    }

    fn file(&mut self, version: Version, compressed: bool, checksum: bool) -> Vec<u8> {
        self.file_of(version, Form::rdb(compressed), checksum)
    }

    fn file_of(&mut self, version: Version, form: Form, checksum: bool) -> Vec<u8> {
        let compressed = form.compress;
        let mut file = Vec::new();
        let (mut compressor, mut magic) = (Compressor::default(), None);
        self.engine.exclusively(
            0,
            Environment::new(&self.policy, &self.caller),
            &mut self.worker,
            |context| {
                let compressor = compressed.then_some(&mut compressor);
                let mut writer = Writer::begin(&mut file, version, compressor, checksum).unwrap();
                writer.aux("redis-ver", b"7.0.15").unwrap();
                writer.function(b"#!lua name=f\n").unwrap();
                for database in 0..context.databases() {
                    let Usage { keys, expiring, .. } = context.usage(database);
                    if keys > 0 {
                        writer.size(&DatabaseSize { database, keys, expiring }).unwrap();
                        context
                            .try_for_each_chunk(database, form, |chunk| writer.chunk(chunk, true))
                            .unwrap();
                    }
                }
                magic = writer.finish().unwrap();
            },
        );
        if let Some(magic) = magic {
            file[..magic.len()].copy_from_slice(&magic);
        }
        file
    }

    /// Loads a file; what it held beside keys, in a line each.
    fn load(&mut self, file: &[u8]) -> Result<Vec<String>, ReadError> {
        self.load_with(file, OPTIONS)
    }

    fn load_with(&mut self, file: &[u8], options: ReadOptions) -> Result<Vec<String>, ReadError> {
        let mut told = Vec::new();
        self.engine.exclusively(
            0,
            Environment::new(&self.policy, &self.caller),
            &mut self.worker,
            |context| {
                let mut reader = Reader::open(file, options)?;
                while let Some(item) = reader.next(context.layout())? {
                    match item {
                        Item::Aux { name, value } => {
                            told.push(format!("{} = {}", name.escape_ascii(), value.escape_ascii()));
                        }
                        Item::Function(code) => told.push(format!("function {}", code.escape_ascii())),
                        Item::ModuleAux(name) => told.push(format!("module {name}")),
                        Item::Key { key, value: None, .. } => {
                            told.push(format!("empty {}", key.escape_ascii()))
                        }
                        Item::Key { database, key, value: Some(value), expiry_ms, idle_seconds } => {
                            let expiry_ms = expiry_ms.map(|at| at as u64);
                            let idle_seconds = idle_seconds.unwrap_or(0);
                            let database = database as usize;
                            if database < context.databases() {
                                context.insert(database, &key, value, expiry_ms, idle_seconds);
                            }
                        }
                    }
                }
                Ok(told)
            },
        )
    }
}

/// A data set with something of everything.
fn filled() -> Store {
    let mut store = Store::new();
    let long = "abc".repeat(5000);
    for line in [
        "SET text hello",
        "SET number -70000",
        &format!("SET long {long}"),
        "SET expiring v PX 100000",
        "SADD integers 1 2 70000",
        "SADD small a b 3",
        "ZADD sorted -inf a 1 b 2.5 c",
        &format!("ZADD ranked 1 {long} 0.1 b"),
        "XADD stream 5-1 a 1 b text",
        "XADD stream 6-1 a 2 b text",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group consumer COUNT 1 STREAMS stream >",
        "HSET hash a 1 b two",
        &format!("HSET large a {long} b 2"),
        "RPUSH list a b 3",
        &format!("RPUSH blocks {long} b {long}"),
    ] {
        store.run(0, line);
    }
    store.run(3, "SET other database");
    store
}

#[test]
fn what_is_written_is_read() {
    let mut store = filled();
    let digest = store.run(0, "DIGEST");
    for compressed in [false, true] {
        for checksum in [false, true] {
            let file = store.file(Version::Redis(10), compressed, checksum);
            assert_eq!(file.ends_with(&[0; 8]), !checksum);
            let mut other = Store::new();
            let told = other.load(&file).unwrap();
            assert_eq!(told, ["redis-ver = 7.0.15", "function #!lua name=f\\n"]);
            assert_eq!(other.run(0, "DIGEST"), digest);
            assert_eq!(other.run(0, "PTTL expiring"), ":100000");
        }
    }
}

#[test]
fn deadlines_of_fields_need_a_file_of_valkey() {
    let mut store = Store::new();
    store.run(0, "HSETEX h PX 5000 FIELDS 2 a 1 b 2");
    store.run(0, "HSET h c 3");
    let file = store.file(Version::Valkey(80), true, true);
    assert!(file.starts_with(b"VALKEY080"));
    let mut other = Store::new();
    other.load(&file).unwrap();
    assert_eq!(other.run(0, "HPTTL h FIELDS 3 a b c"), "*3 :5000 :5000 :-1");
    assert_eq!(other.run(0, "DIGEST"), store.run(0, "DIGEST"));
}

#[test]
fn every_version_that_can_be_written_carries_everything() {
    let mut store = filled();
    let digest = store.run(0, "DIGEST");
    for number in [9, 10, 11, 12, 80] {
        let version = Version::writable(number).unwrap();
        for compress in [false, true] {
            let form = Form { version: Some(version), ..Form::rdb(compress) };
            let file = store.file_of(version, form, true);
            assert!(file.starts_with(&version.magic()));
            let mut other = Store::new();
            other.load(&file).unwrap();
            assert_eq!(other.run(0, "DIGEST"), digest, "version {number}");
        }
    }
    assert_eq!([8, 13, 79, 81].map(Version::writable), [None; 4]);
    store.run(0, "HSETEX h PX 5000 FIELDS 1 a 1");
    for number in [12, 80] {
        let version = Version::writable(number).unwrap();
        let file = store.file_of(version, Form { version: Some(version), ..Form::rdb(true) }, true);
        let mut other = Store::new();
        other.load(&file).unwrap();
        assert_eq!(other.run(0, "HPTTL h FIELDS 1 a"), "*1 :5000");
    }
}

#[test]
fn a_file_is_as_new_as_what_it_holds() {
    let mut store = Store::new();
    store.run(0, "SET k v");
    assert!(store.file(Version::OLDEST, true, true).starts_with(b"REDIS0010"));
    store.run(0, "HSETEX h PX 5000 FIELDS 1 a 1");
    for checksum in [true, false] {
        let file = store.file(Version::OLDEST, true, checksum);
        assert!(file.starts_with(b"VALKEY080"));
        let mut other = Store::new();
        other.load(&file).unwrap();
        assert_eq!(other.run(0, "DIGEST"), store.run(0, "DIGEST"));
    }
}

#[test]
fn a_file_that_is_cut_or_changed_anywhere_is_refused() {
    let file = filled().file(Version::Redis(10), true, true);
    for length in (0..file.len()).step_by(7).chain(file.len() - 9..file.len()) {
        let error = Store::new().load(&file[..length]).unwrap_err();
        assert!(error.offset <= length as u64, "{error}");
        assert!(error.to_string().contains("the data ends too early"), "{error}");
    }
    for at in 0..file.len() - 8 {
        let mut changed = file.clone();
        changed[at] ^= 0x10;
        Store::new().load(&changed).unwrap_err();
    }
    let mut changed = file.clone();
    let last = changed.len() - 1;
    changed[last] ^= 1;
    let error = Store::new().load(&changed).unwrap_err();
    assert!(error.to_string().contains("the checksum is wrong"), "{error}");
    let unchecked = ReadOptions { checksum: false, ..OPTIONS };
    Store::new().load_with(&changed, unchecked).unwrap();
}

/// A file of these parts, without a checksum.
fn file(magic: &[u8; 9], parts: &[&[u8]]) -> Vec<u8> {
    [magic.as_slice(), &parts.concat(), b"\xff", &[0; 8]].concat()
}

#[test]
fn everything_that_old_and_new_servers_write_is_understood() {
    let mut store = Store::new();
    let expiry_s = ((NOW_MS / 1000 + 7) as i32).to_le_bytes();
    let expiry_ms = (NOW_MS + 9000).to_le_bytes();
    let told = store.load(&file(
        b"REDIS0011",
        &[
            b"\xfa\x04lang\x03lua",
            // A module named AAAAAAAAA: a number of each kind and a string.
            b"\xf7\x00\x02\x02\x01\x05\x02\x06\x03\0\0\0\0\x04\0\0\0\0\0\0\0\0\x05\x01x\0",
            b"\xf5\x04code",
            b"\xfe\x02\xfb\x05\x02\xf4\x01\x05\x02",
            &[b"\xfd".as_slice(), &expiry_s, b"\x00\x01a\xc0\x05"].concat(),
            &[b"\xfc".as_slice(), &expiry_ms, b"\xf8\x40\x64\x00\x01b\x01v"].concat(),
            b"\xf9\x07\x00\x01c\xc3\x05\x0a\x00a\xe0\x00\x00",
            b"\x02\x01d\x00",
            b"\x09\x01e\x08\x01\x01f\x01\x01g?\xff",
        ],
    ));
    assert_eq!(told.unwrap(), ["lang = lua", "module AAAAAAAAA", "function code", "empty d"]);
    for (line, expected) in [
        ("GET a", "$1 5"),
        ("PTTL a", ":7000"),
        ("PTTL b", ":9000"),
        ("OBJECT IDLETIME b", ":100"),
        ("GET c", "$10 aaaaaaaaaa"),
        ("EXISTS d", ":0"),
        ("HGET e f", "$1 g"),
        ("DBSIZE", ":4"),
    ] {
        assert_eq!(store.run(2, line), expected, "{line}");
    }
}

#[test]
fn errors_tell_the_place_the_key_and_the_reason() {
    for (parts, expected) in [
        (&b"\x07\x01m\x00"[..], "at byte 12, in the value of key \"m\": the value belongs to a module"),
        (
            b"\x63\x01k\x00",
            "at byte 12, in the value of key \"k\": there is no type of value with the number 99",
        ),
        (b"\x00\x01\xff\xc4", "at byte 13, in the value of key \"\\xff\": a string has no known form"),
        (b"\xf6\x01x", "at byte 10: the file holds functions as release candidates"),
        (b"\xf3\x01x", "at byte 10: the file holds a cluster's slot"),
        (b"\xfe\xc0\x01", "at byte 11: the mark of a string stands for a length"),
        (b"\x02\x01s\x02\x01a\x01a", "in the value of key \"s\": a set has a member twice"),
    ] {
        let error = Store::new().load(&file(b"REDIS0011", &[parts])).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    for (magic, expected) in [
        (b"REDIS0099", "a version that is not known"),
        (b"VALKEY011", "a version that is not known"),
        (b"RADIS0011", "does not begin like an RDB file"),
    ] {
        let error = Store::new().load(&file(magic, &[])).unwrap_err().to_string();
        assert!(error.starts_with("at byte 9: ") && error.contains(expected), "{error}");
    }
    let relaxed = ReadOptions { known_versions: false, ..OPTIONS };
    Store::new().load_with(&file(b"REDIS0020", &[]), relaxed).unwrap();
}

#[test]
fn files_before_version_5_have_no_checksum() {
    let mut store = Store::new();
    store.load(b"REDIS0003\xfe\x00\x00\x01a\x01v\xff").unwrap();
    assert_eq!(store.run(0, "GET a"), "$1 v");
    Store::new().load(b"REDIS0005\xfe\x00\x00\x01a\x01v\xff").unwrap_err();
}

#[test]
fn a_type_number_means_what_its_line_of_versions_says() {
    let mut store = Store::new();
    let deadline = (NOW_MS + 5000).to_le_bytes();
    let field = [b"\x16\x01h\x01\x01a\x011".as_slice(), &deadline].concat();
    store.load(&file(b"VALKEY080", &[&field])).unwrap();
    assert_eq!(store.run(0, "HPTTL h FIELDS 1 a"), "*1 :5000");

    let mut store = Store::new();
    let time = [b"\x81".as_slice(), &(NOW_MS + 5000).to_be_bytes()].concat();
    let before = [b"\x16\x01h\x01".as_slice(), &time, b"\x01a\x011"].concat();
    let since = [b"\x18\x01i".as_slice(), &deadline, b"\x02\x02\x01a\x011\x00\x01b\x012"].concat();
    store.load(&file(b"REDIS0012", &[&before, &since])).unwrap();
    assert_eq!(store.run(0, "HPTTL h FIELDS 1 a"), "*1 :5000");
    assert_eq!(store.run(0, "HPTTL i FIELDS 2 a b"), "*2 :5001 :-1");
}
