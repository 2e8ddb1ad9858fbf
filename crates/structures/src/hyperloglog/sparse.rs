//! Runs of registers, and raising one register among them exactly as Redis does: the same splits, the
//! same merges, so that the bytes agree.

use super::{HEADER_BYTES, RUNS_BROKEN};
use crate::Corrupt;

/// Registers that ZERO covers at most.
const ZERO_MAX: usize = 64;
/// Registers that VAL covers at most.
const VALUE_RUN_MAX: usize = 4;
/// Largest value that VAL can hold.
const VALUE_MAX: u8 = 32;
/// Runs that are looked at for merging behind an edit, the one before it included.
const MERGED_RUNS_MAX: usize = 5;

/// Registers in a row that have the same value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// This many registers are 0, in the short form.
    Zero(usize),
    /// This many registers are 0, in the long form.
    LongZero(usize),
    /// This many registers have a value.
    Value(u8, usize),
}

impl Run {
    /// How many registers it covers.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Self::Zero(len) | Self::LongZero(len) | Self::Value(_, len) => len,
        }
    }

    /// Never: a run covers one register at least.
    pub fn is_empty(self) -> bool {
        false
    }

    /// The value of its registers.
    #[inline]
    pub fn value(self) -> u8 {
        match self {
            Self::Zero(_) | Self::LongZero(_) => 0,
            Self::Value(value, _) => value,
        }
    }

    /// Bytes that it takes.
    #[inline]
    fn bytes(self) -> usize {
        if matches!(self, Self::LongZero(_)) { 2 } else { 1 }
    }

    /// A run of registers at 0, in the shorter form if that will do.
    pub(super) fn zeros(len: usize) -> Run {
        if len > ZERO_MAX { Self::LongZero(len) } else { Self::Zero(len) }
    }

    /// A run of `len` registers with the value of this one.
    fn with_len(self, len: usize) -> Run {
        match self {
            Self::Value(value, _) => Self::Value(value, len),
            Self::Zero(_) | Self::LongZero(_) => Self::zeros(len),
        }
    }

    /// Appends its bytes.
    pub(super) fn write(self, out: &mut impl Extend<u8>) {
        match self {
            Self::Zero(len) => out.extend([(len - 1) as u8]),
            Self::LongZero(len) => out.extend([((len - 1) >> 8) as u8 | 0x40, (len - 1) as u8]),
            Self::Value(value, len) => out.extend([(value - 1) << 2 | (len - 1) as u8 | 0x80]),
        }
    }

    /// The run at the beginning of `runs`. The second byte of a long one that ends too early counts
    /// as 0, as Redis reads the bytes behind the end of its strings.
    #[inline]
    fn read(runs: &[u8]) -> Option<Run> {
        let first = *runs.first()?;
        Some(match first >> 6 {
            0 => Self::Zero(usize::from(first & 0x3f) + 1),
            1 => {
                let second = runs.get(1).copied().unwrap_or(0);
                Self::LongZero((usize::from(first & 0x3f) << 8 | usize::from(second)) + 1)
            }
            _ => Self::Value((first >> 2 & 0x1f) + 1, usize::from(first & 3) + 1),
        })
    }
}

/// The runs in some bytes.
pub(super) struct Runs<'a> {
    rest: &'a [u8],
}

impl<'a> Runs<'a> {
    pub(super) fn new(runs: &'a [u8]) -> Self {
        Self { rest: runs }
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        let run = Run::read(self.rest)?;
        self.rest = self.rest.get(run.bytes()..).unwrap_or_default();
        Some(run)
    }
}

/// The value of a register, if the runs get that far.
pub(super) fn get(runs: &[u8], index: usize) -> Option<u8> {
    let mut end = 0;
    let mut runs = Runs::new(runs);
    runs.find(|run| {
        end += run.len();
        index < end
    })
    .map(Run::value)
}

/// The result of raising a register.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The register was as high already.
    Covered,
    /// The register is raised.
    Raised,
    /// Nothing is done: the value, or the bytes, would be more than the encoding may have.
    TooLarge,
}

/// Raises a register to `value`. `bytes` are a whole sparse HyperLogLog. O(bytes).
pub(super) fn raise(
    bytes: &mut Vec<u8>,
    index: usize,
    value: u8,
    bytes_max: usize,
) -> Result<Outcome, Corrupt> {
    if value > VALUE_MAX {
        return Ok(Outcome::TooLarge);
    }
    // The run that covers the register, its first register, and the run before it.
    let (mut at, mut first, mut previous) = (HEADER_BYTES, 0, HEADER_BYTES);
    let run = loop {
        let run = Run::read(&bytes[at..]).ok_or(RUNS_BROKEN)?;
        if index < first + run.len() {
            break run;
        }
        previous = at;
        // A long run may end behind the bytes.
        at = (at + run.bytes()).min(bytes.len());
        first += run.len();
    };
    if run.value() >= value {
        return Ok(Outcome::Covered);
    }
    let before = Some(index - first).filter(|len| *len > 0).map(|len| run.with_len(len));
    let behind = Some(first + run.len() - 1 - index).filter(|len| *len > 0).map(|len| run.with_len(len));
    let split = [before, Some(Run::Value(value, 1)), behind].into_iter().flatten();
    let end = (at + run.bytes()).min(bytes.len());
    let split_bytes: usize = split.clone().map(Run::bytes).sum();
    if split_bytes > run.bytes() && bytes.len() + split_bytes - run.bytes() > bytes_max {
        return Ok(Outcome::TooLarge);
    }
    let mut encoded = SplitBytes::default();
    split.for_each(|run| run.write(&mut encoded));
    bytes.splice(at..end, encoded.bytes[..encoded.len].iter().copied());
    merge(bytes, previous);
    Ok(Outcome::Raised)
}

/// The bytes of a run that was split: at most XZERO, VAL, XZERO.
#[derive(Default)]
struct SplitBytes {
    bytes: [u8; 5],
    len: usize,
}

impl Extend<u8> for SplitBytes {
    fn extend<T: IntoIterator<Item = u8>>(&mut self, bytes: T) {
        for byte in bytes {
            self.bytes[self.len] = byte;
            self.len += 1;
        }
    }
}

/// Merges neighbours of the same value, in a few runs from `at` on.
fn merge(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..MERGED_RUNS_MAX {
        let Some(run) = Run::read(&bytes[at.min(bytes.len())..]) else { return };
        let next = bytes.get(at + 1..).and_then(Run::read);
        if let (Run::Value(value, len), Some(Run::Value(other, more))) = (run, next)
            && value == other
            && len + more <= VALUE_RUN_MAX
        {
            bytes.remove(at);
            let mut merged = SplitBytes::default();
            Run::Value(value, len + more).write(&mut merged);
            bytes[at] = merged.bytes[0];
        } else {
            at += run.bytes();
        }
    }
}
