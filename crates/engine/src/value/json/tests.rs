use proptest::prelude::*;

use super::*;
use crate::{
    rdb::{Input, ModuleName, Output, RdbError, Value, Version, read_value, types},
    value::{CollectionLimits, Layout, Stored},
};

fn json(text: &str) -> Json {
    Json::from(parse(text.as_bytes()).expect("a JSON text"))
}

fn text(json: &Json) -> String {
    String::from_utf8(json.document().text()).expect("UTF-8")
}

/// Reads a value of a module.
fn read(id: u64, items: &[u8]) -> Result<Value, RdbError> {
    let mut bytes = Vec::new();
    Output::new(&mut bytes, None).length(id).expect("a vector takes everything");
    bytes.extend_from_slice(items);
    let resources = Resources::for_tests();
    let limits = CollectionLimits::default();
    let layout = Layout { limits: &limits, resources: &resources };
    read_value(types::MODULE_2, Version::OLDEST, &mut Input::new(&bytes[..]), layout)
}

fn read_json(version: u64, items: &[u8]) -> Result<String, RdbError> {
    let value = read(ModuleName::id_of(b"ReJSON-RL") | version, items)?;
    let (read, _) = value.store(|value| match value {
        crate::value::NewValue::Object(Object::Json(json)) => text(&json),
        other => panic!("{other:?}"),
    });
    Ok(read)
}

#[test]
fn values_of_all_versions_are_read() {
    assert_eq!(read_json(3, b"\x05\x09{\"a\":[1]}\x00").unwrap(), r#"{"a":[1]}"#);
    assert_eq!(read_json(2, b"\x05\x02[]\x02\x00\x00").unwrap(), "[]");
    // An object of one member: an array of a number, an integer, a truth value and null.
    let tree = b"\x02\x20\x02\x01\x02\x40\x80\x05\x01m\x02\x40\x40\x02\x04\
                 \x02\x04\x04\x00\x00\x00\x00\x00\x00\xf8\x3f\x02\x08\x01\x07\x02\x10\x05\x011\x02\x01\x00";
    assert_eq!(
        read_json(0, tree).map_err(|error| error.to_string()),
        Ok(r#"{"m":[1.5,7,true,null]}"#.to_owned())
    );
    assert_eq!(read_json(4, b"\x05\x05\xa1\x61a\x18\x2a\x00").unwrap(), r#"{"a":42}"#);
}

#[test]
fn broken_values_are_refused_and_newer_ones_kept() {
    for (version, items) in [
        (3, &b"\x05\x01{\x00"[..]),
        (3, b"\x02\x01\x00"),
        (3, b"\x00"),
        (3, b"\x05\x02[]\x05\x02[]\x00"),
        (4, b"\x05\x01\xff\x00"),
    ] {
        assert!(matches!(read_json(version, items), Err(RdbError::Corrupt(_))), "{version} {items:?}");
    }
    assert!(matches!(read_json(3, b"\x05\x02[]"), Err(RdbError::Io(_))), "the source ends");
    let newer = read(ModuleName::id_of(b"ReJSON-RL") | 9, b"\x05\x02[]\x00").unwrap();
    assert_eq!(newer.foreign_type(), Some("ReJSON-RL"));
}

#[test]
fn long_texts_are_written_in_pieces() {
    let long = format!("[{}]", vec![r#"{"a":1,"b":"some text"}"#; 100_000].join(","));
    for document in [json(&long), json(r#"{"a":1}"#)] {
        let mut bytes = Vec::new();
        let mut output = Output::new(&mut bytes, None);
        document.write_rdb(Version::OLDEST, 0, &mut output).unwrap();
        let mut input = Input::new(&bytes[..]);
        let id = input.length().unwrap();
        assert_eq!(id, ModuleName::id_of(b"ReJSON-RL") | 3);
        assert_eq!((input.length().unwrap(), input.string().unwrap()), (5, text(&document).into_bytes()));
        assert_eq!(input.length().unwrap(), 0);
        assert!(input.is_at_end().unwrap());
    }
}

proptest! {
    /// A clone keeps what it had, a copy shares nothing, and the bytes are those of the blocks.
    #[test]
    fn clones_stay_and_memory_is_known(places in prop::collection::vec((0..3000_u32, 0..5_usize), 1..40)) {
        let mut edited = json(&format!("[{}]", vec![r#"{"name":"x","list":[1,2,3]}"#; 3000].join(",")));
        let before = text(&edited);
        let (clone, apart) = (edited.clone(), edited.copied());
        prop_assert!(edited.is(&clone) && !edited.is(&apart));
        for (place, length) in places {
            let value = parse(format!("\"{}\"", "y".repeat(length * 1000)).as_bytes()).unwrap();
            edited.edit(|document| document.set_member(&[place], b"name", &value));
            prop_assert_eq!(edited.outside_bytes(), size_of::<Held>() + edited.document().heap_bytes());
        }
        prop_assert!(!edited.is(&clone));
        prop_assert_eq!(text(&clone), before.clone());
        prop_assert_eq!(text(&apart), before);
    }
}
