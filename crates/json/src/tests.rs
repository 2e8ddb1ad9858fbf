//! The packed form, trees, parser and writer against `serde_json::Value`.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{BLOCK_BYTES_MAX, Document, Parser, ValueRef, parse, write_text};

/// JSON values of some depth: numbers of all widths, names that repeat, strings with what must be escaped.
pub(crate) fn values() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "[a-d]{0,3}".prop_map(String::from),
        any::<String>(),
        "[a-z\\\\\"\n\u{1}é𝄞]{0,80}".prop_map(String::from),
        (0usize..700).prop_map(|len| "long".repeat(len)),
    ];
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-300i64..300).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Value::from),
        (-100_000i32..100_000, 0i32..7)
            .prop_map(|(digits, scale)| json!(f64::from(digits) / 10f64.powi(scale))),
        text.prop_map(Value::from),
    ];
    scalar.prop_recursive(5, 200, 30, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..30).prop_map(Value::from),
            prop::collection::vec(("[a-z]{0,2}", inner), 0..30)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

pub(crate) fn document(value: &Value) -> Document {
    parse(value.to_string().as_bytes()).expect("JSON")
}

/// The model of a value.
pub(crate) fn model(value: ValueRef<'_>) -> Value {
    let mut text = Vec::new();
    write_text(value, &mut text);
    serde_json::from_slice(&text).expect("JSON")
}

/// All names and values are found at their places.
fn check(value: ValueRef<'_>) {
    if let Some(large) = value.large() {
        large.check();
    }
    assert_eq!(value.items().count(), value.len());
    for (ordinal, (name, item)) in value.items().enumerate() {
        assert!(value.item(ordinal).expect("an item").is_same(&item));
        if value.is_object() {
            let (found, member) = value.find(name).expect("a member");
            assert_eq!(found, ordinal);
            assert!(member.is_same(&item));
        }
        check(item);
    }
    assert!(value.item(value.len()).is_none() && value.find(b"no such name").is_none());
}

/// An edit, by numbers that say where.
#[derive(Debug, Clone)]
enum Edit {
    Replace(Value),
    Remove,
    Insert(Value),
}

fn edits() -> impl Strategy<Value = Vec<(Vec<u8>, Edit)>> {
    let edit =
        prop_oneof![values().prop_map(Edit::Replace), Just(Edit::Remove), values().prop_map(Edit::Insert),];
    prop::collection::vec((prop::collection::vec(any::<u8>(), 0..5), edit), 1..20)
}

