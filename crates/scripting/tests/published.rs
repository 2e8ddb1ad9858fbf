//! Published vulnerabilities of Lua 5.1 and of the libraries that servers embed beside it, 2014 to 2026, one test each.
//!
//! A test that fails here may end the whole test program: that is how such faults look. `docs/security.md` lists them
//! with what keeps each away. Some are of parts that this server does not have; there the test is that it has not.

mod support;

use dunlin_resp::Value;
use support::{error, run, value};

fn text(bytes: &str) -> Value {
    Value::Bulk(bytes.as_bytes().to_vec())
}

/// Functions with many parameters and `...`, called with few arguments where the stack is about to grow.
#[test]
fn cve_2014_5461_variadic_functions_have_room_for_their_parameters() {
    let parameters: Vec<String> = (0..190).map(|nth| format!("p{nth}")).collect();
    let script = format!(
        "local f = loadstring('return function({}, ...) return select(\"#\", ...) end')()
         local function deep(n) if n == 0 then return f() end return (deep(n - 1)) end
         local sum = 0
         for n = 1, 400 do sum = sum + coroutine.wrap(deep)(n) end
         return sum",
        parameters.join(", ")
    );
    assert_eq!(value(&script), Value::Integer(0));
}

/// Compiled code can break out of the machine. There is no way to have any loaded.
#[test]
fn cve_2015_4335_compiled_code_is_never_loaded() {
    let dumped = "local code = string.dump(function() return 1 end)";
    for loader in ["loadstring(code)", "load(function() local piece = code code = nil return piece end)"] {
        let script = format!("{dumped} local f, problem = {loader} return {{tostring(f), problem ~= nil}}");
        assert_eq!(value(&script), Value::Array(vec![text("nil"), Value::Integer(1)]), "{loader}");
    }
    assert!(run("\x1bLua\x51\0\x01\x04\x08\x04\x08\0").is_err());
}

/// `struct.unpack` with a size that overflows.
#[test]
fn cve_2015_8080_sizes_of_struct_do_not_overflow() {
    for format in ["i2147483648", "I4294967295", "c99999999999", "!2147483648i4"] {
        for call in ["unpack('%s', 'abc')", "pack('%s', 1)", "size('%s')"] {
            let call = call.replace("%s", format);
            let found = error(&format!("return struct.{call}"));
            assert!(found.contains("overflow"), "{call}: {found}");
        }
    }
}

/// `cmsgpack.pack` of many arguments, and of tables within them, wrote above the stack.
#[test]
fn cve_2018_11218_cmsgpack_has_room_for_what_it_packs() {
    for count in [7_900, 7_970, 7_980, 7_985, 7_990, 7_993, 7_995] {
        let script = format!(
            "local t = {{}} for i = 1, {count} do t[i] = 1 end
             local nested = {{7, {{8, {{9, {{a = 'b'}}}}}}}}
             local ok, packed = pcall(cmsgpack.pack, nested, unpack(t))
             if not ok then return packed end
             return {{packed:byte(1, 5)}}"
        );
        // All of it, or an error; never nil in the place of a value.
        match value(&script) {
            Value::Array(bytes) => {
                assert_eq!(bytes, [0x92, 7, 0x92, 8, 0x92].map(Value::Integer), "{count}");
            }
            other => assert_eq!(other, text("stack overflow (in function mp_pack)"), "{count}"),
        }
    }
}

/// `struct` with offsets, sizes and alignments that reach outside of its data.
#[test]
fn cve_2018_11219_struct_stays_inside_its_data() {
    for call in [
        "unpack('i4', 'abc')",
        "unpack('i4', 'abcdefgh', 6)",
        "unpack('b', 'abc', 2147483648)",
        "unpack('b', 'abc', 9007199254740992)",
        "unpack('b', 'abc', -1)",
        "unpack('c10', 'abc')",
        "unpack('Bc0', '\\255abc')",
        "unpack('>I4c0', '\\255\\255\\255\\255abc')",
        "unpack('s', 'abc')",
        "unpack('i33', ('x'):rep(64))",
        "unpack('!3i', 'abc')",
        "pack('c10', 'abc')",
    ] {
        error(&format!("return struct.{call}"));
    }
}

