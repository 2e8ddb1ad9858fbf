//! The modules of the crate, top to bottom: each imports only modules below it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// From the process down to the configuration. Sockets and event loops are the crate `dunlin-net`, below all of it.
const ROOMS: &[&str] = &[
    "lib",
    "offline",
    "process",
    "http",
    "commands",
    "scripting",
    "executor",
    "sampler",
    "metrics",
    "info",
    "node",
    "replicator",
    "aof",
    "rdb",
    "shared",
    "cluster",
    "replication",
    "durability",
    "loading",
    "persistence",
    "push",
    "observe",
    "workers",
    "session",
    "admission",
    "access",
    "audit",
    "lua",
    "tls",
    "config",
    "system",
];

/// Crates that neither wait nor look at the world: no files, sockets, clocks or threads. Time and seeds are arguments.
const PURE: &[&str] =
    &["acl", "certificates", "cluster", "engine", "json", "replication", "resp", "scripting", "structures"];
/// Names that such a crate does not use.
const WORLD: &[&str] = &[
    "std::fs",
    "fs::File",
    "std::net",
    "Instant::now",
    "SystemTime::now",
    "thread::spawn",
    "thread::Builder",
];
/// Uses that are meant, each with its file.
const MEANT: &[(&str, &str)] = &[
    // How long a thread slept for a lock, for the flight recorder.
    ("engine/src/keyspace/lock.rs", "Instant::now"),
    // A function of tests: how much of a range is in memory.
    ("structures/src/memory_map.rs", "fs::File"),
    ("structures/src/memory_map.rs", "std::fs"),
];

#[test]
fn pure_crates_use_no_files_sockets_clocks_or_threads() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for path in PURE.iter().flat_map(|name| rust_files(&crates.join(name).join("src"))) {
        let file = path.strip_prefix(&crates).unwrap().to_str().unwrap().to_owned();
        let text = without_inline_tests(&fs::read_to_string(&path).unwrap());
        found.extend(WORLD.iter().filter(|name| text.contains(**name)).map(|name| (file.clone(), *name)));
    }
    let meant: BTreeSet<_> = MEANT.iter().map(|(file, name)| ((*file).to_owned(), *name)).collect();
    assert_eq!(found, meant);
}

#[test]
fn modules_import_only_modules_below_them() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut upward = BTreeSet::new();
    for path in rust_files(&source) {
        let room = room_of(path.strip_prefix(&source).unwrap());
        let place = |name: &str| ROOMS.iter().position(|room| *room == name);
        let own = place(&room).unwrap_or_else(|| panic!("{room} has no place among the modules"));
        let text = without_tests_and_comments(&fs::read_to_string(&path).unwrap());
        for imported in imported_rooms(&text) {
            if place(&imported).is_some_and(|other| other < own) {
                upward.insert((room.clone(), imported));
            }
        }
    }
    assert!(upward.is_empty(), "imports of modules above: {upward:?}");
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let nested = directories.iter().flat_map(|path| rust_files(path));
    nested.chain(files.iter().filter(|path| is_code(path)).cloned()).collect()
}

/// Whether a file is code of the crate. Tests in files of their own may import anything, too.
fn is_code(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs")
}

/// The module at the root of the crate that a file belongs to.
fn room_of(path: &Path) -> String {
    let first = path.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// Tests may import anything. Tests stand at the end of their files.
fn without_tests_and_comments(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    code.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// A file's code before its first module with a condition, which is one of tests or of models for loom.
fn without_inline_tests(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_end = |at: usize| {
        lines[at].starts_with("#[cfg(") && lines.get(at + 1).is_some_and(|next| is_inline_module(next))
    };
    let end = (0..lines.len()).find(|at| is_end(*at)).unwrap_or(lines.len());
    without_tests_and_comments(&lines[..end].join("\n"))
}

fn is_inline_module(line: &str) -> bool {
    line.starts_with("mod ") && line.ends_with('{')
}

/// The modules that are named behind `crate::`, alone or in braces.
fn imported_rooms(text: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for behind in text.split("crate::").skip(1) {
        let Some(group) = behind.strip_prefix('{') else {
            rooms.insert(first_word(behind));
            continue;
        };
        let (mut depth, mut is_start) = (0, true);
        for (at, byte) in group.bytes().enumerate() {
            match byte {
                b'{' => depth += 1,
                b'}' if depth == 0 => break,
                b'}' => depth -= 1,
                b',' if depth == 0 => is_start = true,
                _ if is_start && !byte.is_ascii_whitespace() => {
                    rooms.insert(first_word(&group[at..]));
                    is_start = false;
                }
                _ => {}
            }
        }
    }
    rooms
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect()
}
