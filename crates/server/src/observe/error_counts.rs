//! Error replies by their codes, as `INFO errorstats` shows them.
//!
//! A code is the first word of an error. The server has few of its own; scripts can make up any number, so only the
//! first [`SCRIPT_CODES_MAX`] codes are counted by their names, and later ones of scripts under [`OVERFLOW`]. All
//! workers share the set of names: which code is counted by its name does not depend on the worker.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dunlin_engine::Counter;

/// With this many codes known, scripts add no further ones.
const SCRIPT_CODES_MAX: usize = 128;
/// Longest code, in bytes: a longer first word is none, as in Redis.
const CODE_BYTES_MAX: usize = 30;
/// The code of an error that begins with no code.
const DEFAULT: &str = "ERR";
/// Counts what scripts answer beyond the limit.
const OVERFLOW: &str = "ERRORSTATS_OVERFLOW";

/// The author of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorSource {
    /// The server: its codes are few.
    Server,
    /// A script.
    Script,
}

/// The codes that are counted by their names.
#[derive(Debug, Default)]
pub(crate) struct ErrorCodes(Mutex<BTreeSet<String>>);

impl ErrorCodes {
    /// Whether a code is counted by its name, from now on if not before.
    fn admit(&self, code: &str, source: ErrorSource) -> bool {
        let mut codes = lock(&self.0);
        if codes.contains(code) {
            return true;
        }
        let has_room = source == ErrorSource::Server || codes.len() < SCRIPT_CODES_MAX;
        if has_room {
            codes.insert(code.to_owned());
        }
        has_room
    }

    /// Forgets all codes (`CONFIG RESETSTAT`).
    pub(crate) fn reset(&self) {
        lock(&self.0).clear();
    }
}

/// The errors that one worker has answered. Only errors take the locks.
#[derive(Debug)]
pub(crate) struct ErrorCounts {
    codes: Arc<ErrorCodes>,
    by_code: Mutex<BTreeMap<String, u64>>,
    /// All of them.
    pub(crate) total: Counter,
}

impl ErrorCounts {
    pub(crate) fn new(codes: Arc<ErrorCodes>) -> Self {
        Self { codes, by_code: Mutex::default(), total: Counter::default() }
    }

    /// The counts by code.
    pub(crate) fn by_code(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        lock(&self.by_code)
    }

    /// Counts an error reply, a line without the leading `-`.
    pub(crate) fn count(&self, line: &[u8], source: ErrorSource) {
        self.total.add(1);
        let code = code_of(line);
        let mut counts = self.by_code();
        if let Some(count) = counts.get_mut(&code) {
            *count += 1;
            return;
        }
        let code = if self.codes.admit(&code, source) { code } else { OVERFLOW.to_owned() };
        *counts.entry(code).or_default() += 1;
    }

    /// Forgets the counts by code (`CONFIG RESETSTAT`); INFO takes a baseline of the total.
    pub(crate) fn reset(&self) {
        self.by_code().clear();
    }
}

/// The code of an error. Characters that would break the lines of `INFO`, or the pairs in them, are replaced.
fn code_of(line: &[u8]) -> String {
    let head = &line[..line.len().min(CODE_BYTES_MAX + 1)];
    // Line breaks become blanks if the error is sent.
    let Some(end) = head.iter().position(|byte| matches!(byte, b' ' | b'\r' | b'\n')) else {
        return DEFAULT.to_owned();
    };
    let safe = |byte: &u8| match byte {
        b'#' | b':' => '_',
        byte if byte.is_ascii_graphic() => char::from(*byte),
        _ => '_',
    };
    line[..end].iter().map(safe).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_the_first_word_made_safe() {
        let longest = "A".repeat(CODE_BYTES_MAX);
        let (fits, is_too_long) = (format!("{longest} x"), format!("{longest}A x"));
        for (line, expected) in [
            ("ERR no", "ERR"),
            ("WRONGTYPE Operation", "WRONGTYPE"),
            ("no_blank", "ERR"),
            ("", "ERR"),
            (" x", ""),
            (fits.as_str(), longest.as_str()),
            (is_too_long.as_str(), "ERR"),
            ("ERR\r\n-ERR FAKE", "ERR"),
            ("A:B#C x", "A_B_C"),
            ("\u{e9}\0 x", "___"),
        ] {
            assert_eq!(code_of(line.as_bytes()), expected, "{line:?}");
        }
    }

    #[test]
    fn scripts_add_codes_up_to_a_limit_that_workers_share() {
        let codes = Arc::new(ErrorCodes::default());
        let workers = [0, 1].map(|_| ErrorCounts::new(Arc::clone(&codes)));
        for number in 0..2 * SCRIPT_CODES_MAX {
            workers[number % 2].count(format!("E{number} x").as_bytes(), ErrorSource::Script);
        }
        workers[1].count(b"E0 x", ErrorSource::Script);
        workers[0].count(b"WRONGTYPE x", ErrorSource::Server);
        workers[1].count(b"WRONGTYPE x", ErrorSource::Script);
        let count = |worker: usize, code: &str| workers[worker].by_code().get(code).copied().unwrap_or(0);
        assert_eq!((count(0, "E0"), count(1, "E0")), (1, 1));
        assert_eq!((count(0, "WRONGTYPE"), count(1, "WRONGTYPE")), (1, 1));
        assert_eq!(count(0, OVERFLOW) + count(1, OVERFLOW), SCRIPT_CODES_MAX as u64);
        assert_eq!(workers.each_ref().map(|worker| worker.total.get()).iter().sum::<u64>(), 2 * 128 + 3);

        codes.reset();
        workers[0].reset();
        workers[0].count(b"NEW x", ErrorSource::Script);
        assert_eq!((count(0, "NEW"), count(0, OVERFLOW)), (1, 0));
    }
}