/// The command-line client's buffer for host names (CVE-2018-12326) and the server's debugger (CVE-2021-32672, below)
/// are none of a script's business. A script has no way to the process: no files, no processes, no host names.
#[test]
fn cve_2018_12326_scripts_have_no_way_to_the_process() {
    for name in ["io", "require", "package", "dofile", "loadfile", "print", "module"] {
        assert!(error(&format!("return {name}")).contains("nonexistent global variable"), "{name}");
    }
    assert_eq!(
        value("return {os.execute == nil and 1, os.getenv == nil and 1}"),
        Value::Array(vec![Value::Integer(1); 2])
    );
}

/// The fix of CVE-2015-8080 was lost again.
#[test]
fn cve_2020_14147_sizes_of_struct_are_read_digit_by_digit() {
    for digits in ["2147483647", "2147483648", "4294967296", "99999999999999999999"] {
        error(&format!("return struct.unpack('i{digits}', ('x'):rep(100))"));
        error(&format!("return struct.pack('i{digits}', 1)"));
    }
}

/// Lua 5.4 only (CVE-2020-15888, 15889, 15945, 24369 to 24371, CVE-2021-44647, 44964, CVE-2022-28805, 33099), though the
/// first is of any version that resizes a stack while a coroutine dies of its overflow.
#[test]
fn cve_2020_15888_a_coroutine_may_die_of_its_stack() {
    let script = "local function deep() return 1 + deep() end
        local out = {}
        for round = 1, 20 do
            local co = coroutine.create(function() local ok = pcall(deep) coroutine.yield(ok) deep() end)
            out[1] = select(2, coroutine.resume(co))
            out[2] = coroutine.resume(co)
            out[3] = coroutine.status(co)
            collectgarbage()
        end
        return {tostring(out[1]), tostring(out[2]), out[3]}";
    assert_eq!(value(script), Value::Array(vec![text("false"), text("false"), text("dead")]));
}

/// Calls of native functions with as many arguments as there can be, and deep tables, made no sure of room.
#[test]
fn cve_2021_32626_calls_with_all_arguments_have_room_for_their_replies() {
    for count in (7_980..=7_998).chain([1_000]) {
        let all = format!("local t = {{}} for i = 1, {count} do t[i] = 'x' end");
        for (call, expected) in [
            ("redis.call('count', unpack(t))", format!(":{}\r\n", count + 1)),
            ("redis.pcall('nosuch', unpack(t))", "-ERR no such command\r\n".to_owned()),
            (
                "select(2, pcall(redis.call, 'nosuch', unpack(t)))",
                "$19\r\nERR no such command\r\n".to_owned(),
            ),
        ] {
            for script in [
                format!("{all} return {call}"),
                format!("{all} return coroutine.wrap(function() return {call} end)()"),
            ] {
                match run(&script) {
                    Ok(reply) => assert_eq!(String::from_utf8_lossy(&reply), expected, "{script}"),
                    Err(error) if error == "ERR no such command" => {
                        assert!(call.contains("pcall"), "{script}")
                    }
                    // Lua's own limit: 8,000 values to a function.
                    Err(error) => {
                        assert!(
                            error.contains("too many results to unpack") && count > 7_995,
                            "{script}: {error}"
                        );
                    }
                }
            }
        }
    }
}

