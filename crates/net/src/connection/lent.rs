//! Buffers that a worker lends for one turn: a read lands in one of them, and is served out of it.
//!
//! ```text
//! bytes   held ..... | just read ..... | poison in builds with assertions
//!         0                          len                          capacity
//! ```
//!
//! Invariant: nothing of an earlier turn is reachable. [`LentBuffers::lend`] empties a buffer before it gives it away, and
//! the borrower hands the same slice on to the service. Builds with assertions overwrite what the last turn has left, so
//! that a fault of this kind shows as garbage and not as another client's request.

use super::STRANGER_INPUT_BYTES_MAX;

/// Capacity of the buffer that a worker shares among its connections: what one read takes.
pub const SHARED_BYTES: usize = 64 * 1024;

/// Overwrites what was served: no request begins with it, and none ends with it.
const POISON: u8 = 0xDB;

pub(super) struct LentBuffers {
    /// For clients that have authenticated.
    shared: Vec<u8>,
    /// For strangers: smaller, and without a copy of anything that an authenticated client has said.
    strangers: Vec<u8>,
}

impl LentBuffers {
    pub(super) fn new() -> Self {
        Self { shared: Vec::with_capacity(SHARED_BYTES), strangers: Vec::new() }
    }

    /// A buffer with `held`, the unserved beginning of a request, in it and room for a read.
    #[inline]
    pub(super) fn lend(&mut self, stranger: bool, held: &[u8]) -> &mut Vec<u8> {
        let buffer = if stranger { &mut self.strangers } else { &mut self.shared };
        if cfg!(debug_assertions) {
            buffer.fill(POISON);
        }
        buffer.clear();
        if stranger {
            buffer.reserve_exact(held.len() + STRANGER_INPUT_BYTES_MAX);
        }
        buffer.extend_from_slice(held);
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_buffers_keep_nothing_of_an_earlier_turn() {
        for stranger in [false, true] {
            let mut buffers = LentBuffers::new();
            buffers.lend(stranger, b"").extend_from_slice(b"INCR secret\r\n");
            let buffer = buffers.lend(stranger, b"GE");
            assert_eq!(buffer, b"GE");
            assert!(buffer.capacity() - buffer.len() >= STRANGER_INPUT_BYTES_MAX);
            // SAFETY: the first 13 bytes of the block were written above.
            let former = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), 13) };
            assert_eq!(former, [b"GE".as_slice(), &[POISON; 11]].concat());
        }
    }
}
