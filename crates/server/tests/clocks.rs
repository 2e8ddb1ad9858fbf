//! Durations are differences of clocks that nobody sets. The wall clock dates what is shown, and what is to happen at a date.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Names of the wall clock's values.
const WALL: &[&str] = &["unix_ms", "unix_us(", "unix_time_s(", "now_s()", "SystemTime"];
/// What makes a duration out of two moments.
const DIFFERENCES: &[&str] =
    &["saturating_sub(", "checked_sub(", "wrapping_sub(", "abs_diff(", "duration_since(", ".elapsed(", " - "];

/// Differences from the wall clock that are meant: the file, a part of the statement, and the reason.
const MEANT: &[(&str, &str, &str)] = &[
    ("executor/waiting.rs", "again_ms", "entries of streams are idle since a date, which is data"),
    ("info/tls.rs", "expires_s", "certificates expire at a date"),
    ("commands/client/mod.rs", "i64::MAX as u64 - now.unix_ms", "the range that redis-server gives a date"),
    ("sampler/mod.rs", "unix_us() / 1_000_000) as u32 - 1", "the second that has just ended"),
];

#[test]
fn durations_are_no_differences_of_the_wall_clock() {
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut unused: Vec<_> = MEANT.iter().collect();
    for source in [server.clone(), server.join("../../net/src"), server.join("../../acl/src")] {
        for path in rust_files(&source) {
            let name = path.strip_prefix(&source).unwrap().display().to_string();
            for statement in statements(&fs::read_to_string(&path).unwrap()) {
                if !is_difference(&statement) {
                    continue;
                }
                let before = unused.len();
                unused.retain(|(file, part, _)| !(name == *file && statement.contains(part)));
                let is_meant = unused.len() < before
                    || MEANT.iter().any(|(file, part, _)| name == *file && statement.contains(part));
                if !is_meant {
                    found.push(format!("{name}: {statement}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "take Now::steady_ms or an Instant, or give a reason:\n{}", found.join("\n"));
    assert!(unused.is_empty(), "not there any longer: {unused:?}");
}

#[test]
fn differences_of_the_wall_clock_are_found() {
    for (statement, expected) in [
        ("now.unix_ms.saturating_sub(then_ms) / 1000", true),
        ("now.unix_ms - then", true),
        ("unix_us().abs_diff(then)", true),
        ("started.elapsed().as_millis() as u64", false),
        ("since.elapsed() < SystemTime::now()", true),
        ("SystemTime::now().duration_since(UNIX_EPOCH)", false),
        ("now.steady_ms.saturating_sub(then_ms)", false),
        ("last_save_s.store(now.unix_ms / 1000, Relaxed)", false),
    ] {
        assert_eq!(is_difference(statement), expected, "{statement}");
    }
}

fn is_difference(statement: &str) -> bool {
    // Since 1970 is no difference.
    let statement = statement
        .replace("duration_since(UNIX_EPOCH)", "")
        .replace("duration_since(std::time::UNIX_EPOCH)", "");
    WALL.iter().any(|name| statement.contains(name)) && DIFFERENCES.iter().any(|one| statement.contains(one))
}

/// The statements of a file without its tests and comments, each on one line.
fn statements(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code: Vec<_> = code.lines().map(|line| line.split("//").next().unwrap().trim()).collect();
    let joined = code.join(" ").replace(" .", ".");
    joined.split([';', '{', '}']).map(|statement| statement.trim().to_owned()).collect()
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let nested = directories.iter().flat_map(|path| rust_files(path));
    let is_code = |path: &&PathBuf| {
        path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs")
    };
    nested.chain(files.iter().filter(is_code).cloned()).collect()
}
