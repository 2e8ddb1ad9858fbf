//! Lua from bytes: programs that compile more often than not, made of things that scripts find, with extreme numbers,
//! counts and lengths.
//!
//! Every choice takes a byte of the input; when none are left, all choices are the first ones, which are short. So an
//! input that is changed a little is a program that is changed a little, as a fuzzer needs it.

use std::fmt::Write;

/// Deepest nesting of a program.
const DEPTH_MAX: usize = 6;
/// Longest program, in bytes.
const TEXT_MAX: usize = 16 << 10;

/// Numbers where something ends: of bytes, words, integers, stacks, floating-point numbers.
const NUMBERS: &[&str] = &[
    "1",
    "0",
    "-1",
    "2",
    "3",
    "7",
    "16",
    "17",
    "31",
    "32",
    "33",
    "60",
    "127",
    "128",
    "199",
    "200",
    "201",
    "255",
    "256",
    "257",
    "1000",
    "1001",
    "7989",
    "7990",
    "7995",
    "7996",
    "7997",
    "7998",
    "7999",
    "8000",
    "8001",
    "20000",
    "32767",
    "32768",
    "65535",
    "65536",
    "1e5",
    "1e6",
    "2147483646",
    "2147483647",
    "2147483648",
    "-2147483647",
    "-2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "9007199254740991",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "1.8446744073709552e19",
    "1e308",
    "-1e308",
    "5e-324",
    "1/0",
    "-1/0",
    "0/0",
    "0.5",
    "-0.5",
    "0x7fffffff",
];

const STRINGS: &[&str] = &[
    "''",
    "'x'",
    "'\\0'",
    "'a\\0b'",
    "'%'",
    "'%%'",
    "'['",
    "'[]'",
    "'[^]'",
    "'[a-'",
    "'%b'",
    "'%bxy'",
    "'%f[%a]'",
    "'%f'",
    "'('",
    "')'",
    "'()'",
    "'(a*)'",
    "'%1'",
    "'%0'",
    "'x?'",
    "'x*'",
    "'x-'",
    "'x+'",
    "'.'",
    "'.-'",
    "'^'",
    "'$'",
    "'^.*$'",
    "'%s'",
    "'%d'",
    "'%99.99f'",
    "'%q'",
    "'%c'",
    "'%5.2s'",
    "'%-099.99d'",
    "'<>!16i32I32'",
    "'bc0'",
    "'>I4c0'",
    "'i33'",
    "'c99'",
    "'s'",
    "'[[[[1]]]]'",
    "'{\"a\":[1,null]}'",
    "'\\\\ud800'",
    "'\\145\\145\\1'",
    "'\\221\\255\\255\\255\\255'",
    "'\\129\\1'",
    "'return 1'",
    "'return ...'",
    "'@name'",
    "'=name'",
    "'\\27Lua'",
    "'kv'",
    "'get'",
    "'declared'",
    "'k'",
    "'v'",
    "'collect'",
    "'step'",
    "'count'",
    "'#'",
];

/// Functions that take anything, as far as this grammar knows.
const FUNCTIONS: &[&str] = &[
    "tostring",
    "tonumber",
    "type",
    "select",
    "unpack",
    "next",
    "pairs",
    "ipairs",
    "rawget",
    "rawset",
    "rawequal",
    "setmetatable",
    "getmetatable",
    "pcall",
    "xpcall",
    "error",
    "assert",
    "load",
    "loadstring",
    "collectgarbage",
    "gcinfo",
    "string.byte",
    "string.char",
    "string.dump",
    "string.find",
    "string.format",
    "string.gfind",
    "string.gmatch",
    "string.gsub",
    "string.len",
    "string.lower",
    "string.match",
    "string.rep",
    "string.reverse",
    "string.sub",
    "string.upper",
    "table.concat",
    "table.foreach",
    "table.foreachi",
    "table.getn",
    "table.maxn",
    "table.insert",
    "table.remove",
    "table.setn",
    "table.sort",
    "math.floor",
    "math.fmod",
    "math.frexp",
    "math.ldexp",
    "math.max",
    "math.random",
    "math.randomseed",
    "coroutine.create",
    "coroutine.resume",
    "coroutine.running",
    "coroutine.status",
    "coroutine.wrap",
    "coroutine.yield",
    "redis.call",
    "redis.pcall",
    "redis.error_reply",
    "redis.status_reply",
    "redis.sha1hex",
    "redis.setresp",
    "redis.log",
    "redis.acl_check_cmd",
    "redis.set_repl",
    "redis.replicate_commands",
    "redis.breakpoint",
    "redis.debug",
    "cjson.encode",
    "cjson.decode",
    "cjson.encode_max_depth",
    "cjson.decode_max_depth",
    "cjson.encode_sparse_array",
    "cjson.encode_number_precision",
    "cjson.encode_invalid_numbers",
    "cjson.decode_invalid_numbers",
    "cjson.new",
    "cmsgpack.pack",
    "cmsgpack.unpack",
    "cmsgpack.unpack_one",
    "cmsgpack.unpack_limit",
    "struct.pack",
    "struct.unpack",
    "struct.size",
    "bit.tobit",
    "bit.tohex",
    "bit.bnot",
    "bit.band",
    "bit.lshift",
    "bit.arshift",
    "bit.rol",
    "bit.bswap",
    "os.clock",
];

