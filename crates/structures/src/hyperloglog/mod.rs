//! HyperLogLog: how many different elements there were, within 0.81 %, in at most 12 KiB.
//!
//! The bytes are those of Redis, so that they can be copied from and to it with GET and SET:
//!
//! ```text
//! "HYLL" │ encoding │ 3 unused │ cached cardinality, 8 bytes, little-endian │ registers
//!           0 dense              its top bit set: out of date
//!           1 sparse
//!
//! dense    16384 registers of 6 bits, the lowest bits first                  12288 bytes
//! sparse   runs that cover the 16384 registers in order
//!            00llllll            ZERO    l + 1 registers are 0
//!            01llllll llllllll   XZERO   l + 1 registers are 0
//!            1vvvvvll            VAL     l + 1 registers are v + 1
//! ```
//!
//! An element's hash ([`murmur64a`]) names a register with its low 14 bits; the register keeps the
//! longest run of zeros that the other 50 bits of any element began with, plus one. Estimating is
//! Otmar Ertl's, "New cardinality estimation algorithms for HyperLogLog sketches" (arXiv:1702.01284).
//!
//! The bytes are the client's: anything may stand in them. [`HyperLogLog::read`] looks at the header
//! only, and methods that walk sparse runs return [`Corrupt`] if they do not cover the registers.

mod dense;
mod estimate;
mod sparse;

pub use sparse::Run;

use crate::Corrupt;
use sparse::Runs;

/// Bits of a hash that choose the register.
const INDEX_BITS: u32 = 14;
/// How many registers there are.
pub const HLL_REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a hash whose zeros are counted: registers hold 0 to one more than this.
const COUNTED_BITS: u32 = 64 - INDEX_BITS;
const HEADER_BYTES: usize = 16;
/// Bytes of one that has all registers.
pub const DENSE_BYTES: usize = HEADER_BYTES + dense::REGISTER_BYTES;
const MAGIC: &[u8; 4] = b"HYLL";
const ENCODING_AT: usize = 4;
const CACHE_AT: usize = 8;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// In the last byte of the cached cardinality.
const OUT_OF_DATE: u8 = 1 << 7;
const HASH_SEED: u64 = 0xadc8_3b19;

const RUNS_BROKEN: Corrupt = Corrupt("HyperLogLog runs do not cover its registers");

/// A HyperLogLog without elements: sparse, its cached cardinality 0.
pub fn new_hyperloglog() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + 2);
    bytes.extend_from_slice(MAGIC);
    bytes.resize(HEADER_BYTES, 0);
    bytes[ENCODING_AT] = SPARSE;
    Run::zeros(HLL_REGISTERS).write(&mut bytes);
    bytes
}

/// The reader of bytes that call themselves a HyperLogLog.
#[derive(Debug, Clone, Copy)]
pub struct HyperLogLog<'a> {
    bytes: &'a [u8],
}

impl<'a> HyperLogLog<'a> {
    /// The reader, if the header and the length are those of a HyperLogLog.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let known = bytes.len() >= HEADER_BYTES && bytes.starts_with(MAGIC);
        let fits = match *bytes.get(ENCODING_AT)? {
            DENSE => bytes.len() == DENSE_BYTES,
            SPARSE => true,
            _ => false,
        };
        (known && fits).then_some(Self { bytes })
    }

    /// Whether it is dense rather than sparse.
    #[inline]
    pub fn is_dense(self) -> bool {
        self.bytes[ENCODING_AT] == DENSE
    }

    /// The cached cardinality, unless it is out of date.
    #[inline]
    pub fn cached(self) -> Option<u64> {
        let (cached, _) = self.bytes[CACHE_AT..].split_first_chunk().expect("longer than the header");
        (cached[7] & OUT_OF_DATE == 0).then_some(u64::from_le_bytes(*cached))
    }

    /// The estimate of the cardinality from the registers. O(bytes).
    pub fn estimate(self) -> Result<u64, Corrupt> {
        let mut histogram = estimate::Histogram::default();
        if self.is_dense() {
            dense::values(self.registers()).for_each(|value| histogram.add(value, 1));
            return Ok(histogram.estimate());
        }
        let mut covered = 0;
        for run in self.runs() {
            covered += run.len();
            histogram.add(run.value(), run.len() as u32);
            if covered > HLL_REGISTERS {
                break;
            }
        }
        if covered == HLL_REGISTERS { Ok(histogram.estimate()) } else { Err(RUNS_BROKEN) }
    }

    /// The runs of a sparse one, as they stand; of a dense one, nothing that makes sense.
    pub fn runs(self) -> impl Iterator<Item = Run> + 'a {
        Runs::new(self.registers())
    }

    /// The value of each register, in order. O(bytes).
    pub fn for_each_register(self, mut visit: impl FnMut(usize, u8)) -> Result<(), Corrupt> {
        if self.is_dense() {
            dense::values(self.registers()).enumerate().for_each(|(index, value)| visit(index, value));
            return Ok(());
        }
        let mut index = 0;
        for run in self.runs() {
            if index + run.len() > HLL_REGISTERS {
                return Err(RUNS_BROKEN);
            }
            (index..index + run.len()).for_each(|index| visit(index, run.value()));
            index += run.len();
        }
        if index == HLL_REGISTERS { Ok(()) } else { Err(RUNS_BROKEN) }
    }

    /// Whether adding `element` would change nothing. O(1); sparse O(bytes).
    pub fn covers(self, element: &[u8]) -> Result<bool, Corrupt> {
        let (index, value) = place(element);
        let found = match self.is_dense() {
            true => dense::get(self.registers(), index),
            false => sparse::get(self.registers(), index).ok_or(RUNS_BROKEN)?,
        };
        Ok(found >= value)
    }

    #[inline]
    fn registers(self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..]
    }
}

