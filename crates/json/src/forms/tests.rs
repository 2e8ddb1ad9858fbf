//! Forms of other servers: what they hold, and what is refused.

use proptest::prelude::*;

use super::*;
use crate::{
    tests::{document, model, values},
    write_text,
};

fn text(document: &Document) -> String {
    String::from_utf8(document.text()).expect("UTF-8")
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn cbor(bytes: &str) -> Result<String, LoadError> {
    load(4, [Item::String(&hex(bytes))]).map(|document| text(&document))
}

#[test]
fn forms_read_a_tree_of_nodes() {
    use Item::{Double, Signed, String, Unsigned};
    let tree = [
        Unsigned(0x20),
        Unsigned(3),
        Unsigned(0x80),
        String(b"a"),
        Unsigned(0x40),
        Unsigned(4),
        Unsigned(8),
        Signed(-5),
        Unsigned(4),
        Double(1.5),
        Unsigned(1),
        Unsigned(0x10),
        String(b"1"),
        Unsigned(0x80),
        String(b"b"),
        Unsigned(2),
        String(b"x\"y"),
        Unsigned(0x80),
        String(b"c"),
        Unsigned(0x20),
        Unsigned(0),
    ];
    assert_eq!(text(&load(0, tree).unwrap()), r#"{"a":[-5,1.5,null,true],"b":"x\"y","c":{}}"#);
    for cut in 0..tree.len() {
        load(0, tree[..cut].iter().copied()).unwrap_err();
    }
    load(0, tree.into_iter().chain([Unsigned(1)])).unwrap_err();
    // Counts beyond all items.
    load(0, [Unsigned(0x40), Unsigned(u64::MAX), Unsigned(1)]).unwrap_err();
    load(0, [Unsigned(0x40), Unsigned(1)].repeat(200)).unwrap_err();
    load(0, [Unsigned(2), String(b"\xff")]).unwrap_err();
    load(0, [Unsigned(4), Double(f64::NAN)]).unwrap_err();
}

#[test]
fn texts_are_read() {
    use Item::{String, Unsigned};
    assert_eq!(text(&load(3, [String(b"{\"k\": 1}")]).unwrap()), "{\"k\":1}");
    assert_eq!(text(&load(2, [String(b"[1]"), Unsigned(0)]).unwrap()), "[1]");
    assert_eq!(text(&load(2, [String(b"[1]"), Unsigned(1), String(b"i"), String(b"p")]).unwrap()), "[1]");
    load(3, [String(b"{")]).unwrap_err();
    load(3, [String(b"1"), Unsigned(1)]).unwrap_err();
    assert_eq!(load(1, []).unwrap_err(), LoadError::UnknownVersion(1));
    assert_eq!(load(5, []).unwrap_err(), LoadError::UnknownVersion(5));
}

#[test]
fn cbor_is_read_as_the_rfcs_have_it() {
    for (bytes, json) in [
        // RFC 8949, appendix A.
        ("00", "0"),
        ("1903e8", "1000"),
        ("1bffffffffffffffff", "18446744073709551615"),
        ("20", "-1"),
        ("3903e7", "-1000"),
        ("3b7fffffffffffffff", "-9223372036854775808"),
        ("f90000", "0.0"),
        ("f93e00", "1.5"),
        ("fb3ff199999999999a", "1.1"),
        ("fa47c35000", "100000.0"),
        ("f97c00", "null"),
        ("f4", "false"),
        ("f6", "null"),
        ("6449455446", "\"IETF\""),
        ("83010203", "[1,2,3]"),
        ("8301820203820405", "[1,[2,3],[4,5]]"),
        ("a26161016162820203", r#"{"a":1,"b":[2,3]}"#),
        ("7f657374726561646d696e67ff", "\"streaming\""),
        ("9f018202039f0405ffff", "[1,[2,3],[4,5]]"),
        ("bf61610161629f0203ffff", r#"{"a":1,"b":[2,3]}"#),
        ("80", "[]"),
        ("a0", "{}"),
        // RFC 8746.
        ("d84043010203", "[1,2,3]"),
        ("d8484301ff80", "[1,-1,-128]"),
        ("d845440100feff", "[1,65534]"),
        ("d841440001fffe", "[1,65534]"),
        ("d84d440100feff", "[1,-2]"),
        ("d85444003e0038", "[1.5,0.5]"),
        ("d8504438003e00", "[0.5,1.5]"),
        ("d855480000c03f00000040", "[1.5,2.0]"),
        ("d85648000000000000f83f", "[1.5]"),
        ("da0001000044803f0040", "[1.0,2.0]"),
        ("d85440", "[]"),
    ] {
        assert_eq!(cbor(bytes).as_deref(), Ok(json), "{bytes}");
    }
    for bytes in [
        "",
        "1c",
        "3bffffffffffffffff",
        "61ff",
        "8201",
        "9b7fffffffffffffff00",
        "a10101",
        "ff",
        "81ff",
        "d85441",
        "d85443003e00",
        "c001",
        "d85744003e0038",
        "d85442007c",
        "4161",
        "f8ff",
        "0000",
        "5f41 61ff",
        "28b52ffd00",
    ] {
        cbor(bytes).expect_err(bytes);
    }
    cbor(&"81".repeat(128)).unwrap_err();
    assert!(cbor(&("81".repeat(127) + "00")).is_ok());
}

#[test]
fn typed_arrays_become_plain_when_edited() {
    let mut document = load(4, [Item::String(&hex("a16176d85448003e00380040003c"))]).unwrap();
    assert_eq!(text(&document), r#"{"v":[1.5,0.5,2.0,1.0]}"#);
    let mut out = Vec::new();
    write_cbor(document.root(), &mut out);
    assert_eq!(out, hex("a16176d85448003e00380040003c"));
    assert_eq!(document.as_block().unwrap().len(), 3 + 2 + 5 + 8);
    document.replace(&[0, 1], &Document::string(b"x"));
    document.remove(&[0, 3], 1);
    assert_eq!(text(&document), r#"{"v":[1.5,"x",2.0]}"#);
}

proptest! {
    #[test]
    fn cbor_holds_what_documents_hold(value in values()) {
        let document = document(&value);
        let mut bytes = Vec::new();
        write_cbor(document.root(), &mut bytes);
        let again = load(4, [Item::String(&bytes)]).expect("CBOR");
        prop_assert_eq!(again.text(), document.text());
        prop_assert_eq!(model(again.root()), value);
        // Cut anywhere, it is refused.
        for cut in [0, bytes.len() / 3, bytes.len() - 1] {
            prop_assert!(load(4, [Item::String(&bytes[..cut])]).is_err());
        }
    }

    #[test]
    fn cbor_of_any_bytes_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(document) = load(4, [Item::String(&bytes)]) {
            let mut text = Vec::new();
            write_text(document.root(), &mut text);
            prop_assert!(crate::parse(&text).is_ok());
        }
    }
}