/// Nested tables in JSON and MessagePack, and in a script's result.
#[test]
fn cve_2021_32626_nested_values_are_bounded() {
    let nested = "local t = {} for i = 1, 7900 do t = {t} end";
    for (script, expected) in [
        (format!("{nested} return cjson.encode(t)"), "excessive nesting (1001)"),
        (
            format!("{nested} cjson.encode_max_depth(100000) return cjson.encode(t)"),
            "excessive nesting (1001)",
        ),
        ("return cjson.decode(('['):rep(7900))".to_owned(), "too many nested data structures (1001)"),
        (
            "cjson.decode_max_depth(100000) return cjson.decode(('{\"a\":'):rep(100000))".to_owned(),
            "too many nested data structures (1001)",
        ),
        ("return cmsgpack.unpack(('\\145'):rep(100000))".to_owned(), "too many nested values"),
        ("return cmsgpack.unpack(('\\129\\1'):rep(100000))".to_owned(), "too many nested values"),
    ] {
        let found = error(&script);
        assert!(found.contains(expected), "{script}: {found}");
    }
    // As the library always packed: sixteen levels, then nil.
    assert_eq!(value(&format!("{nested} return #cmsgpack.pack(t)")), Value::Integer(17));
    let mut reply = value(&format!("{nested} return t"));
    let mut depth = 0;
    while let Value::Array(mut elements) = reply {
        reply = elements.pop().expect("one element each");
        depth += 1;
    }
    assert_eq!((depth, reply), (1_000, Value::Error(b"ERR reached lua stack limit".to_vec())));
}

/// There is no debugger: its functions do nothing, with any arguments.
#[test]
fn cve_2021_32672_there_is_no_debugger() {
    let script = "redis.debug(('x'):rep(100000), {}, nil, 1) return {tostring(redis.breakpoint())}";
    assert_eq!(value(script), Value::Array(vec![text("false")]));
}

/// Coroutines within coroutines had a count of their own each, and ran out of the thread's stack.
#[test]
fn cve_2021_43519_coroutines_share_one_limit_of_depth() {
    for script in [
        "local function f() return coroutine.wrap(f)() end return f()",
        "local function f() pcall(1) coroutine.wrap(f)() end f()",
        "local function f(s) return coroutine.wrap(function() return (s:gsub('.', f)) end)() end return f('x')",
        "local t = setmetatable({}, {__index = function(t, k) return coroutine.wrap(function() return t[k + 1] end)() end}) return t[1]",
        "local function f() return select(2, pcall(coroutine.wrap(f))) end error(f())",
    ] {
        assert!(error(script).contains("C stack overflow"), "{script}");
    }
}

/// Anything that outlives a script could carry code into a script of another user.
#[test]
fn cve_2022_24735_nothing_that_outlives_a_script_can_be_changed() {
    for change in [
        "redis.call = print",
        "string.rep = nil",
        "_G.pcall = nil",
        "x = 1",
        "rawset(_G, 'x', 1)",
        "rawset(redis, 'call', 1)",
        "setmetatable(_G, nil)",
        "setmetatable(string, {})",
        "table.insert(string, 1)",
        "table.remove(redis)",
        "table.sort(cjson)",
        "getmetatable('').__index = function() end",
        "getmetatable(_G).__index = nil",
        "local mt = getmetatable(_G) mt.x = 1",
        "cjson.null = 1",
        "math.huge = 1",
        "coroutine.wrap(function() string.len = nil end)()",
        "loadstring('string.len = nil')()",
    ] {
        error(change);
    }
    // Nor through the functions that environments could be changed with.
    for name in ["setfenv", "getfenv", "debug", "newproxy"] {
        assert!(error(&format!("return {name}")).contains("nonexistent global variable"), "{name}");
    }
}

/// A script that cannot be compiled, or is not text at all.
#[test]
fn cve_2022_24736_what_is_no_script_is_an_error() {
    let nested = "(".repeat(1_000);
    for script in [
        "",
        "\0",
        "return",
        "return (",
        "#",
        "--[[",
        "'",
        "\u{ff}",
        &nested,
        "return {err = 5}",
        "error(nil)",
    ] {
        let _ = run(script);
    }
    assert!(run("return {err = {}}").is_ok());
}

