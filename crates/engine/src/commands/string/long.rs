//! Tests of strings in chunks: every command on strings beside a plain vector. Chunks are small here, see
//! `value/string.rs`.

use std::sync::Arc;

use dunlin_resp::Protocol;
use dunlin_structures::{GrowingBlock, bits};
use proptest::{collection::vec, prelude::*};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    LONG_WORD_BYTES_MIN, LongWord, LongWords,
    transcript::Scenario,
    value::{BLOCK_BYTES_MAX, StringRope},
    write_command,
};

const CHUNK_BYTES: usize = StringRope::CHUNK_BYTES;
const LENGTH_MAX: usize = 2 * BLOCK_BYTES_MAX;

impl Scenario {
    fn say(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let (mut request, table) = (Vec::new(), Arc::clone(&self.table));
        write_command(&mut request, words);
        self.reply_to(&table, &request, Protocol::Resp2)
    }

    /// Says a command with long words in blocks of their own, as they come from the network.
    fn say_lent(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let long = |word: &&&[u8]| word.len() >= LONG_WORD_BYTES_MIN;
        let lent: Vec<Arc<LongWord>> = words.iter().filter(long).map(|word| Arc::new(lend(word))).collect();
        let mut blocks = lent.iter();
        let words: Vec<&[u8]> = words
            .iter()
            .map(|word| if long(&word) { blocks.next().expect("one for each").bytes() } else { word })
            .collect();
        self.worker.propagation.long_words = lent.iter().cloned().collect();
        let table = Arc::clone(&self.table);
        let reply = self.reply_to_words(&table, &words, &[], Protocol::Resp2);
        self.worker.propagation.long_words = LongWords::default();
        reply
    }

    fn integer(&mut self, words: &[&[u8]]) -> i64 {
        let reply = String::from_utf8(self.say(words)).unwrap();
        reply.strip_prefix(':').unwrap_or_else(|| panic!("{reply}")).trim_end().parse().unwrap()
    }
}

fn lend(bytes: &[u8]) -> LongWord {
    let mut block = GrowingBlock::new(bytes.len());
    block.append(bytes);
    block.into()
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

#[derive(Debug, Clone)]
enum Step {
    Set(Vec<u8>),
    Append(Vec<u8>),
    SetRange(usize, Vec<u8>),
    SetBit(usize, bool),
    SetField(usize, u32, u16),
    /// Makes another key share the value.
    Copy,
    /// Combines the value with that of the other key.
    Xor,
    /// Dumps the value and restores it.
    Restore(bool),
}

/// Lengths on both sides of the places where chunks meet.
fn place() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..LENGTH_MAX,
        (0..LENGTH_MAX / CHUNK_BYTES, 0..10usize)
            .prop_map(|(chunk, near)| (chunk * CHUNK_BYTES + near).saturating_sub(5)),
    ]
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let texts = prop_oneof![4 => 1..20usize, 1 => 1..2 * CHUNK_BYTES, 1 => Just(CHUNK_BYTES), 1 => Just(BLOCK_BYTES_MAX + 1), 1 => BLOCK_BYTES_MAX..LENGTH_MAX];
    (texts, any::<u8>(), 1..7u8).prop_map(|(length, first, step)| {
        (0..length).map(|at| first.wrapping_add(step.wrapping_mul(at as u8))).collect()
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => text().prop_map(Step::Set),
        4 => text().prop_map(Step::Append),
        4 => (place(), text()).prop_map(|(at, text)| Step::SetRange(at, text)),
        3 => (place(), any::<bool>()).prop_map(|(at, bit)| Step::SetBit(8 * at + at % 8, bit)),
        3 => (place(), 1..=63u32, any::<u16>()).prop_map(|(at, width, value)| Step::SetField(8 * at + at % 7, width, value)),
        2 => Just(Step::Copy),
        1 => Just(Step::Xor),
        1 => any::<bool>().prop_map(Step::Restore),
    ]
}

fn grow(model: &mut Vec<u8>, length: usize) {
    model.resize(model.len().max(length), 0);
}

