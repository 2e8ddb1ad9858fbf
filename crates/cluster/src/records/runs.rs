//! [`Runs`]: which changes of a node rest on which.
//!
//! A node that changes records again is not always sure of its last change: the answer was lost, or a process has ended before it.
//! Then a new *run* of changes begins. Within a run each change rests on all before it, so a count has one meaning.
//!
//! ```text
//! counts   1   2   3   4   5   6        runs of the mark 6: [c after 4 · b after 2 · a after 0]
//!          └ a ─┘  └ b ─┘  └ c ─┘
//! ```

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Runs that a mark names. Of older ones nothing is said, so a reader that has missed more of them trusts the count.
const RUNS_MAX: usize = 4;

/// A run of changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Run {
    /// Drawn for it.
    pub id: u64,
    /// The count of the last change before it.
    pub after: u64,
}

/// The last runs of a node's changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Runs {
    /// The newest first.
    runs: [Run; RUNS_MAX],
    len: usize,
}

impl Runs {
    /// Whether nothing is known of runs: the mark is of a version before them.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the id of the newest run.
    pub fn newest(&self) -> Option<u64> {
        self.known().first().map(|run| run.id)
    }

    /// Returns the id of the run to which the change with this count belongs, unless that is too long ago.
    pub fn of(&self, count: u64) -> Option<u64> {
        self.known().iter().find(|run| run.after < count).map(|run| run.id)
    }

    /// Returns these runs with a newer one; the oldest may go.
    #[must_use]
    pub fn begun(mut self, run: Run) -> Self {
        self.runs.rotate_right(1);
        self.runs[0] = run;
        self.len = (self.len + 1).min(RUNS_MAX);
        // Places that are not used are equal.
        self.runs[self.len..].fill(Run::default());
        self
    }

    fn known(&self) -> &[Run] {
        &self.runs[..self.len]
    }
}

/// As `ID.AFTER` in hexadecimal digits, with commas, the newest first; `-` for none.
impl fmt::Display for Runs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return out.write_str("-");
        }
        for (place, run) in self.known().iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(out, "{comma}{:x}.{:x}", run.id, run.after)?;
        }
        Ok(())
    }
}

impl FromStr for Runs {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const NONE: &str = "these are no runs of changes";
        if text == "-" {
            return Ok(Self::default());
        }
        let number = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| NONE);
        let mut found = Self::default();
        for item in text.split(',') {
            let (id, after) = item.split_once('.').ok_or(NONE)?;
            let place = found.runs.get_mut(found.len).ok_or(NONE)?;
            *place = Run { id: number(id)?, after: number(after)? };
            found.len += 1;
        }
        match found.known().is_sorted_by(|newer, older| newer.after >= older.after) {
            true => Ok(found),
            false => Err(NONE),
        }
    }
}

impl TryFrom<String> for Runs {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Runs> for String {
    fn from(runs: Runs) -> Self {
        runs.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(of: &[(u64, u64)]) -> Runs {
        of.iter().fold(Runs::default(), |runs, (id, after)| runs.begun(Run { id: *id, after: *after }))
    }

    #[test]
    fn runs_say_to_which_one_a_count_belongs() {
        let three = runs(&[(10, 0), (11, 2), (12, 4)]);
        for (count, run) in [(1, 10), (2, 10), (3, 11), (4, 11), (5, 12), (9, 12)] {
            assert_eq!(three.of(count), Some(run), "{count}");
        }
        let many = runs(&[(10, 0), (11, 2), (12, 4), (13, 6), (14, 8)]);
        assert_eq!((many.of(2), many.of(3), many.newest()), (None, Some(11), Some(14)));
        assert_eq!((Runs::default().of(1), Runs::default().newest()), (None, None));
    }

    #[test]
    fn runs_are_text_in_records_and_files() {
        for (known, text) in [
            (Runs::default(), "-"),
            (runs(&[(255, 0)]), "ff.0"),
            (runs(&[(u64::MAX, 0), (16, 9)]), "10.9,ffffffffffffffff.0"),
        ] {
            assert_eq!((known.to_string(), text.parse()), (text.to_owned(), Ok(known)));
        }
        for odd in
            ["", "1", "1.", ".1", "1.2,", "1.1,2.2", "1.0,1.0,1.0,1.0,1.0", "10000000000000000.0", "-1.0"]
        {
            assert!(odd.parse::<Runs>().is_err(), "{odd}");
        }
    }
}
