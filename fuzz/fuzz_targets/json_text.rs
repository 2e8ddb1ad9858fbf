//! Any bytes as JSON text, whole and in pieces: refused, or a document whose text reads back as the same one, whose packed
//! form finds every member, and which CBOR holds.

#![no_main]

use dunlin_json::{
    Parser, ValueRef,
    forms::{self, Item, write_cbor},
    parse,
};
use libfuzzer_sys::fuzz_target;

fn check(value: ValueRef<'_>) {
    assert_eq!(value.items().count(), value.len());
    for (ordinal, (name, item)) in value.items().enumerate() {
        assert!(value.item(ordinal).is_some_and(|other| other.is_same(&item)));
        if value.is_object() {
            assert_eq!(value.find(name).map(|(found, _)| found), Some(ordinal));
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, text)) = data.split_first() else { return };
    let whole = parse(text);
    let mut parser = Parser::new();
    let fed = text.chunks(usize::from(piece % 16) + 1).try_for_each(|part| parser.feed(part));
    let pieces = fed.and_then(|()| parser.finish());
    assert_eq!(whole.is_ok(), pieces.is_ok());
    if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
        let text = whole.text();
        assert_eq!(pieces.text(), text);
        assert_eq!(parse(&text).expect("own text is JSON").text(), text);
        check(whole.root());
        let mut cbor = Vec::new();
        write_cbor(whole.root(), &mut cbor);
        assert_eq!(forms::load(4, [Item::String(&cbor)]).expect("own CBOR is read").text(), text);
    }
});