/// Makes the step's changes in a vector.
fn apply(model: &mut Vec<u8>, other: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Set(text) => model.clone_from(text),
        Step::Append(text) => model.extend_from_slice(text),
        Step::SetRange(at, text) => {
            grow(model, at + text.len());
            model[*at..at + text.len()].copy_from_slice(text);
        }
        Step::SetBit(at, bit) => {
            grow(model, at / 8 + 1);
            bits::set_bit(model, *at as u64, *bit);
        }
        Step::SetField(at, width, value) => {
            grow(model, (at + *width as usize).div_ceil(8));
            bits::write_field(model, *at as u64, *width, u64::from(*value));
        }
        Step::Copy => other.clone_from(model),
        Step::Xor => {
            grow(model, other.len());
            model.iter_mut().zip(&*other).for_each(|(mine, other)| *mine ^= other);
        }
        Step::Restore(_) => {}
    }
}

/// Makes a store take a step; whether its long words come in blocks of their own is to make no difference.
fn play(scenario: &mut Scenario, step: &Step, lends: bool) {
    let mut say = |words: &[&[u8]]| if lends { scenario.say_lent(words) } else { scenario.say(words) };
    match step {
        Step::Set(text) => drop(say(&[b"SET", b"k", text])),
        Step::Append(text) => drop(say(&[b"APPEND", b"k", text])),
        Step::SetRange(at, text) => drop(say(&[b"SETRANGE", b"k", at.to_string().as_bytes(), text])),
        Step::SetBit(at, bit) => {
            let bit = if *bit { b"1" } else { b"0" };
            drop(scenario.say(&[b"SETBIT", b"k", at.to_string().as_bytes(), bit]));
        }
        Step::SetField(at, width, value) => {
            let (at, field, value) = (at.to_string(), format!("u{width}"), value.to_string());
            let words: [&[u8]; 6] =
                [b"BITFIELD", b"k", b"SET", field.as_bytes(), at.as_bytes(), value.as_bytes()];
            drop(scenario.say(&words));
        }
        Step::Copy => drop(scenario.say(&[b"COPY", b"k", b"other", b"REPLACE"])),
        Step::Xor => drop(scenario.say(&[b"BITOP", b"XOR", b"k", b"k", b"other"])),
        Step::Restore(compress) => {
            scenario.policy.compress_dumps = *compress;
            let dump = scenario.say(&[b"DUMP", b"k"]);
            if let Some(start) = dump.windows(2).position(|two| two == b"\r\n").filter(|_| dump != b"$-1\r\n")
            {
                let words: [&[u8]; 5] =
                    [b"RESTORE", b"k", b"0", &dump[start + 2..dump.len() - 2], b"REPLACE"];
                if lends {
                    scenario.say_lent(&words)
                } else {
                    scenario.say(&words)
                };
            }
        }
    }
}

