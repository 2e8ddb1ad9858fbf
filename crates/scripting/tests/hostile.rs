//! Scripts with extreme numbers, sizes and depths: each answers or ends in an error, within its memory, and can be
//! ended.

mod support;

use dunlin_resp::Value;
use dunlin_scripting::Machine;
use support::{Host, USED_BYTES_MAX, error, on_stack, run, run_in, value};

#[test]
fn patterns_are_bounded() {
    for (script, expected) in [
        ("string.find(string.rep('x', 40000), string.rep('x?', 40000))", "pattern too complex"),
        ("string.match(string.rep('x', 40000), string.rep('x*', 40000))", "pattern too complex"),
        ("string.gsub(string.rep('x', 40000), string.rep('x-', 40000), '')", "pattern too complex"),
        ("string.gmatch('x', string.rep('(x?)', 40000))()", "too many captures"),
        ("string.find('x', string.rep('(', 40000))", "too many captures"),
        ("string.find(string.rep('a', 1000), string.rep('a*', 30) .. 'b')", "too long"),
        ("string.find(string.rep('x', 100000), '[' .. string.rep('y', 100000) .. ']')", "too long"),
        ("string.gsub('x', 'x', string.rep('%0', 10) .. '%2')", "invalid capture index"),
    ] {
        let found = error(&format!("return {script}"));
        assert!(found.contains(expected), "{script}: {found}");
    }
}

