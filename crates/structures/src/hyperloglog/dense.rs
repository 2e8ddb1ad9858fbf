//! Registers of 6 bits, packed: four in three bytes.

use super::HLL_REGISTERS;

const REGISTER_BITS: usize = 6;
/// Bytes of all registers.
pub(super) const REGISTER_BYTES: usize = HLL_REGISTERS * REGISTER_BITS / 8;
const VALUE_MASK: u16 = (1 << REGISTER_BITS) - 1;

/// The byte in which a register begins, and the bit.
#[inline]
fn position(index: usize) -> (usize, usize) {
    (index * REGISTER_BITS / 8, index * REGISTER_BITS % 8)
}

/// The value of a register.
#[inline]
pub(super) fn get(registers: &[u8], index: usize) -> u8 {
    let (byte, bit) = position(index);
    // The last register ends with the last byte.
    let pair = u16::from_le_bytes([registers[byte], registers.get(byte + 1).copied().unwrap_or(0)]);
    (pair >> bit & VALUE_MASK) as u8
}

/// Raises a register to `value`. Returns whether it was lower.
#[inline]
pub(super) fn raise(registers: &mut [u8], index: usize, value: u8) -> bool {
    let raises = value > get(registers, index);
    if raises {
        let (byte, bit) = position(index);
        let mask = (VALUE_MASK << bit).to_le_bytes();
        let placed = (u16::from(value) << bit).to_le_bytes();
        for (at, byte) in registers[byte..].iter_mut().take(2).enumerate() {
            *byte = *byte & !mask[at] | placed[at];
        }
    }
    raises
}

/// All values in order.
pub(super) fn values(registers: &[u8]) -> impl Iterator<Item = u8> {
    let (triples, _) = registers.as_chunks::<3>();
    triples.iter().flat_map(|&[one, two, three]| {
        let word = u32::from_le_bytes([one, two, three, 0]);
        [0, 6, 12, 18].map(|shift| (word >> shift) as u8 & VALUE_MASK as u8)
    })
}
