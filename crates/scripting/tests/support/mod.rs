//! A host for scripts that knows a few commands, and a thread for them that has the stack which scripts need.

#![allow(dead_code, reason = "each test binary uses a part")]

use dunlin_resp::{Protocol, ReplyBuffer, ReplyLimits, Value, ValueDecoder};
use dunlin_scripting::{LogLevel, Machine, ScriptHost, Sha};

/// Memory of a machine, in bytes.
pub const USED_BYTES_MAX: usize = 16 << 20;

/// Questions after which a script is ended: they come every 10,000 instructions.
const QUESTIONS_MAX: u32 = 1_000;

const LIMITS: ReplyLimits =
    ReplyLimits { bulk_bytes_max: 1 << 30, elements_max: 1 << 30, depth_max: 1 << 20 };

/// Knows `ECHO`, `COUNT` (of its words), `FAIL`, and `NEST depth`, which answers nested arrays.
#[derive(Default)]
pub struct Host {
    pub questions: u32,
    /// The answer to all questions from the first one on, if there is one.
    pub end_with: Option<&'static str>,
}

impl ScriptHost for Host {
    fn call(&mut self, words: &[&[u8]], reply: &mut ReplyBuffer) {
        match words {
            [b"echo", word] => reply.bulk(word),
            [b"count", ..] => reply.integer(words.len() as i64),
            [b"nest", depth] => {
                let depth: usize = std::str::from_utf8(depth).unwrap().parse().unwrap();
                (0..depth).for_each(|_| reply.array(1));
                reply.integer(1);
            }
            _ => reply.error("ERR no such command"),
        }
    }

    fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
        Some(true)
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn set_replication(&mut self, _: u8) {}

    fn interrupted(&mut self) -> Option<&'static str> {
        self.questions += 1;
        self.end_with.or((self.questions > QUESTIONS_MAX).then_some("too long"))
    }
}

/// The reply to a script, or the line of its error.
pub fn run_in(machine: &mut Machine, host: &mut Host, script: &str) -> Result<Vec<u8>, String> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let sha = Sha::of(script.as_bytes());
    machine.load(sha, script.as_bytes()).map_err(|error| text(error.0))?;
    let mut reply = ReplyBuffer::default();
    reply.set_protocol(Protocol::Resp2);
    machine.run(&sha, &[b"key"], &[b"argument"], host, &mut reply).map_err(|line| {
        // Without where.
        let line = text(line);
        line.split_once(" script: ").map_or(line.clone(), |(line, _)| line.to_owned())
    })?;
    Ok(reply.chunks().collect::<Vec<_>>().concat())
}

/// [`run_in`] a machine of its own; what it leaves is good for another script.
pub fn run(script: &str) -> Result<Vec<u8>, String> {
    let script = script.to_owned();
    on_stack(move || {
        let mut machine = Machine::new(USED_BYTES_MAX);
        let result = run_in(&mut machine, &mut Host::default(), &script);
        let after = run_in(&mut machine, &mut Host::default(), "return redis.call('echo', 'well')");
        assert_eq!(after.as_deref(), Ok(&b"$4\r\nwell\r\n"[..]), "after {script}");
        result
    })
}

/// The reply, decoded.
pub fn value(script: &str) -> Value {
    let bytes = run(script).unwrap_or_else(|error| panic!("{script}: {error}"));
    let (used, value) = ValueDecoder::new(LIMITS).decode(&bytes).expect("a reply");
    assert_eq!(used, bytes.len(), "{script}: one whole reply");
    value.expect("whole")
}

/// The text of the error that a script ends in.
pub fn error(script: &str) -> String {
    match run(script) {
        Err(error) => error,
        Ok(reply) => panic!("{script} answered {}", reply.escape_ascii()),
    }
}

/// Runs on a thread with a quarter of the stack that scripts are promised: the limits are well inside it.
pub fn on_stack<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let thread = std::thread::Builder::new().stack_size(dunlin_scripting::STACK_BYTES / 4);
    match thread.spawn(work).expect("a thread").join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
