//! Matches of paths, as RedisJSON 2.8 answered these cases, and the bounds of evaluation.

use super::*;
use crate::{parse, write_text};

const DOCUMENT: &str = r#"{"a":1,"b":{"c":[1,2,3,{"d":"x","e":null}],"a":true,"f f":1.5,"arr":[[1,2],[3]]},"items":[{"n":"p","price":10,"t":["x"]},{"n":"q","price":20.5},{"n":"r","price":"30"},{"x":1}],"s":"foo","z":null,"$name":7,"n-1":8,"0":9,"":11,"lit'q":12}"#;

fn get(document: &str, path: &str) -> String {
    let document = parse(document.as_bytes()).expect("JSON");
    let path = Path::compile(path.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}"));
    let values = path.values(document.root(), &mut Budget::default()).expect("cheap");
    let texts: Vec<String> = values
        .into_iter()
        .map(|value| {
            let mut text = Vec::new();
            write_text(value, &mut text);
            String::from_utf8(text).expect("UTF-8")
        })
        .collect();
    format!("[{}]", texts.join(","))
}

#[test]
fn paths_match_what_redisjson_matches() {
    for (path, matches) in [
        ("$.a", "[1]"),
        ("$..a", "[1,true]"),
        ("$.b.*", r#"[[1,2,3,{"d":"x","e":null}],true,1.5,[[1,2],[3]]]"#),
        ("$['a','s']", r#"[1,"foo"]"#),
        ("$['a','a']", "[1,1]"),
        ("$['nope','a']", "[1]"),
        ("$.b.c[-1].d", r#"["x"]"#),
        ("$.b.c[-9]", "[1]"),
        ("$.b.c[9]", "[]"),
        ("$.b.c[2,0]", "[3,1]"),
        ("$.b.c[1:3]", "[2,3]"),
        ("$.b.c[::2]", "[1,3]"),
        ("$.b.c[-3:-1]", "[2,3]"),
        ("$.b.c[ 0 ]", "[1]"),
        ("$.b.c.0", "[]"),
        ("$.b.c.[0]", "[1]"),
        ("$..[0]", r#"[1,[1,2],1,3,{"n":"p","price":10,"t":["x"]},"x"]"#),
        ("$.items[?(@.price>10)].n", r#"["q"]"#),
        ("$.items[?(@.price>=10)].n", r#"["p","q"]"#),
        ("$.items[?(@.price!=10)].n", r#"["q","r"]"#),
        ("$.items[?(@.price<\"zz\")].n", r#"["r"]"#),
        ("$.items[?(@.n=~\"p|q\")].n", r#"["p","q"]"#),
        ("$.items[?(@.n=~\"(?i)P\")].n", r#"["p"]"#),
        ("$.items[?(@.price>15||@.n==\"p\"&&@.price<3)].n", r#"["q"]"#),
        ("$.items[?(@.t[*]==\"x\")].n", r#"["p"]"#),
        ("$.items[?(@.price==$.items[0].price)].n", r#"["p"]"#),
        ("$.items[?(10<@.price)].n", r#"["q"]"#),
        ("$[?(@>1)]", "[7,8,9,11,12]"),
        ("$.s[?(@==1)]", "[]"),
        ("$.a[?(@==1)]", "[1]"),
        ("$.b.c[?(@ == 1.0)]", "[1]"),
        ("$.n-1", "[8]"),
        ("$.$name", "[7]"),
        ("$['']", "[11]"),
        ("$.0", "[9]"),
        ("$[0]", "[]"),
        ("$['lit\\'q']", "[12]"),
        ("$.b['f f']", "[1.5]"),
        ("$. a ", "[1]"),
        ("$.b . c [ 1 ]", "[2]"),
        // Legacy: the first match alone.
        ("..a", "[1]"),
        ("b.c[0]", "[1]"),
        ("[\"b\"][\"c\"][1]", "[2]"),
        ("$name", "[7]"),
        (".b.*", r#"[[1,2,3,{"d":"x","e":null}]]"#),
        ("nope", "[]"),
    ] {
        assert_eq!(get(DOCUMENT, path), matches, "{path}");
    }
    for (document, path, matches) in [
        ("[1,2,[3]]", "$..[?(@>1)]", "[2,2,3,3]"),
        ("[1,2,[3]]", "$[?(@.x!=@.y)]", "[1,2,[3]]"),
        ("[1,2,[3]]", "$[?(@.x==null)]", "[]"),
        ("[1,2,[3]]", "$[?(@<=@)]", "[1,2]"),
        ("[1,2,[3]]", "$[?($..*)]", "[]"),
        ("[1,2,[3]]", "$[?(@[?(@==3)])]", "[[3]]"),
        ("[1,2,[3]]", "$[?(@==5&&@==4||@==1)]", "[1]"),
        ("[3,4]", "$[?((@==3||@==4)&&@==4)]", "[4]"),
        ("[1,2]", "$[?@==1||(((@==2)))]", "[1,2]"),
        ("[1,2]", "$[?(@==1)&&@==1]", "[1]"),
        ("[9007199254740993,9007199254740992]", "$[?(@==9007199254740993)]", "[9007199254740993]"),
        (r#"{"a":{"a":{"a":1}}}"#, "$..a..a", r#"[{"a":1},1,1]"#),
        (r#"[{"x":{"q":1},"y":{"q":1.0}}]"#, "$[?(@.x==@.y)].x", r#"[{"q":1}]"#),
        ("\"x\"", "$", "[\"x\"]"),
        ("\"x\"", "$..*", "[]"),
        (r#"{"é":1}"#, "$['é']", "[1]"),
    ] {
        assert_eq!(get(document, path), matches, "{document} {path}");
    }
}

#[test]
fn paths_are_refused_with_the_place_of_the_fault() {
    for (path, at) in [
        ("$.", 2),
        ("$.a.", 4),
        ("..", 3),
        ("$[a]", 2),
        ("$.b.c[::-1]", 8),
        ("$.b.c[::0]", 8),
        ("$...a", 3),
        ("$.a b", 4),
        ("$.'a'", 2),
        ("$['\\u0061']", 2),
        ("@", 2),
        ("$.a[", 4),
        ("$.a]", 3),
        ("$[", 2),
        ("$['a", 2),
        ("$.b.c[01]", 6),
        ("$[?()]", 4),
        ("$[?(@==)]", 7),
        ("$[?(@==1", 8),
        ("", 2),
        ("$[?(!@.a)]", 4),
        ("$.x,y", 3),
        ("$[99999999999999999999]", 2),
    ] {
        let error = Path::compile(path.as_bytes()).expect_err(path);
        assert!(
            error.to_string().starts_with(&format!("Error occurred on position {at}, ")),
            "{path}: {error}"
        );
    }
    assert_eq!(
        Path::compile(b"$.").unwrap_err().to_string(),
        "Error occurred on position 2, \"$. <<<<----\", expected one of the following: <string>, '*'."
    );
    Path::compile(&[b'$', b'.', 0xff]).unwrap_err();
    Path::compile(&b"a.".repeat(50_000)).unwrap_err();
    // Filters in filters, and parentheses, as many as fit.
    Path::compile(&b"$[?(@".iter().copied().chain(b"[?(@".repeat(1000)).collect::<Vec<_>>()).unwrap_err();
    let deep = format!("$[?{}@{}]", "(".repeat(30_000), ")".repeat(30_000));
    Path::compile(deep.as_bytes()).unwrap();
}

#[test]
fn paths_take_no_longer_than_their_budget() {
    let nested = "{\"a\":".repeat(100) + "1" + &"}".repeat(100);
    let document = parse(nested.as_bytes()).unwrap();
    let path = Path::compile("$..*".repeat(8).replace("*$", "*").as_bytes()).unwrap();
    assert_eq!(path.values(document.root(), &mut Budget::of(100_000)).unwrap_err(), TooExpensive);
    let numbers = parse(format!("[{}]", "1,".repeat(3000) + "1").as_bytes()).unwrap();
    for path in ["$[?($[?(@==2)]==1)]", "$[?($==$)]"] {
        let path = Path::compile(path.as_bytes()).unwrap();
        assert_eq!(path.values(numbers.root(), &mut Budget::of(100_000)).unwrap_err(), TooExpensive);
    }
}

#[test]
fn paths_find_the_place_of_a_missing_member() {
    let document = parse(DOCUMENT.as_bytes()).unwrap();
    let place = |path: &str| match Path::compile(path.as_bytes()).unwrap().new_member(&document) {
        NewMember::Into(location, name) => format!("{location:?} {}", String::from_utf8_lossy(name)),
        other => format!("{other:?}"),
    };
    assert_eq!(place("$.new"), "[] new");
    assert_eq!(place("b['new']"), "[1] new");
    assert_eq!(place("$.x.y"), "Nowhere");
    assert_eq!(place("$.b.c[9]"), "OutOfRange");
    assert_eq!(place("$.b.c.x"), "Nowhere");
    assert_eq!(place("$..new"), "NotStatic");
}
