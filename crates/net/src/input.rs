//! Received bytes that a connection keeps because they are not served yet.
//!
//! ```text
//! bytes   served | held ................ | spare ....
//!         0    start                   len       capacity
//! ```
//!
//! Most connections hold nothing most of the time, and then own no memory: what arrives is served
//! out of the worker's shared buffer. Only the beginning of an unfinished request, or requests held
//! back, end up here.
//!
//! Memory follows what has arrived: the buffer grows by what a request announces only up to
//! [`ANNOUNCED_BYTES_MAX`] or by what is held already, whichever is more.

/// Smallest room offered to one read.
const ROOM_BYTES_MIN: usize = 16 * 1024;
/// An announcement alone, with few bytes behind it, is good for this much memory.
const ANNOUNCED_BYTES_MAX: usize = 1024 * 1024;
/// A buffer above this is given back when little of it is in use.
const IDLE_CAPACITY_MAX: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
}

impl Input {
    /// The bytes that are held.
    #[inline]
    pub(crate) fn held(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Memory that holds nothing.
    pub(crate) fn unused_bytes(&self) -> usize {
        self.bytes.capacity() - self.len()
    }

    /// The buffer with room for a read behind what is held, in proportion to the `wanted` bytes
    /// that a request has announced.
    pub(crate) fn with_room(&mut self, wanted: usize) -> &mut Vec<u8> {
        // Moving at most as much as has been served since the last move keeps it O(1) a byte.
        if self.start > 0 && self.start >= self.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let room = self.bytes.capacity() - self.bytes.len();
        let held = self.len();
        let announced = wanted.min(held.max(ANNOUNCED_BYTES_MAX));
        if room < announced.clamp(1, ROOM_BYTES_MIN) {
            let growth = if wanted > 0 { announced } else { held };
            self.bytes.reserve_exact(growth.max(ROOM_BYTES_MIN));
        }
        &mut self.bytes
    }

    /// Holds a copy of `rest`; nothing may be held yet.
    pub(crate) fn hold(&mut self, rest: &[u8]) {
        debug_assert_eq!(self.len(), 0);
        self.start = 0;
        self.bytes = rest.to_vec();
    }

    /// Drops `count` bytes off the end: the service keeps them.
    pub(crate) fn detach(&mut self, count: usize) {
        debug_assert!(count <= self.len());
        if count > 0 {
            self.bytes.truncate(self.bytes.len() - count);
            self.consume(0);
        }
    }

    /// Drops `count` served bytes off the front, and memory that is no longer needed.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.len());
        self.start += count;
        if self.len() == 0 {
            *self = Self::default();
        } else if self.len() < ROOM_BYTES_MIN && self.bytes.capacity() > IDLE_CAPACITY_MAX {
            *self = Self { bytes: self.held().to_vec(), start: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pretends that the socket delivered `count` bytes.
    fn arrive(input: &mut Input, wanted: usize, count: usize) -> usize {
        let buffer = input.with_room(wanted);
        let room = buffer.capacity() - buffer.len();
        let count = count.min(room);
        buffer.extend(std::iter::repeat_n(b'x', count));
        count
    }

    #[test]
    fn announced_length_alone_reserves_little() {
        let mut input = Input::default();
        input.hold(b"$536870912\r\n");
        arrive(&mut input, 512 << 20, 1);
        assert!(input.bytes.capacity() <= ANNOUNCED_BYTES_MAX + 64, "{}", input.bytes.capacity());
    }

    #[test]
    fn memory_stays_below_twice_what_arrived() {
        let mut input = Input::default();
        let announced = 64 << 20;
        input.hold(b"$");
        while input.len() < announced {
            let missing = announced - input.len();
            arrive(&mut input, missing, 100_000);
            let bound = (2 * input.len()).max(input.len() + ANNOUNCED_BYTES_MAX) + ROOM_BYTES_MIN;
            assert!(input.bytes.capacity() <= bound, "{} for {}", input.bytes.capacity(), input.len());
        }
        assert!(input.bytes.capacity() <= announced + ROOM_BYTES_MIN, "the last growth is exact");
    }

    #[test]
    fn served_memory_is_given_back() {
        let mut input = Input::default();
        input.hold(&vec![b'x'; 1 << 20]);
        input.consume((1 << 20) - 10);
        assert_eq!(input.held(), b"xxxxxxxxxx");
        assert!(input.bytes.capacity() < 1024);
        input.consume(10);
        assert_eq!(input.bytes.capacity(), 0);
    }
}
