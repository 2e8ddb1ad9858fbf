//! Results and replies of operations, as RedisJSON 2.8 gave them.

use super::*;
use crate::{Layout, Number, parse};

const DOCUMENT: &str = r#"{"a":1,"f":1.5,"b":{"c":[1,2,3],"a":true},"s":"foo","z":null,"arr":[1,[2,"x"],"x",1],"n":{"a":5},"e":[]}"#;

fn path(text: &str) -> Path {
    Path::compile(text.as_bytes()).expect("a path")
}

fn text(document: &Document) -> String {
    String::from_utf8(document.text()).expect("UTF-8")
}

fn json(text: &str) -> Document {
    parse(text.as_bytes()).expect("JSON")
}

/// The reply of an operation, and a part of the document after it.
fn after<T: fmt::Debug>(
    at: &str,
    operation: impl FnOnce(&mut Document) -> Result<T, Refusal>,
) -> (String, String) {
    let mut document = json(DOCUMENT);
    let result = operation(&mut document);
    if result.is_err() {
        assert_eq!(text(&document), DOCUMENT, "nothing is changed");
    }
    let answer = match result {
        Ok(answer) => format!("{answer:?}"),
        Err(refusal) => refusal.to_string(),
    };
    let mut shown = Vec::new();
    let _ = get(document.root(), &[path(at)], Layout::default(), &mut shown);
    (answer, String::from_utf8(shown).expect("UTF-8"))
}