/// Our own functions return the same as in `redis-server` 7.0: result, or error.
#[test]
fn replaced_functions_answer_as_the_originals() {
    for (expression, expected) in [
        ("{string.find('abc', 'b', -10)}", "[2, 2]"),
        ("{string.find('abc', 'b', 10)}", "[]"),
        ("{string.find('abc', '', 5)}", "[4, 3]"),
        ("{string.find('a\\0b', '\\0b', 1, true)}", "[2, 3]"),
        ("{string.find('a\\0b', 'a\\0x')}", "[]"),
        ("{string.find('a.b', '.', 1, true)}", "[2, 2]"),
        ("{string.find('a+b', '+', 1, true)}", "[2, 2]"),
        ("{string.find('THE (quick) fox', '%b()')}", "[5, 11]"),
        ("{string.find('abc', 'b', 2^63)}", "[2, 2]"),
        ("{string.find(5, 5)}", "[1, 1]"),
        ("{string.match('key = value', '(%w+)%s*=%s*(%w+)')}", "[key, value]"),
        ("{string.match('x', '()')}", "[1]"),
        ("{string.match('x^', '[^x]')}", "[^]"),
        ("{string.match('12ab', '^%d+', 2)}", "[2]"),
        ("{string.gsub('abc', '', '-')}", "[-a-b-c-, 4]"),
        ("{string.gsub('abc', '%w', '%%%0')}", "[%a%b%c, 3]"),
        ("{string.gsub('abc', '(b)()', '<%1%2>')}", "[a<b3>c, 1]"),
        ("{string.gsub('hello world', 'o', '0', 1)}", "[hell0 world, 1]"),
        ("{string.gsub('abc', 'b', 'x', -1)}", "[abc, 0]"),
        ("{string.gsub('abc', '%w', {a = '1', b = false})}", "[1bc, 3]"),
        ("{string.gsub('abc', '%w', function(c) if c ~= 'b' then return c .. c end end)}", "[aabcc, 3]"),
        ("{string.gsub('THE quick', '%f[%a]%a+', 'w')}", "[w w, 2]"),
        ("{string.gsub('abc', '^a', 'x')}", "[xbc, 1]"),
        ("{string.gsub('abc abc', 'b*', 'x')}", "[xaxxcx xaxxcx, 8]"),
        ("{string.gsub('a', 'a', 5)}", "[5, 1]"),
        ("{string.gsub('a', 'a', 'b%')}", "[b\0, 1]"),
        (
            "{(function() local r = '' for k, v in string.gmatch('a=1, b=2', '(%w+)=(%w+)') do r = r .. k .. v end return r end)()}",
            "[a1b2]",
        ),
        (
            "{(function() local n = 0 for _ in string.gmatch('abc', '') do n = n + 1 end return n end)()}",
            "[4]",
        ),
        ("{string.gfind('a', 'a')()}", "[a]"),
        ("{string.rep('x', '3'), string.rep('x', -5), string.rep('ab', 3.7)}", "[xxx, , ababab]"),
        ("{#table.concat({1, 2, 3}, ',', 2, 3)}", "[3]"),
        ("(function() local t = {} table.insert(t, 5, 1) return {#t, t[5]} end)()", "[0, 1]"),
        (
            "(function() local t = {1, 2, 3} table.insert(t, -1, 9) return {t[-1], t[0], t[1], t[2], t[4]} end)()",
            "[9]",
        ),
        ("(function() local t = {1, 2, 3} table.insert(t, 2, 9) return t end)()", "[1, 9, 2, 3]"),
        (
            "(function() local t = {1, 2, 3} return {table.remove(t, 1), #t, t[1], table.remove(t), table.remove({}) == nil} end)()",
            "[1, 2, 2, 3, 1]",
        ),
        ("{unpack({1, 2, 3}, '2')}", "[2, 3]"),
        ("(function() local t = {'c', 'a', 'b'} table.sort(t) return t end)()", "[a, b, c]"),
        ("{table.foreach({1, 2}, function(_, v) return v end)}", "[1]"),
    ] {
        assert_eq!(show(&value(&format!("return {expression}"))), expected, "{expression}");
    }
    for (expression, expected) in [
        ("string.find('a')", "bad argument #2 to 'find' (string expected, got no value)"),
        ("('x'):rep()", "bad argument #1 to 'rep' (number expected, got no value)"),
        (
            "pcall and select(2, error((select(2, pcall(string.rep)))))",
            "bad argument #1 to '?' (string expected, got no value)",
        ),
        ("string.rep({}, 1)", "bad argument #1 to 'rep' (string expected, got table)"),
        ("string.gsub('abc', 'b')", "bad argument #3 to 'gsub' (string/function/table expected)"),
        ("string.gsub('abc', 'b', true)", "bad argument #3 to 'gsub' (string/function/table expected)"),
        ("string.gsub('abc', 'b', function() return {} end)", "invalid replacement value (a table)"),
        ("string.gsub('abc', '%w', {b = true})", "invalid replacement value (a boolean)"),
        ("string.gsub('abc', 'b', '%2')", "invalid capture index"),
        ("string.find('abc', '(')", "unfinished capture"),
        ("string.gmatch('a')", "bad argument #2 to 'gmatch' (string expected, got no value)"),
        ("table.insert({}, 1, 2, 3)", "wrong number of arguments to 'insert'"),
        ("table.insert({})", "wrong number of arguments to 'insert'"),
        ("table.insert(nil, 1)", "bad argument #1 to 'insert' (table expected, got nil)"),
        ("table.insert({}, 'a', 1)", "bad argument #2 to 'insert' (number expected, got string)"),
        ("unpack(5)", "bad argument #1 to 'unpack' (table expected, got number)"),
        ("unpack({1}, {})", "bad argument #2 to 'unpack' (number expected, got table)"),
        ("cjson.encode()", "bad argument #1 to 'encode' (expected 1 argument)"),
        ("bit.tohex({})", "bad argument #1 to 'tohex' (number expected, got table)"),
        ("struct.pack('i', {})", "bad argument #2 to 'pack' (number expected, got table)"),
        ("cmsgpack.unpack({})", "bad argument #1 to 'unpack' (string expected, got table)"),
    ] {
        let found = error(&format!("return {expression}"));
        assert!(found.ends_with(expected), "{expression}: {found}");
    }
    assert_eq!(error("table.sort({3, 'a'})"), "ERR attempt to compare string with number");
}