/// Keeps a cardinality in the header of a HyperLogLog, for [`HyperLogLog::cached`].
pub fn cache_cardinality(bytes: &mut [u8], cardinality: u64) {
    bytes[CACHE_AT..HEADER_BYTES].copy_from_slice(&cardinality.to_le_bytes());
}

/// Says that the cardinality in the header of a HyperLogLog is out of date.
#[inline]
pub fn forget_cardinality(bytes: &mut [u8]) {
    bytes[HEADER_BYTES - 1] |= OUT_OF_DATE;
}

/// Adds elements to a dense HyperLogLog and returns how many of them changed it; `None`, and nothing done, if `bytes`
/// are no dense one.
#[inline]
pub fn add_to_dense(bytes: &mut [u8], elements: &[&[u8]]) -> Option<usize> {
    HyperLogLog::read(bytes).filter(|hyperloglog| hyperloglog.is_dense())?;
    let mut changes = 0;
    for element in elements {
        let (index, value) = place(element);
        changes += usize::from(dense::raise(&mut bytes[HEADER_BYTES..], index, value));
    }
    if changes > 0 {
        forget_cardinality(bytes);
    }
    Some(changes)
}

/// Adds an element to a HyperLogLog and answers whether that changed it. A sparse one whose bytes
/// would become more than `sparse_bytes_max` turns dense. O(1); sparse O(bytes).
///
/// `bytes` must have passed [`HyperLogLog::read`].
pub fn add(bytes: &mut Vec<u8>, element: &[u8], sparse_bytes_max: usize) -> Result<bool, Corrupt> {
    let (index, value) = place(element);
    raise(bytes, index, value, sparse_bytes_max)
}

/// Raises a register to `value`. Returns whether it was lower.
fn raise(bytes: &mut Vec<u8>, index: usize, value: u8, sparse_bytes_max: usize) -> Result<bool, Corrupt> {
    if bytes[ENCODING_AT] == SPARSE {
        match sparse::raise(bytes, index, value, sparse_bytes_max)? {
            sparse::Outcome::Covered => return Ok(false),
            sparse::Outcome::Raised => {
                forget_cardinality(bytes);
                return Ok(true);
            }
            sparse::Outcome::TooLarge => {
                make_dense(bytes)?;
            }
        }
    }
    let raised = dense::raise(&mut bytes[HEADER_BYTES..], index, value);
    if raised {
        forget_cardinality(bytes);
    }
    Ok(raised)
}

/// Turns a sparse HyperLogLog dense. Returns whether it was sparse. The cached cardinality stays. O(registers).
///
/// `bytes` must have passed [`HyperLogLog::read`].
pub fn make_dense(bytes: &mut Vec<u8>) -> Result<bool, Corrupt> {
    let hyperloglog = HyperLogLog { bytes };
    if hyperloglog.is_dense() {
        return Ok(false);
    }
    let mut dense = vec![0; DENSE_BYTES];
    dense[..HEADER_BYTES].copy_from_slice(&bytes[..HEADER_BYTES]);
    dense[ENCODING_AT] = DENSE;
    hyperloglog.for_each_register(|index, value| {
        dense::raise(&mut dense[HEADER_BYTES..], index, value);
    })?;
    *bytes = dense;
    Ok(true)
}

