use super::*;
use crate::{Machine, Sha};

/// Accepts `get KEY`, `set KEY …` and `del KEY…`.
fn key_access(words: &[Word<'_>], list: Option<Word<'_>>) -> bool {
    match words {
        [Word::Text(b"get" | b"set"), Word::Declared, ..] => true,
        [Word::Text(b"get" | b"set")] => list == Some(Word::Declared),
        [Word::Text(b"del"), keys @ ..] => {
            keys.iter().all(|key| *key == Word::Declared) && list.is_none_or(|list| list == Word::Declared)
        }
        _ => false,
    }
}

fn proves(script: &str) -> bool {
    let mut machine = Machine::new(1 << 24);
    let sha = Sha::of(script.as_bytes());
    machine.load(sha, script.as_bytes()).unwrap();
    machine.proves(&sha, &key_access)
}

#[test]
fn scripts_that_keep_to_their_keys() {
    for script in [
        "return 1",
        "return redis.call('get', KEYS[1])",
        "redis.call('set', KEYS[1], ARGV[1]) return redis.call('get', KEYS[1])",
        "local key = KEYS[1] local value = redis.call('get', key) if value then redis.call('set', key, value + 1) end",
        "for i = 1, #KEYS do redis.call('set', KEYS[i], i) end",
        "for i, key in ipairs(KEYS) do redis.call('set', key, i) end",
        "return redis.call('del', unpack(KEYS))",
        "local call = redis.call return call('get', KEYS[2])",
        "local call, key = redis.pcall, KEYS[1] local function read() return call('get', key) end return read()",
        "local function twice(n) return n * 2 end return redis.call('set', KEYS[1], twice(ARGV[1]))",
        "local t = {} for i = 1, 10 do t[#t + 1] = redis.call('get', KEYS[1]) end return t",
        "return server.call('get', KEYS[1])",
        "local sum = 0 for i = 1, 1000 do sum = sum + i end return cjson.encode({sum, KEYS[1]})",
        "local key if ARGV[1] == 'x' then key = KEYS[1] else key = KEYS[2] end return redis.call('get', key)",
        "local n = 0 local function add() n = n + 1 end add() add() return redis.call('set', KEYS[1], n)",
    ] {
        assert!(proves(script), "{script}");
    }
}

#[test]
fn scripts_of_which_it_is_not_known() {
    for script in [
        "return redis.call('get', ARGV[1])",
        "return redis.call('get', 'fixed')",
        "return redis.call('get', KEYS[1] .. ':x')",
        "return redis.call(ARGV[1], KEYS[1])",
        "return redis.call('keys', '*')",
        "local key = KEYS[1] if ARGV[1] then key = ARGV[1] end return redis.call('get', key)",
        "KEYS[1] = ARGV[1] return redis.call('get', KEYS[1])",
        "local keys = KEYS keys[1] = 'x' return redis.call('get', KEYS[1])",
        "table.insert(KEYS, 1, 'x') return redis.call('get', KEYS[1])",
        "local t = {KEYS} t[1][1] = 'x' return redis.call('get', KEYS[1])",
        "local t = {redis.call} return t[1]('get', 'x')",
        "local r = {redis} return r[1].call('get', 'x')",
        "return pcall(redis.call, 'get', 'x')",
        "return _G.redis.call('get', 'x')",
        "return _G['red' .. 'is'].call('get', 'x')",
        "return loadstring(\"return redis.call('get', 'x')\")()",
        "local f = function(c) return c('get', 'x') end return f(redis.call)",
        "local function f() return redis.call end return f()('get', 'x')",
        "local function f(key) return redis.call('get', key) end return f('x')",
        "local c local function f() return c('get', 'x') end c = redis.call return f()",
        "local key = KEYS[1] local function f() key = 'x' end f() return redis.call('get', key)",
        "local name = 'get' local function f() name = ARGV[1] end f() return redis.call(name, KEYS[1])",
        "local key = 'x' local function f() return key end key = KEYS[1] return redis.call('get', key)",
        "local c = ARGV[1] and redis.call or tostring return c('get', 'x')",
        "for _, call in pairs(redis) do call('get', 'x') end",
        "for i, key in redis.call, 'get', 'x' do return key end",
        "return coroutine.wrap(redis.call)('get', 'x')",
        "local m = setmetatable({}, {__index = redis.call}) return m.x",
        "return redis['ca' .. 'll']('get', 'x')",
        "return (select(1, redis.call))('get', 'x')",
        "redis.call('get', KEYS[1]) redis.call('get', unpack(ARGV))",
    ] {
        assert!(!proves(script), "{script}");
    }
}

#[test]
fn invalid_code_proves_nothing() {
    let mut machine = Machine::new(1 << 24);
    let script =
        b"local function f(a) for i = 1, 2 do redis.call('get', KEYS[a]) end end f(1) return {1, 'x'}";
    let sha = Sha::of(script);
    machine.load(sha, script).unwrap();
    let dump = machine.dump(&sha);
    assert!(holds(&dump, &key_access));
    for end in 0..dump.len() {
        assert!(!holds(&dump[..end], &key_access), "cut at {end}");
    }
    // No byte there makes it panic.
    for at in 12..dump.len() {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut damaged = dump.clone();
            damaged[at] = byte;
            holds(&damaged, &key_access);
        }
    }
}

#[test]
fn functions_find_their_keys_in_their_first_parameter() {
    struct Nobody;
    impl crate::ScriptHost for Nobody {
        fn call(&mut self, _: &[&[u8]], _: &mut dunlin_resp::ReplyBuffer) {
            unreachable!("no library calls commands while it loads");
        }
        fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
            None
        }
        fn log(&mut self, _: crate::LogLevel, _: &[u8]) {}
        fn set_replication(&mut self, _: u8) {}
        fn interrupted(&mut self) -> Option<&'static str> {
            None
        }
    }
    for (function, expected) in [
        ("function(keys) return redis.call('get', keys[1]) end", true),
        ("function(keys, args) for _, k in ipairs(keys) do redis.call('set', k, args[1]) end end", true),
        ("function(keys, args) return redis.call('get', args[1]) end", false),
        ("function(keys, args) args[1] = keys return args[1][1] end", false),
        ("function(...) local keys = ... return redis.call('get', keys[1]) end", false),
        ("function() return redis.call('get', shared) end", false),
        ("function(keys) shared = keys[1] return redis.call('get', shared) end", false),
        ("redis.log", false),
    ] {
        let mut machine = crate::LibraryMachine::new(1 << 24);
        let code = format!("local shared = 'x' redis.register_function('f', {function})");
        let (loaded, functions) = machine.load(code.as_bytes(), &mut Nobody).unwrap();
        assert_eq!(functions[0].name, b"f");
        assert_eq!(machine.proves(&loaded, b"f", &key_access), expected, "{function}");
    }
}