#[test]
fn set_replaces_or_adds_a_member() {
    let set = |at: &str, condition| after("$", |document| set(document, &path(at), &json("9"), condition)).0;
    use Condition::*;
    for (at, condition, answer) in [
        ("$.a", Always, "true"),
        ("$.new", Always, "true"),
        ("b.new", Always, "true"),
        ("$.x.y", Always, "false"),
        ("$.arr[9]", Always, "ERR array index out of range"),
        ("$.arr.x", Always, "false"),
        ("$..new", Always, "Err wrong static path"),
        ("$['p','q']", Always, "Err wrong static path"),
        ("$.a", IfMissing, "false"),
        ("$.new", IfMissing, "true"),
        ("$..a", IfMissing, "Err wrong static path"),
        ("$.new", IfThere, "false"),
        ("$..a", IfThere, "true"),
    ] {
        assert_eq!(set(at, condition), answer, "{at} {condition:?}");
    }
    let mut document = json(r#"{"a":{"a":1},"b":[{"a":2}]}"#);
    super::set(&mut document, &path("$..a"), &json("{\"q\":1}"), Always).unwrap();
    assert_eq!(text(&document), r#"{"a":{"q":1},"b":[{"a":{"q":1}}]}"#);
}

#[test]
fn writers_keep_to_the_depth_of_texts() {
    let mut document = json(&("{\"a\":".repeat(100) + "1" + &"}".repeat(100)));
    let at = path(&format!("${}", ".a".repeat(100)));
    let deep = |depth: usize| json(&("[".repeat(depth) + &"]".repeat(depth)));
    set(&mut document, &at, &deep(27), Condition::Always).unwrap();
    parse(&document.text()).unwrap();
    assert_eq!(set(&mut document, &at, &deep(28), Condition::Always), Err(Refusal::TooDeep));
}

#[test]
fn delete_clear_and_toggle_count() {
    let delete = |at: &str| after("$", |document| delete(document, &path(at)));
    assert_eq!(delete("$..a").0, "Some(3)");
    assert_eq!(delete("nope").0, "Some(0)");
    assert_eq!(delete("$").0, "None");
    // Members keep their order.
    assert_eq!(delete("$.arr").1, format!("[{}]", DOCUMENT.replace(r#""arr":[1,[2,"x"],"x",1],"#, "")));
    let clear = |at: &str| after("$", |document| clear(document, &path(at)));
    assert_eq!(clear("$.*").0, "5");
    assert_eq!(clear("$").1, "[{}]");
    assert_eq!(clear("$.s").0, "0");
    let toggle = |at: &str| after("$.b.a", |document| toggle(document, &path(at)));
    assert_eq!(toggle("$..a"), ("Each([None, Some(false), None])".into(), "[false]".into()));
    assert_eq!(toggle("..a").0, "One(false)");
    assert_eq!(toggle("a").0, "ERR Path '$.a' does not exist or not a bool");
}

#[test]
fn arithmetic_is_exact() {
    let compute = |number: &str, operation, by: &str| {
        let mut document = json(number);
        operand(by.as_bytes())
            .and_then(|by| arithmetic(&mut document, &path("."), operation, by))
            .map_or_else(|refusal| refusal.to_string(), |_| text(&document))
    };
    use Arithmetic::*;
    for (number, operation, by, result) in [
        ("1", Add, "2", "3"),
        ("1", Add, "2.0", "3.0"),
        ("1.5", Add, "2", "3.5"),
        ("9223372036854775807", Add, "1", "9223372036854775808"),
        ("18446744073709551615", Add, "1", "ERR result is an integer out of range"),
        ("-1", Add, "18446744073709551615", "18446744073709551614"),
        ("5", Multiply, "-7", "-35"),
        ("2", Multiply, "0.5", "1.0"),
        ("1e308", Multiply, "10", "ERR result is not a number"),
        ("2", Power, "3", "8"),
        ("2", Power, "-1", "0.5"),
        ("-2", Power, "0.5", "ERR result is not a number"),
        ("1", Power, "18446744073709551615", "1"),
        ("1", Add, "\"x\"", "bad input number"),
        ("1", Add, "x", "expected value at line 1 column 1"),
        ("\"s\"", Add, "1", "ERR Path '$' does not exist or does not contains a number"),
    ] {
        assert_eq!(compute(number, operation, by), result, "{number} {operation:?} {by}");
    }
    let mut document = json(DOCUMENT);
    let answer = arithmetic(&mut document, &path("$..a"), Add, Number::Int(2)).unwrap();
    assert_eq!(answer, Answer::Each(vec![Some(Number::Int(3)), None, Some(Number::Int(7))]));
    assert_eq!(arithmetic(&mut document, &path("..a"), Add, Number::Int(2)), Ok(Answer::One(Number::Int(9))));
}

#[test]
fn arrays_change_as_they_do_in_redisjson() {
    let values = [json("9"), json("8")];
    let insert = |index| after("arr", |document| arr_insert(document, &path("$.arr"), index, &values));
    assert_eq!(insert(0), ("Each([Some(6)])".into(), r#"[9,8,1,[2,"x"],"x",1]"#.into()));
    assert_eq!(insert(-1).1, r#"[1,[2,"x"],"x",9,8,1]"#);
    assert_eq!(insert(4).1, r#"[1,[2,"x"],"x",1,9,8]"#);
    assert_eq!(insert(5).0, "ERR index out of bounds");
    assert_eq!(insert(-5).0, "ERR index out of bounds");
    assert_eq!(after("arr", |document| arr_append(document, &path(".*"), &values)).0, "One(2)");
    assert_eq!(
        after("arr", |document| arr_append(document, &path("a"), &values)).0,
        "ERR Path 'a' does not exist or not an array"
    );
    let pop = |index| after("arr", |document| arr_pop(document, &path("$.arr"), index)).1;
    for (index, left) in [
        (0, r#"[[2,"x"],"x",1]"#),
        (-1, r#"[1,[2,"x"],"x"]"#),
        (2, r#"[1,[2,"x"],1]"#),
        (99, r#"[1,[2,"x"],"x"]"#),
        (-9, r#"[[2,"x"],"x",1]"#),
    ] {
        assert_eq!(pop(index), left, "{index}");
    }
    assert_eq!(after("e", |document| arr_pop(document, &path("e"), -1)).0, "One(None)");
    let trim = |start, stop| after("arr", |document| arr_trim(document, &path("$.arr"), start, stop)).1;
    for (start, stop, left) in [
        (0, 1, r#"[1,[2,"x"]]"#),
        (1, -1, r#"[[2,"x"],"x",1]"#),
        (2, 1, "[]"),
        (-2, -1, r#"["x",1]"#),
        (0, 99, r#"[1,[2,"x"],"x",1]"#),
        (9, 10, "[]"),
        (-99, 1, r#"[1,[2,"x"]]"#),
        (0, -9, "[1]"),
    ] {
        assert_eq!(trim(start, stop), left, "{start} {stop}");
    }
    let document = json(DOCUMENT);
    let index = |value: &str, start, stop| match arr_index(
        document.root(),
        &path("arr"),
        &json(value),
        start,
        stop,
    ) {
        Ok(Answer::One(index)) => index,
        other => panic!("{other:?}"),
    };
    for (value, start, stop, found) in [
        ("1", 0, 0, 0),
        ("1", 1, 0, 3),
        ("1", 1, -1, -1),
        ("1", -1, 0, 3),
        ("\"x\"", 0, 0, 2),
        ("[2,\"x\"]", 0, 0, 1),
        ("1", 9, 0, 3),
        ("1.0", 0, 0, -1),
        ("1", -99, 0, 0),
        ("1", 1, 99, 3),
    ] {
        assert_eq!(index(value, start, stop), found, "{value} {start} {stop}");
    }
}

#[test]
fn very_many_arrays_change_as_few_do() {
    // Arrays in arrays, as many as make passes over the document.
    let inner = r#"[1,[],["x",[2]],{"a":[3,4,5]}]"#;
    let whole = format!("[{}]", vec![inner; 3000].join(","));
    let expected = |inner: &str| format!("[[{}]]", vec![inner; 3000].join(","));
    let shown = |document: &Document| {
        let mut out = Vec::new();
        get(document.root(), &[path("$")], Layout::default(), &mut out).expect("the root");
        String::from_utf8(out).expect("UTF-8")
    };
    let mut document = json(&whole);
    let Ok(Answer::Each(lengths)) = arr_append(&mut document, &path("$..*"), &[json("9"), json("[0]")])
    else {
        panic!()
    };
    assert_eq!(lengths.iter().flatten().count(), 5 * 3000);
    assert_eq!(lengths[0], Some(6));
    assert_eq!(shown(&document), expected(r#"[1,[9,[0]],["x",[2,9,[0]],9,[0]],{"a":[3,4,5,9,[0]]},9,[0]]"#));
    arr_trim(&mut document, &path("$..*"), 0, 1).unwrap();
    assert_eq!(shown(&document), expected(r#"[1,[9,[0]]]"#));
    let Ok(Answer::Each(popped)) = arr_pop(&mut document, &path("$[*]"), 0) else { panic!() };
    assert_eq!((popped.len(), shown(&document)), (3000, expected("[[9,[0]]]")));
    assert!(popped.into_iter().all(|popped| popped.flatten().is_some_and(|popped| text(&popped) == "1")));
    // A single refusal, and nothing is changed.
    assert_eq!(arr_insert(&mut document, &path("$..*"), 2, &[json("1")]), Err(Refusal::IndexOutOfBounds));
    assert_eq!(shown(&document), expected("[[9,[0]]]"));
}

#[test]
fn merge_follows_rfc_7396() {
    let merge = |document: &str, at: &str, patch: &str| {
        let mut document = json(document);
        match merge(&mut document, &path(at), &json(patch)) {
            Ok(true) => text(&document),
            other => format!("{other:?}"),
        }
    };
    // The examples of the RFC's appendix.
    for (target, patch, result) in [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
        (r#"{"a":"foo"}"#, "null", "null"),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
        ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
        ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        (
            r#"{"x":1,"a":{"p":1},"y":2}"#,
            r#"{"x":null,"a":{"p":null,"q":2},"y":3}"#,
            r#"{"a":{"q":2},"y":3}"#,
        ),
    ] {
        assert_eq!(merge(target, "$", patch), result, "{target} {patch}");
    }
    assert_eq!(merge("{}", "$.new", r#"{"x":null}"#), r#"{"new":{"x":null}}"#);
    assert_eq!(merge("{}", "$.x.y", "1"), "Ok(false)");
    assert_eq!(merge(r#"{"b":1}"#, "$.b", "null"), r#"{"b":null}"#);
}

#[test]
fn readers_answer_each_dialect() {
    let document = json(DOCUMENT);
    let show = |result: Result<String, Refusal>| result.unwrap_or_else(|refusal| refusal.to_string());
    let len = |at: &str| show(str_len(document.root(), &path(at)).map(|answer| format!("{answer:?}")));
    assert_eq!(len("$.s"), "Each([Some(3)])");
    assert_eq!(len("s"), "One(3)");
    assert_eq!(len("..a"), "WRONGTYPE wrong type of path value - expected string but found integer");
    assert_eq!(len("nope"), "ERR Path '$.nope' does not exist");
    assert_eq!(
        show(arr_len(document.root(), &path("nope")).map(|_| String::new())),
        "ERR Path 'nope' does not exist"
    );
    let get = |paths: &[&str], layout| {
        let paths: Vec<Path> = paths.iter().map(|text| path(text)).collect();
        let mut out = Vec::new();
        show(get(document.root(), &paths, layout, &mut out).map(|()| String::from_utf8(out).expect("UTF-8")))
    };
    let plain = Layout::default();
    assert_eq!(get(&["a", "s"], plain), r#"{"a":1,"s":"foo"}"#);
    assert_eq!(get(&["a", "$.s"], plain), r#"{"a":[1],"$.s":["foo"]}"#);
    assert_eq!(get(&["a", "nope"], plain), "ERR Path 'nope' does not exist");
    assert_eq!(get(&["nope"], plain), "ERR Path '$.nope' does not exist");
    let laid_out = Layout { indent: b"--", newline: b"|", space: b"~" };
    assert_eq!(
        get(&["$.b"], laid_out),
        r#"[|--{|----"c":~[|------1,|------2,|------3|----],|----"a":~true|--}|]"#
    );
    assert_eq!(get(&["$.e", "$.a"], Layout { space: b"~", ..plain }), r#"{"$.e":~[[]],"$.a":~[1]}"#);
}