/// The sandbox of a distribution had `package`.
#[test]
fn cve_2022_0543_no_libraries_can_be_loaded() {
    for script in ["package.loadlib('a', 'b')", "local p = package return p", "require 'os'"] {
        assert!(error(script).contains("nonexistent global variable"), "{script}");
    }
}

/// Lengths of buffers overflowed in `cjson.encode` and `cmsgpack.pack`.
#[test]
fn cve_2022_24834_long_json_and_messagepack_are_refused() {
    for script in [
        "local s = ('\"'):rep(7000000) return #cjson.encode(s)",
        "local s = ('\\1'):rep(2000000) return #cjson.encode({s, s, s, s, s, s})",
        "local s = ('x'):rep(2000000) local t = {} for i = 1, 1000 do t[i] = s end return #cjson.encode(t)",
        "local s = ('x'):rep(2000000) local t = {} for i = 1, 1000 do t[i] = s end return #cmsgpack.pack(t)",
        "local s = ('x'):rep(2000000) return #cmsgpack.pack(s, s, s, s, s, s, s, s, s)",
    ] {
        assert!(error(script).contains("not enough memory"), "{script}");
    }
}

/// `bit.tohex` with the least integer, whose absolute value there is not.
#[test]
fn cve_2024_31449_tohex_takes_any_number_of_digits() {
    for (digits, expected) in [
        ("-2147483648", "0000ABCD"),
        ("2147483647", "0000abcd"),
        ("-8", "0000ABCD"),
        ("0", ""),
        ("-3", "BCD"),
        ("0/0", ""),
    ] {
        assert_eq!(value(&format!("return bit.tohex(0xabcd, {digits})")), text(expected), "{digits}");
    }
}

/// Finalizers that ran while the machine was closed. Scripts can make nothing that has one.
#[test]
fn cve_2024_46981_scripts_make_nothing_that_is_finalized() {
    let script = "local made = {} for i = 1, 1000 do
            made[i] = setmetatable({}, {__gc = function() error('finalized') end})
        end
        made = nil collectgarbage() collectgarbage() return type(newproxy == nil and 1)";
    assert!(error(script).contains("nonexistent global variable 'newproxy'"));
    assert_eq!(value(&script.replace("type(newproxy == nil and 1)", "1")), Value::Integer(1));
}

/// `unpack` from an index to another whose distance overflows.
#[test]
fn cve_2025_46817_unpack_counts_in_more_bits_than_its_indexes_have() {
    for bounds in [
        "-2, 2147483647",
        "-1, 2147483647",
        "0, 2147483647",
        "1, 2147483647",
        "-2147483648, 2147483647",
        "-2147483648, 0",
        "2147483646, -2147483648 + 2^32 - 1",
        "1, 8001",
        "-9007199254740992, 9007199254740992, 3",
    ] {
        match run(&format!("return {{unpack({{1, 2, 3}}, {bounds})}}")) {
            Err(error) => assert!(error.contains("too many results to unpack"), "{bounds}: {error}"),
            Ok(reply) => assert_eq!(reply, b"*0\r\n", "{bounds}"),
        }
    }
    let numbers = |numbers: &[i64]| Value::Array(numbers.iter().copied().map(Value::Integer).collect());
    assert_eq!(value("return {unpack({1, 2, 3}, 2)}"), numbers(&[2, 3]));
    assert_eq!(value("return {unpack({1, 2, 3}, 3, 2)}"), numbers(&[]));
    assert_eq!(value("return {#{unpack({}, 2147483647, 2147483647)}}"), numbers(&[0]));
    assert_eq!(value("return {select('#', unpack({}, -2147483648, -2147483648 + 7989))}"), numbers(&[7_990]));
}