/// An error in a function that a native one calls has its own line in the message.
#[test]
fn errors_in_callbacks_have_their_own_line() {
    let line = |script: &'static str| {
        on_stack(move || {
            let mut machine = Machine::new(USED_BYTES_MAX);
            let sha = dunlin_scripting::Sha::of(script.as_bytes());
            machine.load(sha, script.as_bytes()).unwrap();
            let mut reply = dunlin_resp::ReplyBuffer::default();
            let error = machine.run(&sha, &[], &[], &mut Host::default(), &mut reply).unwrap_err();
            let error = String::from_utf8(error).unwrap();
            error.rsplit_once(", on ").unwrap().1.to_owned()
        })
    };
    assert_eq!(line("\nlocal t = {1, 2}\ntable.sort(t, function()\n error('x') end)"), "@user_script:4.");
    assert_eq!(line("\nreturn string.gsub('x', 'x', function()\n error('x') end)"), "@user_script:3.");
    assert_eq!(line("\n\ntable.sort({3, 'a'})"), "@user_script:3.");
}

/// Tables that share others come to more elements than there is memory for.
#[test]
fn script_reply_of_tables_shared_many_times_is_refused() {
    let shared = "local t = {1} for i = 1, 40 do t = {t, t} end";
    assert!(error(&format!("{shared} return t")).contains("the reply of the script is larger than"));
    assert!(error(&format!("{shared} return cjson.encode(t)")).contains("not enough memory"));
    let packed =
        "local t = {('x'):rep(20)} for i = 1, 15 do local u = {} for j = 1, 50 do u[j] = t end t = u end";
    assert!(error(&format!("{packed} return cmsgpack.pack(t)")).contains("not enough memory"));
    // As large as memory allows: nothing is left of the text when it is refused.
    let long = "local s = ('x'):rep(6000000) return {s, s, s}";
    assert!(error(long).contains("the reply of the script is larger than"));
}

/// Memory that native functions take for a script counts as the script's.
#[test]
fn memory_is_bounded_whoever_takes_it() {
    for script in [
        "return #string.rep('x', 2^30)",
        "return #string.rep(string.rep('x', 2^20), 2^31 - 1)",
        "local s = string.rep('x', 2^18) local t = {} for i = 1, 10000 do t[i] = s end return #table.concat(t)",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local s = string.rep('x', 1e6) return load(function() return s end)",
        "return load(os.clock)",
        "return #cjson.decode('[' .. string.rep('[],', 1e6) .. '[]]')",
        "return #cmsgpack.unpack('\\221\\0\\16\\0\\0' .. string.rep('\\144', 1048576))",
        "return cmsgpack.unpack(string.rep('\\221\\255\\255\\255\\255', 900) .. string.rep('x', 2^20))",
        "return #string.gsub(string.rep('x', 1e6), 'x', string.rep('y', 1e6))",
        "local s = string.rep('x', 1e6) return #string.gsub(string.rep('x', 1e6), 'x', function() return s end)",
        "return #struct.pack('c0', string.rep('x', 2^30))",
        "return #string.format(string.rep('%s', 1000), unpack((function() local t, s = {}, string.rep('x', 1e6) for i = 1, 1000 do t[i] = s end return t end)()))",
        "cjson.encode_sparse_array(false, 0, 0) return #cjson.encode({[2147483647] = 1})",
    ] {
        assert!(error(script).contains("not enough memory"), "{script}: {}", error(script));
    }
    // The error is like any other.
    assert_eq!(
        value("local ok = pcall(string.rep, 'x', 2^30) return tostring(ok)"),
        Value::Bulk(b"false".to_vec())
    );
}