/// The union of several HyperLogLogs.
#[derive(Debug)]
pub struct HyperLogLogUnion {
    registers: Box<[u8; HLL_REGISTERS]>,
    has_dense: bool,
}

impl Default for HyperLogLogUnion {
    /// The union of none.
    fn default() -> Self {
        Self { registers: Box::new([0; HLL_REGISTERS]), has_dense: false }
    }
}

impl HyperLogLogUnion {
    /// Adds one. O(registers).
    pub fn add(&mut self, hyperloglog: HyperLogLog<'_>) -> Result<(), Corrupt> {
        self.has_dense |= hyperloglog.is_dense();
        hyperloglog.for_each_register(|index, value| {
            self.registers[index] = self.registers[index].max(value);
        })
    }

    /// Adds an element. O(1).
    pub fn add_element(&mut self, element: &[u8]) {
        let (index, value) = place(element);
        self.registers[index] = self.registers[index].max(value);
    }

    /// Its cardinality. O(registers).
    pub fn estimate(&self) -> u64 {
        let mut histogram = estimate::Histogram::default();
        self.registers.iter().for_each(|value| histogram.add(*value, 1));
        histogram.estimate()
    }

    /// Raises the registers of a HyperLogLog to those of the union. The result is dense if one of those that were added
    /// is, or if its runs grow beyond `sparse_bytes_max`.
    ///
    /// `bytes` must have passed [`HyperLogLog::read`].
    pub fn write_to(&self, bytes: &mut Vec<u8>, sparse_bytes_max: usize) -> Result<(), Corrupt> {
        if self.has_dense {
            make_dense(bytes)?;
        }
        for (index, value) in self.registers.iter().enumerate().filter(|(_, value)| **value > 0) {
            raise(bytes, index, *value, sparse_bytes_max)?;
        }
        forget_cardinality(bytes);
        Ok(())
    }
}

/// The register of an element, and the value that the element raises it to.
#[inline]
fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element, HASH_SEED);
    let counted = hash >> INDEX_BITS | 1 << COUNTED_BITS;
    (hash as usize & (HLL_REGISTERS - 1), counted.trailing_zeros() as u8 + 1)
}

/// MurmurHash2 by Austin Appleby, the 64-bit variant for 64-bit machines ("MurmurHash64A"), reading
/// little-endian.
fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        word ^= word >> SHIFT;
        hash = (hash ^ word.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}

/// Checks the arithmetic that the rest relies on: registers hold the values that are written into them,
/// and estimates stay within four standard errors. About a tenth of a second.
pub fn self_test() -> Result<(), String> {
    // 1.04 / √registers, four times.
    const ERROR_MAX: f64 = 4.0 * 1.04 / 128.0;
    const ELEMENTS: u64 = 1_000_000;
    let mut packed = vec![0; dense::REGISTER_BYTES];
    for round in 0..4_u64 {
        let value = |index: usize| (index as u64).wrapping_mul(2 * round + 1).rotate_right(3) as u8 & 63;
        packed.fill(0);
        (0..HLL_REGISTERS).for_each(|index| {
            dense::raise(&mut packed, index, value(index));
        });
        let wrong = (0..HLL_REGISTERS).find(|index| dense::get(&packed, *index) != value(*index));
        if let Some(index) = wrong {
            return Err(format!("register {index} does not hold what was written into it"));
        }
    }
    let mut sparse = new_hyperloglog();
    let mut dense = new_hyperloglog();
    let tell = |Corrupt(text): Corrupt| text.to_owned();
    make_dense(&mut dense).map_err(tell)?;
    let mut checkpoint = 1;
    for element in 1..=ELEMENTS {
        // Spread, so that the elements differ in all their bytes.
        let bytes = element.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        add(&mut sparse, &bytes, 3000).map_err(tell)?;
        add(&mut dense, &bytes, 3000).map_err(tell)?;
        if element != checkpoint {
            continue;
        }
        checkpoint *= 10;
        let estimate = |bytes: &[u8]| HyperLogLog { bytes }.estimate().map_err(tell);
        let (one, other) = (estimate(&sparse)?, estimate(&dense)?);
        if one != other {
            return Err(format!("sparse and dense estimate {element} elements as {one} and {other}"));
        }
        let error = one.abs_diff(element) as f64;
        if error > (element as f64 * ERROR_MAX).ceil() {
            return Err(format!("{element} elements are estimated as {one}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