fn check(scenario: &mut Scenario, key: &[u8], model: &[u8], (from, to): (usize, usize)) {
    if model.is_empty() {
        assert_eq!(scenario.say(&[b"GET", key]), b"$-1\r\n");
        return;
    }
    let get = scenario.say(&[b"GET", key]);
    assert!(get == bulk(model), "{} bytes, not {}", get.len(), model.len());
    assert_eq!(scenario.integer(&[b"STRLEN", key]), model.len() as i64);
    let range = model.get(from..(to + 1).min(model.len())).unwrap_or_default();
    let (start, end) = (from.to_string(), to.to_string());
    let (start, end) = (start.as_bytes(), end.as_bytes());
    assert!(scenario.say(&[b"GETRANGE", key, start, end]) == bulk(range), "GETRANGE {from} {to}");
    let ones = |bytes: &[u8]| bits::count_ones(bytes) as i64;
    assert_eq!(scenario.integer(&[b"BITCOUNT", key]), ones(model));
    assert_eq!(scenario.integer(&[b"BITCOUNT", key, start, end]), ones(range));
    let in_bits = bits::count_ones_in(model, from as u64..to as u64 + 1) as i64;
    assert_eq!(scenario.integer(&[b"BITCOUNT", key, start, end, b"BIT"]), in_bits);
    for (word, bit) in [(b"0", false), (b"1", true)] {
        let found = bits::find_bit(model, from as u64..to as u64 + 1, bit).map_or(-1, |at| at as i64);
        assert_eq!(scenario.integer(&[b"BITPOS", key, word, start, end, b"BIT"]), found);
    }
    assert_eq!(scenario.integer(&[b"GETBIT", key, start]), bits::bit(model, from as u64).into());
    let field = scenario.say(&[b"BITFIELD_RO", key, b"GET", b"u63", end]);
    assert_eq!(field, format!("*1\r\n:{}\r\n", bits::read_field(model, to as u64, 63)).as_bytes());
    let digest = format!("{:016x}", xxh3_64(model));
    assert_eq!(scenario.say(&[b"DIGEST", key]), bulk(digest.as_bytes()));
    assert_eq!(scenario.integer(&[b"DELIFEQ", key, &[model, b"x"].concat()]), 0);
    let keyspace = &scenario.engine.keyspace;
    assert_eq!(keyspace.used_bytes(), keyspace.usage(None).bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn commands_on_chunks_are_commands_on_bytes(steps in vec((step(), any::<bool>()), 1..15), from in place(), to in place()) {
        let (mut scenario, mut model, mut other) = (Scenario::new(), Vec::new(), Vec::new());
        for (step, lends) in &steps {
            play(&mut scenario, step, *lends);
            apply(&mut model, &mut other, step);
            check(&mut scenario, b"k", &model, (from.min(to), from.max(to)));
            if matches!(step, Step::Xor) && model.is_empty() {
                break;
            }
        }
        check(&mut scenario, b"other", &other, (from.min(to), from.max(to)));
        for (key, text) in [(&b"k"[..], &model), (b"other", &other)] {
            if !text.is_empty() {
                prop_assert!(scenario.say(&[b"GETDEL", key]) == bulk(text));
            }
        }
        prop_assert_eq!(scenario.engine.keyspace.usage(None).heap_bytes, 0);
    }
}

#[test]
fn long_string_is_no_number_and_no_hyperloglog() {
    let mut scenario = Scenario::new();
    let length = BLOCK_BYTES_MAX + 1;
    scenario.play(&format!(
        "
        > SETRANGE k {} x
        :{length}
        > INCR k
        -ERR value is not an integer or out of range
        > INCRBYFLOAT k 1
        -ERR value is not a valid float
        > PFCOUNT k
        -WRONGTYPE Key is not a valid HyperLogLog string value.
        > PFADD k a
        -WRONGTYPE Key is not a valid HyperLogLog string value.
        > PFADD sketch a b
        :1
        > SETRANGE sketch {} x
        :{length}
        > PFCOUNT sketch
        -INVALIDOBJ Corrupted HLL object detected
        > PFMERGE to sketch
        -INVALIDOBJ Corrupted HLL object detected
        > OBJECT ENCODING k
        $3 raw
        > SET k 7
        +OK
        > INCR k
        :8
        ",
        length - 1,
        length - 1,
    ));
}

#[test]
fn setrange_takes_no_memory_for_unwritten_bytes() {
    let mut scenario = Scenario::new();
    scenario.play(
        "> SETRANGE k 536870911 x\n:536870912\n> SETBIT bits 4294967295 1\n:0\n> STRLEN bits\n:536870912",
    );
    let bytes = scenario.engine.keyspace.usage(None).heap_bytes;
    // A pointer for each chunk.
    assert!(bytes < 2 * (536_870_912 / CHUNK_BYTES) * 16, "{bytes}");
    scenario.play("> BITCOUNT bits\n:1\n> BITPOS bits 1\n:4294967295");
    assert_eq!(scenario.reply("GETRANGE k 536870909 -1", Protocol::Resp2), bulk(b"\0\0x"));
}

#[test]
fn records_share_what_was_stored() {
    let long = |byte: u8| vec![byte; BLOCK_BYTES_MAX + 1];
    let (a, b) = (long(b'a'), long(b'b'));
    let (a_text, b_text) = (String::from_utf8(a.clone()).unwrap(), String::from_utf8(b.clone()).unwrap());
    let (mut scenario, records) = Scenario::recorded();
    let rows: [(&[&[u8]], String); 7] = [
        (&[b"SET", b"k", &a], format!("SET k {a_text}")),
        (&[b"SET", b"k", &b, b"PX", b"10"], format!("SET k {b_text} PXAT 1700000000010")),
        (&[b"GETSET", b"k", &a], format!("SET k {a_text}")),
        (&[b"SETNX", b"new", &b], format!("SETNX new {b_text}")),
        (&[b"MSET", b"k", &b, b"l", &a], format!("MSET k {b_text} l {a_text}")),
        (
            &[b"MSETEX", b"2", b"k", &a, b"l", &b, b"PXAT", b"1700000000010"],
            format!("MULTI; SET k {a_text} PXAT 1700000000010; SET l {b_text} PXAT 1700000000010; EXEC"),
        ),
        (&[b"SET", b"k", &a, b"IFEQ", &a], format!("SET k {a_text}")),
    ];
    for (number, (words, expected)) in rows.into_iter().enumerate() {
        scenario.say(words);
        assert!(records.take() == [expected], "row {number}");
        assert_eq!(records.shared(), number + 1);
    }
    // The words of the next command may take the place of this one's.
    scenario.say(&[b"APPEND", b"k", &b]);
    assert!(records.take() == [format!("APPEND k {b_text}")]);
    scenario.database = 3;
    scenario.say(&[b"SET", b"k", &a]);
    assert!(records.take() == [format!("SELECT 3; SET k {a_text}; SELECT 0")]);
    assert_eq!(records.shared(), 8);
}

#[test]
fn records_share_words_that_arrived_in_blocks() {
    let long = |byte: u8| vec![byte; BLOCK_BYTES_MAX + 1];
    let (a, b) = (long(b'a'), long(b'b'));
    let (a_text, b_text) = (String::from_utf8(a.clone()).unwrap(), String::from_utf8(b.clone()).unwrap());
    let (mut scenario, records) = Scenario::recorded();
    let rows: [(&[&[u8]], String); 7] = [
        (&[b"APPEND", b"k", &a], format!("APPEND k {a_text}")),
        (&[b"APPEND", b"k", &b], format!("APPEND k {b_text}")),
        (&[b"SETRANGE", b"k", b"5", &a], format!("SETRANGE k 5 {a_text}")),
        (&[b"SET", b"k", &b, b"EX", b"10"], format!("SET k {b_text} PXAT 1700000010000")),
        (&[b"MSET", b"k", &a, b"l", &b], format!("MSET k {a_text} l {b_text}")),
        (&[b"RPUSH", b"list", &a, b"x"], format!("RPUSH list {a_text} x")),
        (&[b"SET", &b, b"v"], format!("SET {b_text} v")),
    ];
    for (number, (words, expected)) in rows.into_iter().enumerate() {
        scenario.say_lent(words);
        assert!(records.take() == [expected], "row {number}");
        assert_eq!(records.shared(), number + 1);
    }
}

#[test]
fn set_uses_the_block_of_a_long_argument() {
    let mut scenario = Scenario::new();
    let word = Arc::new(lend(&vec![b'a'; 3 * BLOCK_BYTES_MAX]));
    let mut say = |name: &[u8], first: &[u8], rest: &[&[u8]]| {
        scenario.worker.propagation.long_words = [Arc::clone(&word)].into_iter().collect();
        let (words, table) = ([&[name, first], rest].concat(), Arc::clone(&scenario.table));
        let reply = scenario.reply_to_words(&table, &words, &[], Protocol::Resp2);
        scenario.worker.propagation.long_words = LongWords::default();
        reply
    };
    assert!(word.is_last());
    say(b"SET", b"k", &[word.bytes()]);
    assert!(!word.is_last(), "the key has its bytes");
    // As long as the word is in use, a change of the string is not one of the word.
    say(b"SETRANGE", b"k", &[b"7", b"bbb"]);
    assert!(word.bytes().iter().all(|byte| *byte == b'a'));
    assert_eq!(say(b"GETRANGE", b"k", &[b"6", b"10"]), b"$5\r\nabbba\r\n");
    say(b"DEL", b"k", &[]);
    scenario.worker.garbage.take();
    assert!(word.is_last());
}