/// Does an edit to a document and to its model, which sorts members: the way goes by the document's order.
fn edit_both(document: &mut Document, way: &[u8], edit: &Edit) {
    let before = document.clone();
    let text_before = document.text();
    let mut expected = model(document.root());
    let mut location = Vec::new();
    let mut names: Vec<Option<String>> = Vec::new();
    for &step in way {
        let value = document.at(&location).expect("a place");
        if value.is_empty() {
            break;
        }
        let ordinal = usize::from(step) % value.len();
        let (name, _) = value.items().nth(ordinal).expect("an item");
        names.push(value.is_object().then(|| String::from_utf8(name.to_vec()).expect("UTF-8")));
        location.push(ordinal as u32);
    }
    fn at<'a>(mut value: &'a mut Value, names: &[Option<String>], location: &[u32]) -> &'a mut Value {
        for (name, &ordinal) in names.iter().zip(location) {
            value = match name {
                Some(name) => &mut value[name.as_str()],
                None => &mut value[ordinal as usize],
            };
        }
        value
    }
    match edit {
        Edit::Replace(new) => {
            document.replace(&location, &self::document(new));
            *at(&mut expected, &names, &location) = new.clone();
        }
        Edit::Remove => {
            let Some((&last, outer)) = location.split_last() else { return };
            document.remove(&location, 1);
            match at(&mut expected, &names[..outer.len()], outer) {
                Value::Array(items) => {
                    items.remove(last as usize);
                }
                Value::Object(members) => {
                    members.remove(names[outer.len()].as_deref().expect("a name"));
                }
                _ => unreachable!("a container"),
            }
        }
        Edit::Insert(new) => {
            let value = document.at(&location).expect("a place");
            if value.is_array() {
                let place = way.last().map_or(0, |&step| usize::from(step)) % (value.len() + 1);
                let new = vec![new.clone(), json!("second")];
                let documents: Vec<Document> = new.iter().map(self::document).collect();
                document.insert_values(&location, place, &documents);
                at(&mut expected, &names, &location)
                    .as_array_mut()
                    .expect("an array")
                    .splice(place..place, new);
            } else if value.is_object() {
                document.set_member(&location, b"new", &self::document(new));
                at(&mut expected, &names, &location)["new"] = new.clone();
            }
        }
    }
    assert_eq!(model(document.root()), expected);
    check(document.root());
    assert_eq!(before.text(), text_before, "a clone keeps what it was");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn documents_hold_what_was_parsed(value in values()) {
        let text = value.to_string();
        let document = document(&value);
        prop_assert_eq!(model(document.root()), value);
        check(document.root());
        // Parsed again in pieces of every length, it is the same.
        for piece in [1, 2, 3, 7] {
            let mut parser = Parser::new();
            for part in text.as_bytes().chunks(piece) {
                parser.feed(part).expect("JSON");
            }
            prop_assert_eq!(parser.finish().expect("JSON").text(), document.text());
        }
    }

    #[test]
    fn numbers_and_order_of_members_survive(members in prop::collection::vec(("[a-z]{0,40}", any::<f64>()), 0..400)) {
        let mut text = String::from("{");
        let mut expected: Vec<(String, f64)> = Vec::new();
        for (name, number) in members.into_iter().filter(|(_, number)| number.is_finite()) {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&format!("\"{name}\":{number:?}"));
            match expected.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = number,
                None => expected.push((name, number)),
            }
        }
        text.push('}');
        let document = parse(text.as_bytes()).expect("JSON");
        let found: Vec<(String, f64)> = document
            .root()
            .items()
            .map(|(name, value)| {
                (String::from_utf8(name.to_vec()).expect("UTF-8"), value.as_number().expect("a number").as_f64())
            })
            .collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn edits_do_what_they_do_to_the_model(value in values(), edits in edits()) {
        let mut document = document(&value);
        for (way, edit) in &edits {
            edit_both(&mut document, way, edit);
        }
    }

    #[test]
    fn parser_reads_any_bytes_as_serde_json_does(text in "[\\[\\]{}:,\"\\\\ \n0-9eE+.a-u-]{0,12}") {
        let ours = parse(text.as_bytes());
        let theirs = serde_json::from_str::<Value>(&text);
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(model(ours.root()), theirs),
            (Err(_), Err(_)) => {}
            (ours, theirs) => prop_assert!(false, "{:?} {:?}", ours, theirs),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A pass does what the same edits do one after another.
    #[test]
    fn change_many_is_as_many_edits(
        parts in prop::collection::vec(values(), 1..8),
        wide in 20usize..1500,
        choices in prop::collection::vec((any::<u8>(), prop::option::of(values())), 17..60),
    ) {
        let value: Value = (0..wide).map(|at| json!({"id": at, "part": parts[at % parts.len()]})).collect();
        let document = document(&json!([value, parts]));
        let mut every = Vec::new();
        let all = crate::path::Path::compile(b"$..*").unwrap();
        all.evaluate(document.root(), &mut crate::path::Budget::default(), |location, _| {
            every.push(location.to_vec());
            true
        })
        .unwrap();
        every.sort_unstable();
        let mut changes: Vec<(crate::Location, Option<Document>)> = Vec::new();
        let mut at = 0;
        for (step, value) in choices.iter().cycle().take(2000) {
            at += usize::from(*step) + 1;
            let Some(location) = every.get(at) else { break };
            if changes.last().is_none_or(|(outer, _)| !location.starts_with(outer)) {
                changes.push((location.clone(), value.as_ref().map(self::document)));
            }
        }
        let mut one_by_one = document.clone();
        for (location, value) in changes.iter().rev() {
            match value {
                Some(value) => one_by_one.replace(location, value),
                None => one_by_one.remove(location, 1),
            }
        }
        let before = document.text();
        let mut at_once = document.clone();
        at_once.change_many(changes);
        prop_assert_eq!(at_once.text(), one_by_one.text());
        check(at_once.root());
        prop_assert_eq!(document.text(), before);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    /// Documents of some hundred kilobytes, so that containers of all levels are in runs.
    #[test]
    fn edits_of_large_documents_do_what_they_do_to_the_model(
        parts in prop::collection::vec(values(), 3..12),
        wide in 200usize..3000,
        as_object in any::<bool>(),
        edits in edits(),
    ) {
        let many = |at: usize| {
            let part = json!({"id": at, "text": "x".repeat(at % 90), "part": parts[at % parts.len()]});
            if part.to_string().len() > 3000 { json!(at) } else { part }
        };
        let inner: Value = if as_object {
            Value::Object((0..wide).map(|at| (format!("name {at}"), many(at))).collect())
        } else {
            (0..wide).map(many).collect()
        };
        let value = json!({"a": inner.clone(), "b": [inner, "y".repeat(100_000)], "c": parts});
        let mut document = document(&value);
        assert!(document.as_block().is_none() || value.to_string().len() < BLOCK_BYTES_MAX * 2);
        prop_assert_eq!(model(document.root()), value);
        for (way, edit) in &edits {
            edit_both(&mut document, way, edit);
        }
    }
}

#[test]
fn double_names_keep_the_last_value_in_the_first_place() {
    let few = parse(br#"{"a":1,"b":2,"a":3}"#).unwrap();
    assert_eq!(few.text(), br#"{"a":3,"b":2}"#);
    // In a large object, whose first run has long been written.
    let mut text = String::from("{\"first\":0");
    for at in 0..20_000 {
        text.push_str(&format!(",\"n{}\":{at}", at % 15_000));
    }
    text.push_str(",\"first\":\"last\"}");
    let document = parse(text.as_bytes()).unwrap();
    assert_eq!(document.root().len(), 15_001);
    assert_eq!(document.at(&[0]).unwrap().as_string(), Some(&b"last"[..]));
    assert_eq!(document.root().find(b"n3").unwrap().0, 4);
    assert_eq!(model(document.root())["n3"], json!(15_003));
    check(document.root());
}

#[test]
fn depth_is_bounded_and_errors_say_where() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(parse(nested(127).as_bytes()).unwrap().root().depth(), 127);
    for (text, error) in [
        (nested(128).as_str(), "recursion limit exceeded at line 1 column 128"),
        ("{\"a\":}", "expected value at line 1 column 6"),
        ("[1,]", "trailing comma at line 1 column 4"),
        ("01", "invalid number at line 1 column 2"),
        ("1.", "EOF while parsing a value at line 1 column 2"),
        ("nan", "expected ident at line 1 column 2"),
        ("", "EOF while parsing a value at line 1 column 0"),
        ("\"\\ud800\"", "unexpected end of hex escape at line 1 column 8"),
        ("\"\t\"", "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 2"),
        ("1e400", "number out of range at line 1 column 5"),
        ("1 2", "trailing characters at line 1 column 3"),
        ("[\n1\n2]", "expected `,` or `]` at line 3 column 1"),
        ("{1:2}", "key must be a string at line 1 column 2"),
        ("x", "expected value at line 1 column 1"),
    ] {
        assert_eq!(parse(text.as_bytes()).unwrap_err().to_string(), error, "{text}");
    }
    assert_eq!(parse(b"\"\xff\"").unwrap_err().to_string(), "Couldn't parse as UTF-8 string");
}

#[test]
fn numbers_keep_their_kind() {
    for (text, written) in [
        ("-0", "-0.0"),
        ("1.0", "1.0"),
        ("1e5", "100000.0"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "1.8446744073709552e19"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("-9223372036854775809", "-9.223372036854776e18"),
        ("1e16", "1e16"),
        ("0.00001", "0.00001"),
        ("3.0e-7", "3e-7"),
        ("0.1e-400", "0.0"),
        ("1.7976931348623157e308", "1.7976931348623157e308"),
    ] {
        assert_eq!(String::from_utf8(parse(text.as_bytes()).unwrap().text()).unwrap(), written);
    }
}

#[test]
fn packed_form_is_no_longer_than_the_text() {
    let records: Value = (0..300)
        .map(|at| {
            json!({"id": at * 977, "name": format!("user {at}"), "price": f64::from(at) * 1.25, "ok": at % 2 == 0,
                "tags": ["a", "bc", at], "at": {"x": -at, "y": null, "z": 1e-9}})
        })
        .collect();
    let numbers: Value = (0..10_000).collect();
    let doubles: Value = (0..5000).map(|at| json!(f64::from(at) / 100.0)).collect();
    let names: Value = Value::Object((0..2000).map(|at| (format!("k{at}"), json!(at))).collect());
    for value in [records, numbers, doubles, names, json!([[], {}, [1], {"a": 1}, "", null])] {
        let text = value.to_string();
        let document = document(&value);
        let bytes = document.as_block().map_or_else(|| document.heap_bytes(), <[u8]>::len);
        assert!(bytes <= text.len() + 8, "{bytes} of {}", text.len());
    }
}

#[test]
fn edits_of_shared_documents_copy_one_block() {
    let value: Value = (0..100_000).map(|at| json!({"id": at, "name": format!("name {at}")})).collect();
    let mut document = document(&value);
    let snapshot = document.clone();
    document.replace(&[50_000, 1], &Document::string(b"another"));
    let runs = |document: &Document| match document.node() {
        crate::tree::Node::Large(large) => large.runs.clone(),
        crate::tree::Node::Block(_) => unreachable!("a large document"),
    };
    let (new, old) = (runs(&document), runs(&snapshot));
    assert!(new.len() > 50);
    let copied = new.iter().zip(&old).filter(|(new, old)| !std::sync::Arc::ptr_eq(new, old)).count();
    assert_eq!(copied, 1);
    assert_eq!(snapshot.at(&[50_000, 1]).unwrap().as_string(), Some(&b"name 50000"[..]));
}

#[test]
fn large_containers_that_shrink_become_blocks() {
    for as_object in [false, true] {
        let wide = 20_000;
        let value: Value = if as_object {
            Value::Object((0..wide).map(|at| (format!("name {at:05}"), json!(at))).collect())
        } else {
            (0..wide).map(|at| json!([at, at])).collect()
        };
        let mut document = document(&value);
        assert!(document.as_block().is_none());
        while document.root().len() > 300 {
            document.remove(&[7], if as_object { 1 } else { 100 });
        }
        check(document.root());
        assert!(document.as_block().is_some(), "{} bytes", document.heap_bytes());
        let last = document.root().len() - 1;
        assert_eq!(
            model(document.at(&[last as u32]).unwrap()),
            if as_object { json!(wide - 1) } else { json!([wide - 1, wide - 1]) }
        );
    }
}

#[test]
fn values_of_any_length_go_anywhere() {
    let mut document = document(&json!({"a": {"b": [1, {"c": 2}]}}));
    let long: Value = (0..30_000).collect();
    document.replace(&[0, 0, 1, 0], &self::document(&long));
    document.set_member(&[0], b"text", &Document::string("t".repeat(300_000).as_bytes()));
    let mut expected = json!({"a": {"b": [1, {"c": long}], "text": "t".repeat(300_000)}});
    assert_eq!(model(document.root()), expected);
    document.replace(&[0, 0, 1, 0, 29_999], &self::document(&json!("end")));
    expected["a"]["b"][1]["c"][29_999] = json!("end");
    assert_eq!(model(document.root()), expected);
    document.remove(&[0, 0, 1, 0, 0], 29_999);
    assert_eq!(document.at(&[0, 0, 1, 0]).unwrap().len(), 1);
    document.remove(&[0, 0, 1, 0, 0], 1);
    assert_eq!(document.at(&[0, 0, 1, 0]).unwrap().len(), 0);
    check(document.root());
}