const NAMES: &[&str] = &["a", "b", "c", "d", "KEYS", "ARGV", "t"];
const OPERATORS: &[&str] = &["+", "-", "*", "/", "%", "^", "..", "==", "~=", "<", "<=", "and", "or"];
const EVENTS: &[&str] = &[
    "__index",
    "__newindex",
    "__call",
    "__concat",
    "__eq",
    "__lt",
    "__le",
    "__len",
    "__unm",
    "__add",
    "__tostring",
    "__mode",
    "__gc",
    "__metatable",
];
const FIELDS: &[&str] = &[
    "x",
    "n",
    "err",
    "ok",
    "map",
    "set",
    "double",
    "big_number",
    "verbatim_string",
    "string",
    "format",
    "null",
];

/// The program that some bytes stand for.
pub fn program(bytes: &[u8]) -> String {
    let mut writer = Writer {
        bytes: bytes.iter(),
        text: String::from("local a, b, c, d, t = 1, 'x', {}, nil, {1, 2, 3}\n"),
    };
    while writer.bytes.len() > 0 && writer.text.len() < TEXT_MAX {
        writer.statement(0);
        writer.text.push('\n');
    }
    writer.text.push_str("return {a, b, c, d, t}");
    writer.text
}

struct Writer<'b> {
    bytes: std::slice::Iter<'b, u8>,
    text: String,
}

