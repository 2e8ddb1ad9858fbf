//! Figures of docs/decisions/0099: bytes beside the minified text, and times beside `serde_json::Value` and a copy.
//!
//!     cargo run --release -p dunlin-json --example figures

use std::{hint::black_box, time::Instant};

use dunlin_json::{
    Document, Layout, Number,
    operations::{self, Arithmetic, Condition},
    parse,
    path::{Budget, Path},
    write_text,
};
use serde_json::{Value, json};

/// Nanoseconds of the fastest of nine runs of enough repetitions.
fn ns(mut work: impl FnMut()) -> f64 {
    let mut repetitions = 1;
    let mut time = |repetitions: u32| {
        let start = Instant::now();
        for _ in 0..repetitions {
            work();
        }
        start.elapsed().as_nanos() as f64
    };
    while time(repetitions) < 5e6 {
        repetitions *= 2;
    }
    (0..9).map(|_| time(repetitions) / f64::from(repetitions)).fold(f64::INFINITY, f64::min)
}

/// A record of about a kilobyte: ten members, one of them an object.
fn record(at: usize) -> Value {
    json!({
        "id": 1_000_000 + at,
        "name": format!("Customer number {at} of the northern district"),
        "email": format!("customer.{at}@mail.example.com"),
        "active": at.is_multiple_of(2),
        "balance": at as f64 * 12.25,
        "score": 1.0 / (at + 3) as f64,
        "tags": ["premium", "newsletter", "north", "trial", "recommended by a friend"],
        "address": {"street": format!("{at} Long Street"), "city": "Gothenburg", "zip": "41104", "at": [57.708_870, 11.974_560], "floor": null},
        "about": "a text of some length, as people write about themselves ".repeat(9),
        "visits": (0..40).map(|visit| at * 7 + visit * 3).collect::<Vec<_>>(),
    })
}

fn figures(name: &str, value: &Value) {
    let text = value.to_string().into_bytes();
    let document = parse(&text).expect("JSON");
    let block = document
        .as_block()
        .map_or("tree".to_string(), |block| format!("{:.3}", block.len() as f64 / text.len() as f64));
    let heap = document.heap_bytes() as f64 / text.len() as f64;
    println!("{name}: {} bytes of text; packed {block} of it, on the heap {heap:.3}", text.len());

    let mut out = Vec::with_capacity(2 * text.len());
    let copy = ns(|| {
        out.clear();
        out.extend_from_slice(black_box(&text));
        black_box(&out);
    });
    let our_parse = ns(|| drop(black_box(parse(black_box(&text)))));
    let their_parse = ns(|| drop(black_box(serde_json::from_slice::<Value>(black_box(&text)))));
    let our_write = ns(|| {
        out.clear();
        write_text(black_box(document.root()), &mut out);
        black_box(&out);
    });
    let their_write = ns(|| {
        out.clear();
        serde_json::to_writer(&mut out, black_box(value)).expect("text");
        black_box(&out);
    });
    println!("  parse {our_parse:.0} ns, serde_json {their_parse:.0}, copy of the text {copy:.0}");
    println!("  write {our_write:.0} ns, serde_json {their_write:.0}");

    let inner = if value.is_array() { "$[0]" } else { "$" };
    let path = |rest: &str| Path::compile(format!("{inner}{rest}").as_bytes()).expect("a path");
    let get = path(".address.city");
    let found = ns(|| {
        out.clear();
        operations::get(black_box(document.root()), std::slice::from_ref(&get), Layout::default(), &mut out)
            .expect("a value");
        black_box(&out);
    });
    let compiled = ns(|| drop(black_box(Path::compile(black_box(b"$.address.city")))));
    println!("  get of one member {found:.0} ns (compiling its path: {compiled:.0})");

    let mut changed = document.clone();
    drop(document);
    let id = path(".id");
    let increment = ns(|| {
        operations::arithmetic(&mut changed, &id, Arithmetic::Add, Number::Int(1)).expect("a number");
    });
    let name = path(".name");
    let names = [Document::string(b"short"), Document::string(&b"longer ".repeat(8))];
    let mut turn = 0;
    let set = ns(|| {
        turn += 1;
        operations::set(&mut changed, &name, &names[turn % 2], Condition::Always).expect("a member");
    });
    let shared = ns(|| {
        let snapshot = changed.clone();
        operations::arithmetic(&mut changed, &id, Arithmetic::Add, Number::Int(1)).expect("a number");
        drop(snapshot);
    });
    let filter = Path::compile(b"$..[?(@.id==1000007)].name").expect("a path");
    let filtered = ns(|| drop(black_box(filter.values(changed.root(), &mut Budget::of(u64::MAX)))));
    let every = Path::compile(b"$..visits[*]").expect("a path");
    let all = ns(|| {
        operations::arithmetic(&mut changed, &every, Arithmetic::Add, Number::Int(1)).expect("numbers");
    });
    println!("  numincrby of all visits, forty in each record: {all:.0} ns");
    println!(
        "  numincrby {increment:.0} ns, set of a member {set:.0}, numincrby beside a snapshot {shared:.0}, \
         filter of everything {filtered:.0}"
    );
}

fn main() {
    figures("1 KB", &record(17));
    figures("100 KB", &(0..90).map(record).collect());
    figures("10 MB", &(0..9000).map(record).collect());
    println!("bytes of arrays beside their text:");
    for (name, value) in [
        ("integers to 10,000", (0..10_000).collect::<Value>()),
        ("digits", (0..10_000).map(|at| at % 10).collect()),
        ("doubles of two decimals", (0..10_000).map(|at| json!(f64::from(at) / 100.0)).collect()),
        ("doubles of 17 digits", (1..10_000).map(|at| json!(1.0 / f64::from(at))).collect()),
        ("short names", Value::Object((0..10_000).map(|at| (format!("k{at}"), json!(at))).collect())),
        ("empty arrays", (0..10_000).map(|_| json!([])).collect()),
    ] {
        let text = value.to_string();
        let document = parse(text.as_bytes()).expect("JSON");
        println!("  {name}: {:.3}", document.heap_bytes() as f64 / text.len() as f64);
    }
}
