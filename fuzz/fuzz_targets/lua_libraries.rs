//! Any bytes through the libraries of scripts: they answer or raise, and what they have read they write again.
//!
//! ```text
//! input: which script │ length of the format │ format │ data
//! ```

#![no_main]

use std::cell::RefCell;

use dunlin_resp::{Protocol, ReplyBuffer};
use dunlin_scripting::{LogLevel, Machine, ScriptHost, Sha};
use libfuzzer_sys::fuzz_target;

/// What is done with the format and the data. A script that raises `broken` has found a bug.
const SCRIPTS: &[&str] = &[
    "local value = cjson.decode(ARGV[2])
     local ok, text = pcall(cjson.encode, value)
     if ok then
         local again = cjson.encode(cjson.decode(text))
         -- Tables have no order of their own.
         if #again ~= #text then error('broken ' .. text .. ' ' .. again) end
     end",
    "cjson.decode_max_depth(20) cjson.encode_sparse_array(true, 1, 1) cjson.encode_invalid_numbers(true)
     return cjson.encode(cjson.decode(ARGV[2]))",
    "return cjson.encode({ARGV[1], ARGV[2], {[ARGV[1]] = ARGV[2]}})",
    "local values, count = {cmsgpack.unpack(ARGV[2])}, select('#', cmsgpack.unpack(ARGV[2]))
     local packed = cmsgpack.pack(unpack(values, 1, count))
     if select('#', cmsgpack.unpack(packed)) ~= count then error('broken') end",
    "local at, value = cmsgpack.unpack_one(ARGV[2], #ARGV[1]) return {at, cmsgpack.pack(value)}",
    "return {cmsgpack.unpack_limit(ARGV[2], #ARGV[1], tonumber(ARGV[1]) or 0)}",
    "return {struct.unpack(ARGV[1], ARGV[2])}",
    "return {struct.unpack(ARGV[1], ARGV[2], #ARGV[1])}",
    "local n = tonumber(ARGV[2]) or #ARGV[2]
     local packed = struct.pack(ARGV[1], n, ARGV[2], n, n, ARGV[2], n, n, n)
     local ok, size = pcall(struct.size, ARGV[1])
     if ok and size ~= #packed then error('broken ' .. size .. ' ' .. #packed) end
     return {struct.unpack(ARGV[1], packed)}",
    "local a, b = tonumber(ARGV[1]) or 0, tonumber(ARGV[2]) or #ARGV[2]
     return {bit.tobit(a), bit.tohex(a, b), bit.rol(a, b), bit.ror(b, a), bit.arshift(a, b), bit.bswap(b), bit.bxor(a, b)}",
];

/// Bytes that a machine may take.
const USED_BYTES_MAX: usize = 16 << 20;

struct Host;

impl ScriptHost for Host {
    fn call(&mut self, _: &[&[u8]], reply: &mut ReplyBuffer) {
        reply.ok();
    }

    fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
        None
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn set_replication(&mut self, _: u8) {}

    fn interrupted(&mut self) -> Option<&'static str> {
        None
    }
}

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::new({
        let mut machine = Machine::new(USED_BYTES_MAX);
        for script in SCRIPTS {
            machine.load(Sha::of(script.as_bytes()), script.as_bytes()).expect("the scripts are right");
        }
        machine
    });
}

fuzz_target!(|data: &[u8]| {
    let [which, length, rest @ ..] = data else { return };
    let script = SCRIPTS[usize::from(*which) % SCRIPTS.len()];
    let (format, data) = rest.split_at(usize::from(*length).min(rest.len()));
    MACHINE.with_borrow_mut(|machine| {
        let mut reply = ReplyBuffer::default();
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            reply.set_protocol(protocol);
            let result =
                machine.run(&Sha::of(script.as_bytes()), &[], &[format, data], &mut Host, &mut reply);
            let error = result.err().unwrap_or_default();
            let error = String::from_utf8_lossy(&error);
            assert!(!error.contains(": broken"), "{error}");
        }
    });
});
