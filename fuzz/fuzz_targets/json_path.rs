//! Any bytes as a path, asked of and edited in any document: refused, or bounded, and what remains is a sound document.

#![no_main]

use dunlin_json::{
    Document, Number,
    operations::{self, Arithmetic, Condition},
    parse,
    path::{Budget, Path},
};
use libfuzzer_sys::fuzz_target;

const BUDGET: u64 = 100_000;

fuzz_target!(|data: &[u8]| {
    // The path is the first line, the document the rest.
    let end = data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len());
    let (path, text) = data.split_at(end);
    let Ok(path) = Path::compile(path) else { return };
    let Ok(document) = parse(text.get(1..).unwrap_or_default()) else { return };
    let Ok(locations) = path.locations(&document, &mut Budget::of(BUDGET)) else { return };
    for location in &locations {
        assert!(document.at(location).is_some());
    }
    let value = parse(br#"{"a":[1,{"b":null}]}"#).expect("JSON");
    let sound = |edit: &dyn Fn(&mut Document)| {
        let mut edited = document.clone();
        edit(&mut edited);
        let text = edited.text();
        assert_eq!(parse(&text).expect("own text is JSON").text(), text);
    };
    sound(&|document| drop(operations::set(document, &path, &value, Condition::Always)));
    sound(&|document| drop(operations::merge(document, &path, &value)));
    sound(&|document| drop(operations::delete(document, &path)));
    sound(&|document| drop(operations::clear(document, &path)));
    sound(&|document| drop(operations::toggle(document, &path)));
    sound(&|document| {
        drop(operations::arithmetic(document, &path, Arithmetic::Multiply, Number::Double(-1.5)))
    });
    sound(&|document| drop(operations::str_append(document, &path, &Document::string(b"\"\\"))));
    sound(&|document| drop(operations::arr_insert(document, &path, -1, &[value.clone(), value.clone()])));
    sound(&|document| drop(operations::arr_pop(document, &path, 1)));
    sound(&|document| drop(operations::arr_trim(document, &path, 1, -2)));
});
