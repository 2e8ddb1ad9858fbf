//! Any bytes as the forms in which files of other servers hold documents: the tree of nodes, texts and CBOR.

#![no_main]

use dunlin_json::{
    forms::{self, Item},
    parse,
};
use libfuzzer_sys::fuzz_target;

/// Items of a module's value: a byte for the kind, then the number, or a length of one byte and the string.
fn items(mut data: &[u8]) -> Vec<Item<'_>> {
    let mut items = Vec::new();
    while let Some((&kind, rest)) = data.split_first() {
        let Some((&argument, rest)) = rest.split_first() else { break };
        data = rest;
        items.push(match kind % 4 {
            0 => Item::Signed(i64::from(argument) - 128),
            // Powers of two are the kinds of nodes; the last is a count beyond all items.
            1 if argument >= 0xf0 => Item::Unsigned(u64::MAX),
            1 => Item::Unsigned(u64::from(argument)),
            2 => Item::Double(f64::from(argument) / 8.0),
            _ => {
                let (text, rest) = data.split_at(usize::from(argument).min(data.len()));
                data = rest;
                Item::String(text)
            }
        });
    }
    items
}

fuzz_target!(|data: &[u8]| {
    let Some((&form, data)) = data.split_first() else { return };
    let loaded = match form % 5 {
        0 => forms::load(0, items(data)),
        1 => forms::load(2, items(data)),
        2 => forms::load(3, [Item::String(data)]),
        _ => forms::load(4, [Item::String(data)]),
    };
    if let Ok(document) = loaded {
        let text = document.text();
        assert_eq!(parse(&text).expect("own text is JSON").text(), text);
    }
});