/// A source that compiles to more than there is memory for, as a script and within one.
#[test]
fn sources_are_bounded() {
    let many = "a = a .. a ".repeat(500_000);
    assert!(run(&format!("local a = 'x' {many}")).is_err_and(|error| error.contains("not enough memory")));
    for (script, expected) in [
        ("return loadstring(('do '):rep(100000))", "too many syntax levels"),
        ("return loadstring('return ' .. ('('):rep(100000))", "too many syntax levels"),
        ("return loadstring('return ' .. ('{'):rep(100000))", "too many syntax levels"),
        ("return loadstring('return ' .. ('-'):rep(3) .. ('not '):rep(100000) .. '1')", "nil"),
        ("return loadstring(('function f() '):rep(100000))", "too many syntax levels"),
        ("return loadstring('x = ' .. ('a.'):rep(100000) .. 'a')", "function"),
        ("return loadstring(('a,'):rep(100000) .. 'a = 1')", "variables in assignment"),
        ("return loadstring('local ' .. ('a,'):rep(1000) .. 'a')", "local variables"),
        ("return loadstring('return ' .. ('1 ..'):rep(100000) .. '1')", "too many syntax levels"),
        ("return loadstring('f(' .. ('a,'):rep(300) .. 'a)')", "too complex"),
    ] {
        let script = script.replace("return loadstring", "local f, problem = loadstring");
        let Value::Bulk(found) = value(&format!("{script} return type(f) .. ' ' .. tostring(problem)"))
        else {
            panic!("{script}: a text")
        };
        assert!(String::from_utf8_lossy(&found).contains(expected), "{script}: {}", found.escape_ascii());
    }
}

/// A script that is to end ends, wherever it is, even if it catches errors.
#[test]
fn script_that_is_to_end_ends_wherever_it_is() {
    for script in [
        "while true do end",
        "while true do pcall(error) end",
        "local function f() while true do end end while true do pcall(f) end",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "return string.find(string.rep('a', 1000), string.rep('a*', 30) .. 'b')",
        "table.insert({1}, -2147483648, 1)",
        "local t = {} for i = 1, 300000 do t[i] = i end while true do table.insert(t, 1, 1) table.remove(t, 1) end",
        "local t = {} for i = 1, 300000 do t[i] = i % 7 end table.sort(t)",
        "local t = {} for i = 1, 3000 do t[i] = 'a' .. i end table.sort(t, string.find)",
        "local t = {} for i = 1, 100000 do t[i] = i end table.foreach(t, tostring)",
        "return load(os.clock)",
        "local t = {1} for i = 1, 40 do t = {t, t} end return t",
        "local t = {1} for i = 1, 40 do t = {t, t} end return cjson.encode(t)",
        "local t = {1} for i = 1, 15 do local u = {} for j = 1, 50 do u[j] = t end t = u end return cmsgpack.pack(t)",
        "local s = ('x'):rep(2000000) while true do s = s:upper() s = s:lower() end",
        "local s = ('x'):rep(2000000) local n = 0 while true do n = n + #(s .. 'y') end",
        "while true do pcall(string.rep, 'x', 2000000) end",
        "return string.gsub(string.rep('x', 1000000), 'x', string.upper)",
    ] {
        let found = on_stack(move || {
            let mut machine = Machine::new(USED_BYTES_MAX);
            let mut host = Host { end_with: Some("told to end"), ..Host::default() };
            let result = run_in(&mut machine, &mut host, script);
            let after = run_in(&mut machine, &mut Host::default(), "for i = 1, 1e5 do end return 1");
            assert_eq!(after.as_deref(), Ok(&b":1\r\n"[..]), "after {script}");
            result
        });
        assert_eq!(found, Err("ERR told to end".to_owned()), "{script}");
    }
}

