//! The accounting of the keyspace against the bytes that the allocators have given out.
//!
//! An allocator that counts, thread by thread, serves the crate's tests; entries and tables live in pages of the pool.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use dunlin_resp::Protocol;
use dunlin_structures::Relocator;
use proptest::prelude::*;

use crate::{compaction::Compaction, transcript::Scenario};

thread_local! {
    /// Bytes that the thread has allocated and not freed; others may free what it has allocated.
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: isize) {
    // A thread that is ending has lost its counter.
    let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + bytes));
}

// SAFETY: all calls go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller's.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes of the thread's heap and of pages, less what is free in pages of entries.
fn given_out(scenario: &Scenario) -> isize {
    let keyspace = &scenario.engine.keyspace;
    let inside = keyspace.enter(0);
    // SAFETY: it moves nothing.
    let relocator = unsafe { Relocator::new(|_, _| None) };
    let free = scenario.engine.slack(&inside, &Compaction::new(0, 1, relocator)).free_bytes;
    drop(inside);
    ALLOCATED.get() + keyspace.pool().usage().handed_out_bytes as isize - free as isize
}

/// A command by its kind, on a key by its number, with a size.
fn command(kind: u8, key: u16, size: usize) -> String {
    let text = || "x".repeat(size.max(1));
    let many = |prefix: &str| {
        (0..size % 300)
            .map(|number| format!(" {prefix}{number}{}", "y".repeat(key as usize % 40)))
            .collect::<String>()
    };
    match kind {
        0 => format!("SET s:{key} {}", text()),
        1 => format!("SET s:{key} {size} EX 10000"),
        2 => format!("APPEND s:{key} {}", text()),
        3 => format!("SETRANGE s:{key} {} {}", size * 9, text()),
        4 => format!("RPUSH l:{key} a{}", many("e")),
        5 => format!(
            "HSET h:{key}{} f v",
            many("f").split(' ').skip(1).map(|f| format!(" {f} {f}")).collect::<String>()
        ),
        6 => format!("SADD m:{key} a{}", many("member")),
        7 => format!("SADD i:{key} 1{}", (0..size % 700).map(|n| format!(" {}", n * 77)).collect::<String>()),
        8 => format!(
            "ZADD z:{key} 1 a{}",
            many("m").split(' ').skip(1).map(|m| format!(" {} {m}", m.len())).collect::<String>()
        ),
        9 => format!("XADD x:{key} * f {}", text()),
        10 => format!("DEL s:{key}"),
        11 => format!("DEL l:{key} h:{key} m:{key} z:{key} x:{key} i:{key}"),
        12 => format!("LPOP l:{key} {}", size % 50),
        13 => format!("SPOP m:{key} {}", size % 50),
        14 => format!("ZPOPMIN z:{key} {}", size % 50),
        15 => format!("COPY h:{key} h:{} REPLACE", key / 2),
        16 => format!("SET {}:{key} v", "k".repeat(200 + size % 400)),
        17 => format!("SETBIT b:{key} {} 1", size * 50),
        18 => format!("PFADD p:{key}{}", many("e")),
        _ => format!("EXPIRE s:{key} {}", 1000 + size),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn used_bytes_are_what_the_allocators_have_given_out(
        commands in proptest::collection::vec((0..20_u8, 0..120_u16, 0..3000_usize), 300..3000),
    ) {
        let mut scenario = Scenario::new();
        // The first command of a kind sets up buffers that are not part of the keyspace.
        for kind in 0..20 {
            scenario.reply(&command(kind, 1, 2999), Protocol::Resp2);
        }
        scenario.reply("FLUSHALL", Protocol::Resp2);
        let before = (given_out(&scenario), scenario.engine.keyspace.used_bytes() as isize);
        for (kind, key, size) in commands {
            let reply = scenario.reply(&command(kind, key, size), Protocol::Resp2);
            prop_assert!(!reply.starts_with(b"-ERR wrong"), "{}", String::from_utf8_lossy(&reply));
        }
        let used = scenario.engine.keyspace.used_bytes() as isize - before.1;
        let given = given_out(&scenario) - before.0;
        // Pages' records, the headers of counted blocks, buffers of the worker.
        let tolerated = given / 25 + 192 * 1024;
        prop_assert!((given - used).abs() <= tolerated, "used {used}, given out {given}");
        scenario.reply("FLUSHALL", Protocol::Resp2);
        let left = given_out(&scenario) - before.0;
        prop_assert!(left.abs() <= 128 * 1024, "{left} bytes are left of an empty keyspace");
    }
}