/// Metatables of basic types are shared by all scripts.
#[test]
fn cve_2025_46818_metatables_of_basic_types_cannot_be_reached() {
    for script in [
        "getmetatable('').__index = nil",
        "getmetatable('').__add = function() end",
        "rawset(getmetatable(''), '__add', 1)",
        "rawset(getmetatable('').__index, 'len', 1)",
        "getmetatable('').__index.len = 1",
        "setmetatable('', {})",
        "setmetatable(1, {})",
        "setmetatable(print == nil, {})",
        "setmetatable(nil, {})",
        "setmetatable(string.len, {})",
        "setmetatable(cjson.null, {})",
        "setmetatable(coroutine.create(function() end), {})",
        "('').x = 1",
    ] {
        error(script);
    }
    let script = "local n = 0
        for _, value in pairs({1, true, cjson.null, string.len, coroutine.create(function() end)}) do
            if getmetatable(value) == nil then n = n + 1 end
        end
        return n";
    assert_eq!(value(script), Value::Integer(5));
}

/// Long brackets with more signs than an `int` counts, and a scanner that reads past its buffer.
#[test]
fn cve_2025_46819_long_brackets_are_bounded() {
    for script in [
        "return loadstring('return [' .. ('='):rep(2000000) .. '[x]' .. ('='):rep(2000000) .. ']')",
        "return loadstring('[' .. ('='):rep(5000000))",
        "return loadstring('--[' .. ('='):rep(5000000) .. '[')",
        "return loadstring('return [==[ ]' .. ('='):rep(5000000))",
        "return loadstring(('['):rep(100000))",
        "return loadstring('x = ' .. ('9'):rep(2000000))",
        "return loadstring('x = \\'' .. ('\\\\'):rep(1999999))",
    ] {
        let _ = run(script);
    }
    assert_eq!(
        value("return loadstring('return [' .. ('='):rep(100000) .. '[x]' .. ('='):rep(100000) .. ']')()"),
        text("x")
    );
}

/// The name of a chunk was collected while the parser still used it.
#[test]
fn cve_2025_49844_nothing_is_collected_while_a_chunk_is_compiled() {
    // Many names that nothing else holds, and sources that make the parser allocate, near the limit and far from it.
    let script = "local kept, made = {}, 0
        local function compile(round)
            local lines = {}
            for i = 1, 200 do lines[i] = 'local a' .. round .. '_' .. i .. ' = \"' .. ('x'):rep(i) .. round .. '\"' end
            local source = 'do ' .. table.concat(lines, ' end do ') .. ' end error(1)'
            local f, problem = loadstring(source, '@' .. ('name' .. round):rep(50))
            if not f then error(problem) end
            local ok, text = pcall(f)
            made = made + #text
        end
        for round = 1, 300 do
            compile(round)
            if round % 3 == 0 then collectgarbage('step', 100) end
            if round < 150 then kept[round] = ('y'):rep(60000) .. round end
            if round == 200 then kept = {} end
        end
        return made > 0 and 1";
    assert_eq!(value(script), Value::Integer(1));
    // A chunk that does not compile, whose error names it.
    let script = "local problem
        for round = 1, 300 do
            problem = select(2, loadstring(('x = 1 '):rep(1000) .. '?', '@' .. round .. ('n'):rep(30)))
            collectgarbage('step', 50)
        end
        return problem";
    let Value::Bulk(problem) = value(script) else { panic!("a text") };
    assert!(problem.starts_with(b"300nnn"), "{}", problem.escape_ascii());
}

/// Line breaks in an error of a script became replies of the server's.
#[test]
fn cve_2025_67733_errors_are_one_line() {
    for script in [
        "return redis.error_reply('-ERR a\\r\\n+OK\\r\\n')",
        "return {err = 'ERR a\\r\\n+OK\\r\\n'}",
        "return {ok = 'a\\r\\n-ERR b\\r\\n'}",
        "return {{err = 'ERR a\\r\\n+OK\\r\\n'}}",
        "redis.setresp(3) return {big_number = '1\\r\\n+OK\\r\\n'}",
    ] {
        if let Ok(reply) = run(script) {
            assert!(!reply.windows(3).any(|found| found == b"\n+O" || found == b"\n-E") || reply[0] == b'*');
            value(script);
        }
    }
}