/// The thread's stack: the deepest things that a script can have done, on a quarter of the stack that it is promised.
#[test]
fn script_of_any_depth_keeps_to_the_stack() {
    let at_depth = |what: &str| {
        format!(
            "local function f(n) if n == 0 then {what} end return (select(2, pcall(f, n - 1))) end return tostring(f(180))"
        )
    };
    for what in [
        "cjson.decode_max_depth(100000) return cjson.decode(('['):rep(100000))",
        "cjson.decode_max_depth(100000) return cjson.decode(('{\"a\":'):rep(999) .. '1' .. ('}'):rep(999))",
        "local t = {} for i = 1, 990 do t = {a = t} end return #cjson.encode(t)",
        "local t = {} for i = 1, 990 do t = {t} end return #cjson.encode(t)",
        "return cmsgpack.unpack(('\\129\\1'):rep(999) .. '\\1')",
        "return string.find(('x'):rep(400), ('x?'):rep(190))",
        "return loadstring('return ' .. ('function() return '):rep(90) .. '1' .. (' end'):rep(90))",
        "return redis.call('nest', 60)",
        "return (string.gsub('x', 'x', function() return ('y'):rep(1000) end))",
        "local t = {} for i = 1, 5000 do t[i] = i * 7919 % 5000 end table.sort(t, function(a, b) return a < b end) return t[1]",
    ] {
        value(&at_depth(what));
    }
    for nesting in [
        "local function f() return pcall(f) end return tostring(f())",
        "local function f(s) return (string.gsub('x', 'x', f)) end return tostring(pcall(f, 'x'))",
        "local function f() return load(f) end return tostring(pcall(f))",
        "local function f() local t = {2, 1} table.sort(t, f) end return tostring(pcall(f))",
        "local function f() table.foreach({1}, f) end return tostring(pcall(f))",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(_, k) return t[k .. 'x'] end return tostring(pcall(function() return t.a end))",
        "local t = setmetatable({}, {}) getmetatable(t).__tostring = function(t) return tostring(t) end return tostring(pcall(tostring, t))",
        "local f = function() end for i = 1, 250 do local g = f f = function() return xpcall(g, function() return 1 end) end end return tostring(f())",
    ] {
        value(nesting);
    }
    // A map and a set are two tables to a level.
    for nested in ["{map = {a = t}}", "{set = {[t] = true}}", "{t}"] {
        value(&format!("redis.setresp(3) local t = {{}} for i = 1, 2000 do t = {nested} end return t"));
    }
    let cycle = value("local a = {} local b = {a} a[1] = b return a");
    assert!(matches!(cycle, Value::Array(_)));
}

/// A reply that a script cannot have is an error, and no value.
#[test]
fn replies_that_cannot_be_converted_are_errors() {
    // A script that answers the table of an error has ended in it.
    for call in ["call", "pcall"] {
        assert_eq!(error(&format!("return redis.{call}('nest', 65)")), "ERR reached lua stack limit");
        value(&format!("return redis.{call}('nest', 60)"));
    }
}

/// A proof of a script takes memory and time within bounds: a larger script runs alone.
#[test]
fn large_scripts_are_not_proven() {
    on_stack(|| {
        let locals: String = (0..190).map(|nth| format!("local l{nth} = 1 ")).collect();
        let script = format!("{locals}{}", "l1 = l2 ".repeat(100_000));
        let sha = dunlin_scripting::Sha::of(script.as_bytes());
        let mut machine = Machine::new(USED_BYTES_MAX);
        machine.load(sha, script.as_bytes()).unwrap();
        assert!(!machine.proves(&sha, &|_, _| true));
        let script = format!("{locals}{}", "l1 = l2 ".repeat(1_000));
        let sha = dunlin_scripting::Sha::of(script.as_bytes());
        machine.load(sha, script.as_bytes()).unwrap();
        assert!(machine.proves(&sha, &|_, _| true));
    });
}

/// A reply in short.
fn show(value: &Value) -> String {
    match value {
        Value::Array(elements) => format!("[{}]", elements.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Bulk(bytes) | Value::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}