impl Writer<'_> {
    fn choose(&mut self, count: usize) -> usize {
        usize::from(self.bytes.next().copied().unwrap_or(0)) % count
    }

    fn put(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn put_one(&mut self, of: &[&str]) {
        let chosen = of[self.choose(of.len())];
        self.put(chosen);
    }

    fn block(&mut self, depth: usize) {
        for _ in 0..=self.choose(3) {
            self.statement(depth + 1);
            self.put(" ");
        }
    }

    fn statement(&mut self, depth: usize) {
        let kinds = if depth >= DEPTH_MAX || self.text.len() > TEXT_MAX { 4 } else { 14 };
        match self.choose(kinds) {
            0 | 1 => {
                self.put_one(&["a", "b", "c", "d", "t"]);
                self.put(" = ");
                self.expression(depth);
            }
            2 => {
                self.put("pcall(");
                self.put_one(FUNCTIONS);
                self.arguments(depth, ", ");
                self.put(")");
            }
            3 => {
                self.put("do local v = ");
                self.expression(depth);
                self.put(" if type(v) == 'table' then v[");
                self.key(depth);
                self.put("] = ");
                self.expression(depth);
                self.put(" end end");
            }
            4 => {
                self.put("for i = ");
                self.number();
                self.put(", ");
                self.number();
                self.put(", ");
                self.number();
                self.put(" do ");
                self.block(depth);
                self.put(" if i then break end end");
            }
            5 => {
                self.put("if ");
                self.expression(depth);
                self.put(" then ");
                self.block(depth);
                self.put(" else ");
                self.block(depth);
                self.put(" end");
            }
            6 => {
                // A local function that may call itself.
                self.put("local function a(b, c, ...) ");
                self.block(depth);
                self.put(" return ");
                self.expression(depth);
                self.put(" end");
            }
            7 => {
                self.put("a = coroutine.wrap(function(...) ");
                self.block(depth);
                self.put(" coroutine.yield(...) ");
                self.block(depth);
                self.put(" end) b = {pcall(a, ");
                self.expression(depth);
                self.put(")}");
            }
            8 => {
                self.put("c = setmetatable(type(c) == 'table' and c or {}, {");
                self.put_one(EVENTS);
                self.put(" = ");
                self.function(depth);
                self.put("})");
            }
            9 => {
                self.put("for k, v in pairs(type(t) == 'table' and t or {}) do ");
                self.block(depth);
                self.put(" break end");
            }
            10 => {
                // As many values as there can be.
                self.put("t = {} for i = 1, ");
                let count = [3, 100, 7_990, 7_995, 7_997, 7_999, 8_001][self.choose(7)];
                let _ = write!(self.text, "{count} do t[i] = ");
                self.put_one(&["1", "'x'", "i", "c", "{}", "tostring"]);
                self.put(" end");
            }
            11 => {
                // Nested deeper than anything allows.
                self.put("c = {} for i = 1, ");
                self.number();
                self.put(" % 9000 do c = ");
                self.put_one(&["{c}", "{x = c}", "{c, c}", "{map = {x = c}}", "{set = {[c] = true}}"]);
                self.put(" end");
            }
            12 => {
                // A chunk whose parts are repeated, compiled while the heap changes.
                self.put("a = loadstring(");
                self.put_one(&[
                    "('do '):rep(%)",
                    "'return ' .. ('('):rep(%)",
                    "('x=1 '):rep(%)",
                    "'return [' .. ('='):rep(%) .. '['",
                    "('local x '):rep(%)",
                    "('a,'):rep(%) .. 'a=1'",
                    "'return ' .. ('{'):rep(%)",
                    "('function f() '):rep(%)",
                    "'x=' .. ('1..'):rep(%) .. '1'",
                ]);
                let at = self.text.rfind("(%)").unwrap_or(0);
                let count = self.choose(256) * 17;
                self.text.replace_range(at..at + 3, &format!("({count})"));
                self.put(", tostring(");
                self.expression(depth);
                self.put("))");
            }
            _ => {
                self.put("b = {pcall(function(...) ");
                self.block(depth);
                self.put(" return ");
                self.expression(depth);
                self.put(" end, unpack(t))}");
            }
        }
    }

    fn arguments(&mut self, depth: usize, before: &str) {
        let mut before = before;
        for _ in 0..self.choose(5) {
            self.put(before);
            before = ", ";
            self.expression(depth + 1);
        }
        if self.choose(8) == 7 {
            self.put(before);
            self.put("unpack(type(t) == 'table' and t or {})");
        }
    }

    fn number(&mut self) {
        self.put("(");
        self.put_one(NUMBERS);
        self.put(")");
    }

    fn key(&mut self, depth: usize) {
        match self.choose(4) {
            0 => self.number(),
            1 => {
                let name = FIELDS[self.choose(FIELDS.len())];
                let _ = write!(self.text, "'{name}'");
            }
            2 => self.put_one(STRINGS),
            _ => {
                // Neither nil nor NaN.
                self.put("tostring(");
                self.expression(depth + 1);
                self.put(")");
            }
        }
    }

    fn function(&mut self, depth: usize) {
        if self.choose(2) == 0 {
            self.put_one(FUNCTIONS);
        } else {
            self.put("function(x, y, ...) ");
            if depth < DEPTH_MAX {
                self.block(depth);
            }
            self.put(" return ");
            self.expression(depth + 1);
            self.put(" end");
        }
    }

    fn expression(&mut self, depth: usize) {
        let kinds = if depth >= DEPTH_MAX || self.text.len() > TEXT_MAX { 4 } else { 13 };
        match self.choose(kinds) {
            0 => self.number(),
            1 => self.put_one(STRINGS),
            2 => self.put_one(NAMES),
            3 => self.put_one(&["nil", "true", "false", "{}", "cjson.null"]),
            4 | 5 => {
                self.put("(select(2, pcall(");
                self.put_one(FUNCTIONS);
                self.arguments(depth, ", ");
                self.put(")))");
            }
            6 => {
                self.put("{");
                for _ in 0..self.choose(4) {
                    self.put("[");
                    self.key(depth + 1);
                    self.put("] = ");
                    self.expression(depth + 1);
                    self.put(", ");
                }
                self.arguments(depth, "");
                self.put("}");
            }
            7 => self.function(depth),
            8 => {
                // An operator may raise.
                self.put("(select(2, pcall(function(x, y) return x ");
                self.put_one(OPERATORS);
                self.put(" y end, ");
                self.expression(depth + 1);
                self.put(", ");
                self.expression(depth + 1);
                self.put(")))");
            }
            9 => {
                self.put("(");
                self.put_one(STRINGS);
                self.put("):rep(");
                self.number();
                self.put(" % ");
                self.put_one(&["10", "300", "20000", "1000000"]);
                self.put(")");
            }
            10 => {
                self.put("redis.pcall(");
                self.put_one(&[
                    "'get', 'declared'",
                    "'get', KEYS[1]",
                    "'nest', 70",
                    "'nest', 60",
                    "'many', 500",
                    "'fail'",
                ]);
                if self.choose(2) == 1 {
                    self.put(", unpack(type(t) == 'table' and t or {})");
                }
                self.put(")");
            }
            11 => {
                self.put("#tostring(");
                self.expression(depth + 1);
                self.put(")");
            }
            _ => {
                self.put("(select('#', ");
                self.expression(depth + 1);
                self.put(", unpack(type(t) == 'table' and t or {}, ");
                self.number();
                self.put(", ");
                self.number();
                self.put(")))");
            }
        }
    }
}
