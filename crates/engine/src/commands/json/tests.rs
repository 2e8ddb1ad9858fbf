//! Replies as RedisJSON 2.8 gives them, in both protocols, but for the differences in docs/json.md.

use dunlin_resp::Protocol;

use crate::transcript::{Scenario, check};

const ALL: &str = r#"{"a":1,"b":"foo","c":[1,2,3],"d":{"x":1},"e":true,"f":1.5,"n":null,"g":[]}"#;

fn with_all() -> Scenario {
    let mut scenario = Scenario::new();
    scenario.play(&format!("> JSON.SET k $ '{ALL}'\n+OK"));
    scenario
}

#[test]
fn json_set_puts_values_at_paths() {
    check(
        r#"
        > JSON.SET k $.a 1
        -ERR new objects must be created at the root
        > JSON.SET k . 1 XX
        $-1
        > JSON.SET k $ '{"a":1}'
        +OK
        > JSON.SET k $ 1 NX
        $-1
        3> JSON.SET k $ 1 NX
        _
        > JSON.SET k $.b '[2.50,"x"]' nx
        +OK
        > JSON.SET k $.b 2 NX
        $-1
        > JSON.SET k $.c 2 XX
        $-1
        > JSON.SET k $.c.d 2
        $-1
        > JSON.SET k $.c 2 FOO
        -ERR syntax error
        > JSON.SET k $.c 2 NX XX
        -ERR syntax error
        > JSON.SET k $.c {
        -EOF while parsing an object at line 1 column 1
        > JSON.GET k
        $21 {"a":1,"b":[2.5,"x"]}
        > TYPE k
        +ReJSON-RL
        > OBJECT ENCODING k
        $3 raw
        > SET k string
        +OK
        > JSON.SET k $ 1
        -WRONGTYPE Operation against a key holding the wrong kind of value
        > JSON.GET k
        -WRONGTYPE Operation against a key holding the wrong kind of value
        > JSON.DEL k
        -WRONGTYPE Operation against a key holding the wrong kind of value
        "#,
    );
}

#[test]
fn json_set_makes_typed_arrays() {
    check(
        r#"
        > JSON.SET k $ '{"v":[0.1,2.0],"m":[1,2.5]}' FPHA FP16
        +OK
        > JSON.GET k
        $39 {"v":[0.0999755859375,2.0],"m":[1,2.5]}
        > JSON.SET k $.w [1e30] FPHA FP16
        -ERR a number is out of range for FPHA
        > JSON.SET k $.w [0.5] XX FPHA FP8
        -ERR syntax error
        > JSON.ARRAPPEND k $.v 7
        *1 :3
        "#,
    );
}

#[test]
fn json_get_answers_both_dialects() {
    with_all().play(
        r#"
        > JSON.GET k .a
        $1 1
        > JSON.GET k $.a
        $3 [1]
        > JSON.GET k $.a b
        $23 {"$.a":[1],"b":["foo"]}
        > JSON.GET k a b
        $17 {"a":1,"b":"foo"}
        > JSON.GET k zz
        -ERR Path '$.zz' does not exist
        > JSON.GET k $.zz
        $2 []
        > JSON.GET k INDENT _ NEWLINE | SPACE . $.d
        $18 [|_{|__"x":.1|_}|]
        > JSON.GET k INDENT
        -ERR wrong number of arguments for 'json.get' command
        > JSON.GET k FORMAT EXPAND $.a
        -ERR FORMAT argument is not supported on RESP2
        > JSON.GET missing
        $-1
        3> JSON.GET missing FORMAT EXPAND $.a
        _
        3> JSON.GET k FORMAT EXPAND $.a $.d
        *2 *1 :1 *1 %1 $1 x :1
        3> JSON.GET k FORMAT EXPAND1 $.d $.e
        *2 *1 $7 {"x":1} *1 #t
        3> JSON.GET k FORMAT EXPAND zz
        *1 *0
        3> JSON.GET k FORMAT STRING $.a
        $3 [1]
        3> JSON.GET k FORMAT JSON $.a
        -ERR wrong reply format
        > JSON.MGET k missing $.a
        *2 $3 [1] $-1
        > JSON.MGET k missing .a
        *2 $1 1 $-1
        > JSON.MGET k .zz
        *1 $-1
        "#,
    );
}

#[test]
fn readers_answer_each_match() {
    with_all().play(
        r#"
        > JSON.TYPE k
        $6 object
        > JSON.TYPE k $.a
        *1 $7 integer
        3> JSON.TYPE k a
        *1 $7 integer
        3> JSON.TYPE k $.*
        *1 *8 $7 integer $6 string $5 array $6 object $7 boolean $6 number $4 null $5 array
        > JSON.TYPE k zz
        $-1
        3> JSON.TYPE missing $
        *1 _
        > JSON.STRLEN k $.*
        *8 $-1 :3 $-1 $-1 $-1 $-1 $-1 $-1
        > JSON.STRLEN k b
        :3
        > JSON.STRLEN k a
        -WRONGTYPE wrong type of path value - expected string but found integer
        > JSON.STRLEN missing
        $-1
        > JSON.STRLEN missing $
        -ERR could not perform this operation on a key that doesn't exist
        > JSON.OBJLEN k
        :8
        > JSON.OBJLEN k $.zz
        *0
        > JSON.OBJLEN missing $
        -ERR Path '$' does not exist or not an object
        > JSON.OBJKEYS k $.d
        *1 *1 $1 x
        > JSON.OBJKEYS k zz
        $-1
        > JSON.ARRLEN k $.c
        *1 :3
        > JSON.ARRINDEX k $.* 2
        *8 $-1 $-1 :1 $-1 $-1 $-1 $-1 :-1
        > JSON.ARRINDEX k c 3 0 -1
        :-1
        > JSON.ARRINDEX missing $ 1
        -ERR Path '$' does not exist
        > JSON.RESP k $.d
        *1 *3 +{ $1 x :1
        > JSON.RESP k f
        $3 1.5
        3> JSON.RESP k f
        ,1.5
        > JSON.RESP missing $
        $-1
        > JSON.DEBUG MEMORY missing
        :0
        > JSON.DEBUG MEMORY k $.a
        *1 :1
        > JSON.DEBUG HELP
        *2 +MEMORY <key> [path] - reports memory usage +HELP                - this message
        "#,
    );
}

#[test]
fn numbers_truth_values_and_strings_change() {
    with_all().play(
        r#"
        > JSON.NUMINCRBY k $.a 2
        $3 [3]
        > JSON.NUMINCRBY k a 2
        $1 5
        3> JSON.NUMINCRBY k a 1
        *1 :6
        3> JSON.NUMMULTBY k $.* 2
        *8 :12 _ _ _ _ ,3 _ _
        > JSON.NUMINCRBY k f 0.5
        $3 3.5
        > JSON.NUMPOWBY k a 2
        $3 144
        > JSON.NUMINCRBY k $.a x
        -ERR expected value at line 1 column 1
        > JSON.NUMINCRBY k $.a {}
        -bad input number
        > JSON.NUMINCRBY missing a 1
        -ERR could not perform this operation on a key that doesn't exist
        > JSON.TOGGLE k e
        $5 false
        > JSON.TOGGLE k $.e
        *1 :1
        > JSON.TOGGLE k a
        -ERR Path '$.a' does not exist or not a bool
        > JSON.STRAPPEND k $.b '"bar"'
        *1 :6
        > JSON.STRAPPEND k b 3
        -WRONGTYPE wrong type of path value - expected string but found 3
        > JSON.STRAPPEND k '"x"'
        -ERR Path '$' does not exist or not a string
        "#,
    );
}

#[test]
fn arrays_change() {
    with_all().play(
        r#"
        > JSON.ARRAPPEND k $.* 4 5
        *8 $-1 $-1 :5 $-1 $-1 $-1 $-1 :2
        > JSON.ARRINSERT k c 0 '"x"'
        :6
        > JSON.ARRINSERT k c 9 0
        -ERR index out of bounds
        > JSON.ARRINSERT k c x 0
        -Couldn't parse as integer
        > JSON.ARRPOP k c
        $1 5
        > JSON.ARRPOP k $.c 0
        *1 $3 "x"
        3> JSON.ARRPOP k FORMAT EXPAND $.c -2
        *1 :3
        > JSON.ARRTRIM k c 0 1
        :2
        > JSON.GET k c
        $5 [1,2]
        > JSON.ARRTRIM k $.c 5 9
        *1 :0
        > JSON.ARRPOP k c
        $-1
        > JSON.ARRPOP missing
        -ERR could not perform this operation on a key that doesn't exist
        "#,
    );
}

#[test]
fn values_are_merged_cleared_and_removed() {
    with_all().play(
        r#"
        > JSON.MERGE k $ '{"a":null,"d":{"y":2},"new":[1]}'
        +OK
        > JSON.GET k d new
        $29 {"d":{"x":1,"y":2},"new":[1]}
        > JSON.MERGE k $.zz.y 1
        $-1
        > JSON.MERGE missing $.a 1
        -ERR new objects must be created at the root
        > JSON.CLEAR k $.*
        :4
        > JSON.CLEAR missing
        -ERR could not perform this operation on a key that doesn't exist
        > JSON.DEL k $.c $.d
        -ERR syntax error
        > JSON.DEL k $.c
        :1
        > JSON.FORGET k $.zz
        :0
        > JSON.DEL missing
        :0
        > JSON.DEL k
        :1
        > EXISTS k
        :0
        "#,
    );
}

#[test]
fn json_mset_sets_all_or_none() {
    check(
        r#"
        > JSON.MSET a $ '{"x":1}' b $ [1] a $.x 2
        +OK
        > JSON.MGET a b $
        *2 $9 [{"x":2}] $5 [[1]]
        > JSON.MSET a $.x 3 c $.y 1
        -ERR new objects must be created at the root
        > JSON.MSET a $.x 3 b $ {
        -EOF while parsing an object at line 1 column 1
        > SET s string
        +OK
        > JSON.MSET a $.x 3 s $ 1
        -WRONGTYPE Operation against a key holding the wrong kind of value
        > JSON.GET a $.x
        $3 [2]
        > JSON.MSET a $ 1 b
        -ERR wrong number of arguments for 'json.mset' command
        "#,
    );
}

/// A document that is edited into its cell and out of it keeps its expiry and all its members.
#[test]
fn documents_leave_their_cells_and_come_back() {
    let mut scenario = Scenario::new();
    scenario.play("> JSON.SET k $ '{\"list\":[]}'\n+OK\n> EXPIRE k 100\n:1");
    for length in 1..400 {
        scenario.play(&format!("> JSON.ARRAPPEND k list {length}000\n:{length}"));
    }
    for length in (0..399).rev() {
        scenario.play(&format!(
            "> JSON.ARRPOP k list\n${} {}000",
            (length + 1usize).to_string().len() + 3,
            length + 1
        ));
    }
    scenario.play("> JSON.GET k\n$11 {\"list\":[]}\n> TTL k\n:100");
}

#[test]
fn documents_are_copied_dumped_and_restored() {
    let mut scenario = with_all();
    let long = format!("[{}]", vec![ALL; 5000].join(","));
    scenario.play(&format!("> JSON.SET long $ '{long}'\n+OK"));
    for key in ["k", "long"] {
        let dump = scenario.reply(&format!("DUMP {key}"), Protocol::Resp2);
        let start = dump.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let text: String = dump[start..dump.len() - 2].iter().map(|byte| format!("\\x{byte:02x}")).collect();
        scenario.play(&format!("> RESTORE again 0 \"{text}\" REPLACE\n+OK\n> COPY {key} copy REPLACE\n:1"));
        let expected = scenario.reply(&format!("JSON.GET {key}"), Protocol::Resp2);
        for other in ["again", "copy"] {
            assert_eq!(scenario.reply(&format!("JSON.GET {other}"), Protocol::Resp2), expected);
        }
    }
    scenario.play(
        "> JSON.SET copy $[0].a 7\n+OK\n> JSON.GET copy $[0].a\n$3 [7]\n> JSON.GET long $[0].a\n$3 [1]",
    );
}

/// Only what has changed something is recorded, in its own words.
#[test]
fn records_are_small() {
    let (mut scenario, records) = Scenario::recorded();
    scenario.play(&format!("> JSON.SET k $ '{ALL}'\n+OK"));
    records.take();
    scenario.play(
        r#"
        > JSON.SET k $.a 2 NX
        $-1
        > JSON.DEL k $.zz
        :0
        > JSON.NUMINCRBY k $.b 1
        $6 [null]
        > JSON.CLEAR k $.g
        :0
        > JSON.ARRPOP k $.g
        *1 $-1
        > JSON.SET many $ [[1],[]]
        +OK
        > JSON.ARRPOP many .[*]
        $-1
        > JSON.NUMINCRBY k $.a 1
        $3 [2]
        > JSON.MSET k $.a 1 k $.zz.y 1
        +OK
        > JSON.DEL k
        :1
        "#,
    );
    assert_eq!(
        records.take(),
        [
            "JSON.SET many $ [[1],[]]",
            "JSON.ARRPOP many .[*]",
            "JSON.NUMINCRBY k $.a 1",
            "JSON.MSET k $.a 1 k $.zz.y 1",
            "JSON.DEL k"
        ]
    );
}

/// Commands that read or make much are offloaded.
#[test]
fn long_commands_are_offloaded() {
    let mut scenario = Scenario::new();
    let long = format!("[{}]", vec![ALL; 5000].join(","));
    scenario.play(&format!("> JSON.SET k $ '{long}'\n+OK"));
    scenario.caller.visits_max = Some(10_000);
    for (line, is_long) in [
        ("JSON.GET k", true),
        ("JSON.GET k $[7].a", false),
        ("JSON.GET k $..a", true),
        ("JSON.TYPE k", false),
        ("JSON.OBJKEYS k $[3]", false),
        ("JSON.NUMINCRBY k $[3].a 1", false),
        ("JSON.NUMINCRBY k $..a 1", true),
        ("JSON.DEL k $[3].a", false),
        ("JSON.MGET k $", true),
    ] {
        scenario.offloaded = None;
        scenario.reply(line, Protocol::Resp2);
        assert_eq!(scenario.offloaded.take().is_some(), is_long, "{line}");
    }
    scenario.reply(&format!("JSON.SET other $ '{long}'"), Protocol::Resp2);
    assert!(scenario.offloaded.take().is_some());
}
