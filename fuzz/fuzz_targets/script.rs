//! Any text as a script: it compiles or not, its proof reads what the compiler has made, and it runs within its limits.
//!
//! ```text
//! input: 0xff │ choices of a grammar: a program that compiles more often than not
//!        any other text as it is
//! ```

#![no_main]

#[path = "../src/lua_grammar.rs"]
mod lua_grammar;

use dunlin_resp::{ReplyBuffer, ReplyLimits, ValueDecoder};
use dunlin_scripting::{LogLevel, Machine, ScriptHost, Sha, Shebang, Word};
use libfuzzer_sys::fuzz_target;

/// Bytes that a machine may take.
const USED_BYTES_MAX: usize = 16 << 20;
/// Questions after which a script has run for long enough; it is asked every 10,000 instructions.
const QUESTIONS_MAX: u32 = 20;

const LIMITS: ReplyLimits =
    ReplyLimits { bulk_bytes_max: 1 << 26, elements_max: 1 << 24, depth_max: 1 << 10 };

/// The byte in front of an input that is not text: no text begins with it.
const GRAMMAR: u8 = 0xff;

/// A host that knows `GET key`, and `NEST depth` and `MANY count`, which answer arrays.
struct Host {
    questions: u32,
    /// Whether the proof has promised that no key but the declared one is read.
    keeps_to_declared: bool,
}

impl ScriptHost for Host {
    fn call(&mut self, words: &[&[u8]], reply: &mut ReplyBuffer) {
        match words {
            [name, key] if name.eq_ignore_ascii_case(b"get") => {
                assert!(!self.keeps_to_declared || *key == b"declared", "a wrong proof");
                reply.bulk(key);
            }
            [b"nest", depth, ..] => {
                let depth =
                    std::str::from_utf8(depth).ok().and_then(|depth| depth.parse().ok()).unwrap_or(0_u8);
                (0..depth).for_each(|_| reply.array(1));
                reply.integer(1);
            }
            [b"many", ..] => {
                reply.array(500);
                (0..500).for_each(|nth| reply.integer(nth));
            }
            _ => reply.error(b"ERR unknown"),
        }
    }

    fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
        Some(true)
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn set_replication(&mut self, _: u8) {}

    fn interrupted(&mut self) -> Option<&'static str> {
        self.questions += 1;
        (self.questions > QUESTIONS_MAX).then_some("too long")
    }
}

fn judge(words: &[Word<'_>], list: Option<Word<'_>>) -> bool {
    match words {
        [Word::Text(name), key] if name.eq_ignore_ascii_case(b"get") => {
            *key == Word::Declared && list.is_none()
        }
        [Word::Text(name), ..] => !name.eq_ignore_ascii_case(b"get"),
        _ => false,
    }
}

fuzz_target!(|data: &[u8]| {
    let made = match data {
        [GRAMMAR, choices @ ..] => lua_grammar::program(choices).into_bytes(),
        text => text.to_vec(),
    };
    // The limits hold on a quarter of the stack that scripts are promised; sanitizers take several times as much.
    let thread = std::thread::Builder::new().stack_size(dunlin_scripting::STACK_BYTES);
    let run = thread.spawn(move || run(&made)).expect("a thread").join();
    run.expect("no panic");
});

fn run(data: &[u8]) {
    let Ok(Shebang { text, .. }) = Shebang::parse(data) else { return };
    let mut machine = Machine::new(USED_BYTES_MAX);
    let sha = Sha::of(text);
    if machine.load(sha, text).is_err() {
        return;
    }
    let mut host = Host { questions: 0, keeps_to_declared: machine.proves(&sha, &judge) };
    let mut reply = ReplyBuffer::default();
    if machine.run(&sha, &[b"declared"], &[b"other"], &mut host, &mut reply).is_ok() {
        let bytes = reply.chunks().collect::<Vec<_>>().concat();
        let decoded = ValueDecoder::new(LIMITS).decode(&bytes);
        let is_whole = matches!(&decoded, Ok((used, Some(_))) if *used == bytes.len());
        assert!(is_whole, "{decoded:?}: {}", bytes.escape_ascii());
    }
}
