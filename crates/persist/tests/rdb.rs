//! Files as a whole: files that are written here or elsewhere are read, and broken ones are refused
//! with the place of the fault.

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

    /// The reply to a command of any bytes, or its error.
    fn try_run(&mut self, words: &[&[u8]]) -> Result<Vec<u8>, String> {
        let entry = self.table.find(words[0]).expect("a command");
        let request = Request { entry, words, keys: &[], encoded: &[] };
        let mut reply = ReplyBuffer::default();
        let mut inside = Some(self.engine.keyspace.enter(0));
        let (environment, worker) = (Environment::new(&self.policy, &self.caller), &mut self.worker);
        let result = self.engine.execute(&request, 0, environment, worker, &mut inside, &mut reply);
        match result {
            Ok(_) => Ok(reply.chunks().flatten().copied().collect()),
            Err(error) => Err(String::from_utf8_lossy(&error.line()).into_owned()),
        }
    }

    /// The payload of DUMP.
    fn dump(&mut self, key: &[u8]) -> Vec<u8> {
        let reply = self.try_run(&[b"DUMP", key]).unwrap();
        let head = reply.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        reply[head..reply.len() - 2].to_vec()
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

    /// Loads a file; returns its contents beside keys, in a line each.
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
fn rdb_loads_what_was_written() {
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
fn rdb_carries_everything_in_every_writable_version() {
    let mut store = filled();
    let digest = store.run(0, "DIGEST");
    for number in [9, 10, 11, 12, 13, 14, 15, 80] {
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
    assert_eq!([8, 16, 79, 81].map(Version::writable), [None; 4]);
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
fn rdb_version_is_as_new_as_its_content() {
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
fn rdb_cut_or_changed_anywhere_is_refused() {
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
fn rdb_of_old_and_new_servers_is_understood() {
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
        (&b"\x06\x01m\x00"[..], "at byte 12, in the value of key \"m\": the value is a module's in a form"),
        (
            b"\x63\x01k\x00",
            "at byte 12, in the value of key \"k\": there is no type of value with the number 99",
        ),
        (b"\x00\x01\xff\xc4", "at byte 13, in the value of key \"\\xff\": a string has no known form"),
        (b"\xf6\x01x", "at byte 10: the file holds functions as release candidates"),
        (b"\xfe\xc0\x01", "at byte 11: the mark of a string stands for a length"),
        (b"\x02\x01s\x02\x01a\x01a", "in the value of key \"s\": a set has a member twice"),
    ] {
        let error = Store::new().load(&file(b"REDIS0011", &[parts])).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    for (magic, expected) in [
        (
            b"REDIS0016",
            "the file begins with \"REDIS0016\", a version that is not known (known are REDIS0001 to REDIS0015, VALKEY080 to VALKEY081): rdb-version-check relaxed reads it as far as it holds what is known; otherwise a newer Dunlin does",
        ),
        (b"VALKEY011", "a version that is not known"),
        (b"RADIS0011", "does not begin like an RDB file"),
    ] {
        let error = Store::new().load(&file(magic, &[])).unwrap_err().to_string();
        assert!(error.starts_with("at byte 9: ") && error.contains(expected), "{error}");
    }
    let error = Store::new().load(&file(b"VALKEY080", &[b"\xf3\x01x"])).unwrap_err().to_string();
    assert!(error.contains("at byte 10: the file holds a cluster's slot"), "{error}");
    let relaxed = ReadOptions { known_versions: false, ..OPTIONS };
    Store::new().load_with(&file(b"REDIS0020", &[]), relaxed).unwrap();
    let error = Store::new().load_with(&file(b"REDIS0080", &[]), relaxed).unwrap_err().to_string();
    assert!(error.ends_with("VALKEY080 to VALKEY081): it is none of a future version either"), "{error}");
    // A file of a later version is read up to what it holds that is not known, and the key is named.
    let unknown = [b"\x00\x01a\x01v".as_slice(), b"\x40\x01b\x01v"].concat();
    let error = Store::new().load_with(&file(b"REDIS0016", &[&unknown]), relaxed).unwrap_err().to_string();
    assert!(error.contains("in the value of key \"b\""), "{error}");
}

#[test]
fn files_before_version_5_have_no_checksum() {
    let mut store = Store::new();
    store.load(b"REDIS0003\xfe\x00\x00\x01a\x01v\xff").unwrap();
    assert_eq!(store.run(0, "GET a"), "$1 v");
    Store::new().load(b"REDIS0005\xfe\x00\x00\x01a\x01v\xff").unwrap_err();
}

#[test]
fn rdb_type_number_means_what_its_line_of_versions_says() {
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

/// A listpack of a template's id and the values 1 and 2, as a string.
fn values(id: u8) -> Vec<u8> {
    [b"\x0d\x0d\0\0\0\x03\0".as_slice(), &[id], b"\x01\x01\x01\x02\x01\xff"].concat()
}

/// A listpack of the names `field1` and `field2`, as a string.
const NAMES: &[u8] = b"\x17\x17\0\0\0\x02\0\x86field1\x07\x86field2\x07\xff";
/// These names, counted.
const COUNTED: &[u8] = b"\x02\x06field1\x06field2";

#[test]
fn hashes_with_templates_become_ordinary_ones() {
    let mut store = Store::new();
    let far = b"\x81\xff\xff\xff\xff\xff\xff\xff\xff";
    let told = store.load(&file(
        b"REDIS0015",
        &[
            &[b"\xf2\x05", COUNTED].concat(),
            &[b"\xf2".as_slice(), far, b"\x03\x01z\x02aa\x02ab"].concat(),
            b"\xfe\0",
            &[b"\x1e\x02k1".as_slice(), &values(5)].concat(),
            &[b"\x20\x02k2\x05\xc0\x07\x01v".as_slice()].concat(),
            &[b"\x1d\x02k3\x00".as_slice(), NAMES, &values(77)].concat(),
            &[b"\x1f\x02k4\x01".as_slice(), COUNTED, b"\xc0\x01\xc0\x02"].concat(),
            &[b"\x20\x02k5".as_slice(), far, b"\x01x\x01y\x01z"].concat(),
        ],
    ));
    assert_eq!(told.unwrap(), Vec::<String>::new());
    for (line, expected) in [
        ("HGETALL k1", "*4 $6 field1 $1 1 $6 field2 $1 2"),
        ("HGETALL k2", "*4 $6 field1 $1 7 $6 field2 $1 v"),
        ("HMGET k3 field1 field2", "*2 $1 1 $1 2"),
        ("HMGET k4 field1 field2", "*2 $1 1 $1 2"),
        ("HMGET k5 z aa ab", "*3 $1 x $1 y $1 z"),
        ("OBJECT ENCODING k1", "$8 listpack"),
    ] {
        assert_eq!(store.run(0, line), expected, "{line}");
    }
}

#[test]
fn templates_that_cannot_be_are_refused() {
    let defined = [b"\xf2\x05", COUNTED].concat();
    let with = |parts: &[&[u8]]| [&defined[..], &parts.concat()].concat();
    for (parts, expected) in [
        (with(&[b"\x1e\x01k", &values(6)]), "a template that the file does not have"),
        (with(&[b"\x20\x01k\x04\x01a\x01b"]), "a template that the file does not have"),
        (with(&[&defined]), "two templates have the same id"),
        (with(&[b"\x1e\x01k\x0b\x0b\0\0\0\x02\0\x05\x01\x01\x01\xff"]), "another number of values"),
        (with(&[b"\x1e\x01k\x07\x07\0\0\0\0\0\xff"]), "do not begin with the id"),
        (with(&[b"\x1e\x01k\x0e\x0e\0\0\0\x03\0\x81x\x02\x01\x01\x02\x01\xff"]), "do not begin with the id"),
        (b"\xf2\x01\x00".to_vec(), "a template has no fields"),
        (b"\xf2\x01\x02\x01b\x01a".to_vec(), "the fields of a template do not ascend"),
        (b"\xf2\x01\x02\x02aa\x01b".to_vec(), "the fields of a template do not ascend"),
        (b"\xf2\x01\x02\x01a\x01a".to_vec(), "the fields of a template do not ascend"),
        (b"\xf2\x01\x80\xff\xff\xff\xff\x01a".to_vec(), "the data ends too early"),
        (b"\x1f\x01k\x02\x01\x01a\x01b".to_vec(), "the fields of a template have no known form"),
    ] {
        let bytes = [b"REDIS0015".as_slice(), &parts, &[]].concat();
        let error = Store::new().load(&bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} in place of {expected}");
    }
    // In Valkey's versions these numbers mean nothing yet.
    let error = Store::new().load(&file(b"VALKEY080", &[&defined])).unwrap_err().to_string();
    assert!(error.contains("there is no type of value with the number 242"), "{error}");
}

/// HIMPORT of Redis 8.10 sends such a dump to replicas: the checksum is left out.
#[test]
fn restore_takes_dumps_without_a_checksum() {
    let footer = b"\x0f\0\0\0\0\0\0\0\0\0";
    let whole = [b"\x1d\x00".as_slice(), NAMES, &values(0), footer].concat();
    let mut store = Store::new();
    assert_eq!(store.try_run(&[b"RESTORE", b"k", b"0", &whole]).unwrap(), b"+OK\r\n");
    assert_eq!(store.run(0, "HMGET k field1 field2"), "*2 $1 1 $1 2");
    for refused in [
        [b"\x1e".as_slice(), &values(0), footer].concat(),
        [b"\x20\x05\xc0\x01\xc0\x02".as_slice(), footer].concat(),
        [b"\x1d\x00\x07\x07\0\0\0\0\0\xff".as_slice(), &values(0), footer].concat(),
        [b"\x1f\x01\x00".as_slice(), footer].concat(),
    ] {
        assert_eq!(
            store.try_run(&[b"RESTORE", b"other", b"0", &refused]).unwrap_err(),
            "ERR Bad data format"
        );
    }
    // A checksum that is there has to be right.
    let mut wrong = whole.clone();
    *wrong.last_mut().unwrap() = 1;
    let error = store.try_run(&[b"RESTORE", b"other", b"0", &wrong]).unwrap_err();
    assert_eq!(error, "ERR DUMP payload version or checksum are wrong");
    // Metadata of modules stands before the type.
    let marked = [b"\xf3\x01ABCD\x02\x07\x05\x01x\x00\x00\x01v".as_slice(), footer].concat();
    assert_eq!(store.try_run(&[b"RESTORE", b"marked", b"0", &marked]).unwrap(), b"+OK\r\n");
    assert_eq!(store.run(0, "GET marked"), "$1 v");
}

#[test]
fn metadata_of_modules_is_passed_over() {
    let mut store = Store::new();
    let parts: [&[u8]; 2] = [b"\xf3\x02ABCD\x01\x05\x00EFGH\x04\0\0\0\0\0\0\0\0\x00", b"\x00\x01a\x01v"];
    store.load(&file(b"REDIS0013", &parts)).unwrap();
    assert_eq!(store.run(0, "GET a"), "$1 v");
    for broken in [&b"\xf3\x08"[..], b"\xf3\x01ABCD\x06", b"\xf3\x01AB"] {
        Store::new().load(&file(b"REDIS0013", &[broken])).unwrap_err();
    }
}

/// The id of a module's type.
fn module_id(name: &[u8; 9], encoding: u64) -> [u8; 9] {
    const CHARACTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let number = |byte: &u8| CHARACTERS.iter().position(|known| known == byte).unwrap() as u64;
    let id = name.iter().fold(0, |id, byte| id << 6 | number(byte)) << 10 | encoding;
    let mut bytes = [0x81; 9];
    bytes[1..].copy_from_slice(&id.to_be_bytes());
    bytes
}

/// Values of types that are not there are kept as they came, in files, dumps and copies; arrays are arrays.
#[test]
fn values_of_modules_pass_through() {
    let json = [module_id(b"ReJSON-RL", 3).as_slice(), b"\x05\x07{\"a\":1}\x00"].concat();
    let bloom = [
        module_id(b"MBbloom--", 4).as_slice(),
        b"\x02\x05\x01\x03\x04\0\0\0\0\0\0\xf0\x3f\x03\0\0\x80\x3f\x05\xc3\x05\x0a\x00a\xe0\x00\x00\x00",
    ]
    .concat();
    let loaded =
        b"\x04\x01\x05\x00\x00\x01x\x01\x01\x07\0\0\0\0\0\0\0\x02\x02\0\0\0\0\0\0\xf0\x3f\x40\x80\x03\x02yz";
    let mut store = Store::new();
    let told = store.load(&file(
        b"REDIS0014",
        &[
            &[b"\x07\x01j".as_slice(), &json].concat(),
            &[b"\xfc".as_slice(), &(NOW_MS + 9000).to_le_bytes(), b"\x07\x01b", &bloom].concat(),
            &[b"\x1c\x01a".as_slice(), loaded].concat(),
        ],
    ));
    assert_eq!(told.unwrap(), Vec::<String>::new());
    for (line, expected) in [
        ("TYPE j", "+ReJSON-RL"),
        ("TYPE b", "+MBbloom--"),
        ("TYPE a", "+array"),
        ("OBJECT ENCODING j", "$3 raw"),
        ("OBJECT ENCODING a", "$12 sliced-array"),
        ("ARSCAN a 0 1000", "*4 *2 :0 $1 x *2 :1 $1 7 *2 :2 $3 1.0 *2 :128 $2 yz"),
        ("ARNEXT a", ":6"),
        ("PTTL b", ":9000"),
        ("SCAN 0 TYPE rejson-rl", "*2 $1 0 *1 $1 j"),
        ("COPY j other", ":1"),
        ("RENAME other moved", "+OK"),
        ("SORT_RO nothing", "*0"),
    ] {
        assert_eq!(store.run(0, line), expected, "{line}");
    }
    for line in ["GET j", "HGETALL a", "INCR b", "LPUSH a x", "SORT j", "XADD j * a 1"] {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let error = store.try_run(&words).unwrap_err();
        assert_eq!(error, "WRONGTYPE Operation against a key holding the wrong kind of value", "{line}");
    }
    let dump = store.dump(b"moved");
    assert_eq!(dump[..dump.len() - 10], [b"\x07".as_slice(), &json].concat());
    assert_eq!(dump[dump.len() - 10..][..2], [10, 0]);
    let dump = store.dump(b"a");
    // Strings have one mark in ours.
    let array: Vec<u8> =
        loaded.iter().enumerate().map(|(at, byte)| if at == 4 { 3 } else { *byte }).collect();
    assert_eq!(dump[..dump.len() - 10], [b"\x1c".as_slice(), &array].concat());
    assert_eq!(dump[dump.len() - 10..][..2], [14, 0]);
    assert_eq!(store.try_run(&[b"RESTORE", b"again", b"0", &dump]).unwrap(), b"+OK\r\n");
    assert_eq!(store.dump(b"again"), dump);
    let digest = store.run(0, "DIGEST");
    for version in [9, 10, 12, 14, 15, 80] {
        let version = Version::writable(version).unwrap();
        let bytes = store.file_of(version, Form { version: Some(version), ..Form::rdb(true) }, true);
        let mut other = Store::new();
        other.load(&bytes).unwrap();
        assert_eq!(other.run(0, "DIGEST"), digest, "{version:?}");
        assert_eq!(other.dump(b"a"), dump);
        let contains = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert!(contains(&json) && contains(&bloom));
        assert_eq!(contains(b"\x1c\x01a\x04\x01"), matches!(version, Version::Redis(14..)));
    }
    assert!(store.file(Version::OLDEST, true, true).starts_with(b"REDIS0010"));
}

#[test]
fn values_of_modules_are_walked_over_with_care() {
    let id = module_id(b"ReJSON-RL", 3);
    for broken in [
        [b"\x07\x01j".as_slice(), &id, b"\x06\x00"].concat(),
        [b"\x07\x01j".as_slice(), &id, b"\x05\x80\xff\xff\xff\xffabc"].concat(),
        [b"\x07\x01j".as_slice(), &id, b"\x04\0\0"].concat(),
        b"\x1c\x01a\x01\x02\x00\x00\x01x".to_vec(),
        b"\x1c\x01a\x01\x00\x00\x04\x01x".to_vec(),
        b"\x1c\x01a\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x01x".to_vec(),
        [b"\x07\x01a".as_slice(), &module_id(b"dunlin-ar", 0), b"\x05\x02\x01\x00\x00"].concat(),
        [b"\x07\x01a".as_slice(), &module_id(b"dunlin-ar", 0), b"\x01\x02\x00"].concat(),
    ] {
        let bytes = [b"REDIS0015".as_slice(), &broken].concat();
        Store::new().load(&bytes).unwrap_err();
    }
    let told = Store::new().load(&file(b"REDIS0015", &[b"\x1c\x01a\x00\x00"])).unwrap();
    assert_eq!(told, ["empty a"]);
}

/// Deliveries that were released (XNACK) survive files of every version and dumps.
#[test]
fn released_deliveries_are_kept() {
    let mut store = Store::new();
    for line in [
        "XADD s 1 a 1",
        "XADD s 2 a 1",
        "XADD s 3 a 1",
        "XGROUP CREATE s g 0",
        "XGROUP CREATE s h 0",
        "XREADGROUP GROUP g ann STREAMS s >",
        "XNACK s g FATAL IDS 2 1 3",
    ] {
        store.run(0, line);
    }
    let pending = "*3 *4 $3 1-0 $0  :-1 :9223372036854775807 *4 $3 2-0 $3 ann :0 :1 *4 $3 3-0 $0  :-1 :9223372036854775807";
    assert_eq!(store.run(0, "XPENDING s g - + 9"), pending);
    for number in [9, 10, 12, 13, 14, 15, 80] {
        let version = Version::writable(number).unwrap();
        let bytes = store.file_of(version, Form { version: Some(version), ..Form::rdb(true) }, true);
        let mut other = Store::new();
        other.load(&bytes).unwrap();
        assert_eq!(other.run(0, "XPENDING s g - + 9"), pending, "version {number}");
        assert_eq!(other.run(0, "XPENDING s h - + 9"), "*0");
        let contains = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert_eq!(contains(b"\x1b\x01s"), (14..80).contains(&number));
    }
    let dump = store.dump(b"s");
    assert_eq!((dump[0], &dump[dump.len() - 10..][..2]), (27, &[14, 0][..]));
    assert_eq!(store.try_run(&[b"RESTORE", b"t", b"0", &dump]).unwrap(), b"+OK\r\n");
    assert_eq!(store.run(0, "XPENDING t g - + 9"), pending);
    assert_eq!(store.run(0, "XCLAIM t g ben 1000000 1 JUSTID"), "*1 $3 1-0");
}
