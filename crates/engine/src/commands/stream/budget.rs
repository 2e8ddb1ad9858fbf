//! The limits of XREAD and XREADGROUP for all streams together.

use dunlin_resp::ReplyBuffer;

/// How much more a reply may hold. The bytes are a soft limit: the entry that reaches it is the last one, and a stream
/// that has begun gives one entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// Entries that may still come.
    pub(super) entries: usize,
    /// Bytes that may still come; `usize::MAX` without a limit.
    pub(super) bytes: usize,
    /// Whether an entry has come: without one, no number of bytes is too many.
    has_begun: bool,
}

/// Bytes of the header of an array of up to nine elements.
const HEADER_BYTES: usize = b"*1\r\n".len();

impl Default for Budget {
    /// No limit.
    fn default() -> Self {
        Self { entries: usize::MAX, bytes: usize::MAX, has_begun: false }
    }
}

impl Budget {
    /// Whether nothing more may come.
    pub(super) fn is_spent(&self) -> bool {
        self.entries == 0 || self.bytes == 0 && self.has_begun
    }

    /// Writes the name in front of a stream's entries, whose header follows.
    pub(super) fn spend_head(&mut self, reply: &mut ReplyBuffer, write: impl FnOnce(&mut ReplyBuffer)) {
        self.spend_bytes(reply, HEADER_BYTES, write);
    }

    /// Writes an entry.
    pub(super) fn spend(&mut self, reply: &mut ReplyBuffer, write: impl FnOnce(&mut ReplyBuffer)) {
        self.has_begun = true;
        self.spend_bytes(reply, 0, write);
        self.entries = self.entries.saturating_sub(1);
    }

    fn spend_bytes(&mut self, reply: &mut ReplyBuffer, more: usize, write: impl FnOnce(&mut ReplyBuffer)) {
        if self.bytes == usize::MAX {
            return write(reply);
        }
        let mark = reply.mark();
        write(reply);
        self.bytes = self.bytes.saturating_sub(reply.bytes_since(mark) + more);
    }
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    const STREAMS: &str = "
        > XADD s 1 a 1
        $3 1-0
        > XADD s 2 a 1
        $3 2-0
        > XADD s 3 a 1
        $3 3-0
        > XADD t 1 b 1
        $3 1-0
        > XADD t 2 b 1
        $3 2-0
        > XGROUP CREATE s g 0
        +OK
        > XGROUP CREATE t g 0
        +OK
    ";

    fn check_with_streams(script: &str) {
        check(&[STREAMS, script].concat());
    }

    #[test]
    fn xread_maxcount_counts_the_entries_of_all_streams() {
        check_with_streams(
            "
            > XREAD MAXCOUNT 4 STREAMS s t 0 0
            *2 *2 $1 s *3 *2 $3 1-0 *2 $1 a $1 1 *2 $3 2-0 *2 $1 a $1 1 *2 $3 3-0 *2 $1 a $1 1 *2 $1 t *1 *2 $3 1-0 *2 $1 b $1 1
            3> XREAD COUNT 2 MAXCOUNT 3 STREAMS s t 0 0
            %2 $1 s *2 *2 $3 1-0 *2 $1 a $1 1 *2 $3 2-0 *2 $1 a $1 1 $1 t *1 *2 $3 1-0 *2 $1 b $1 1
            > XREAD MAXCOUNT 3 STREAMS s t 0 0
            *1 *2 $1 s *3 *2 $3 1-0 *2 $1 a $1 1 *2 $3 2-0 *2 $1 a $1 1 *2 $3 3-0 *2 $1 a $1 1
            > XREAD MAXCOUNT 1 COUNT 1 STREAMS s t 9 0
            *1 *2 $1 t *1 *2 $3 1-0 *2 $1 b $1 1
            > XREAD MAXCOUNT 1 STREAMS s t 9 9
            *-1
            ",
        );
    }

    #[test]
    fn xread_maxsize_ends_with_the_entry_that_reaches_it() {
        // Each entry has 31 bytes, the first stream's head 15.
        check_with_streams(
            "
            > XREAD MAXSIZE 1 STREAMS s t 0 0
            *1 *2 $1 s *1 *2 $3 1-0 *2 $1 a $1 1
            > XREAD MAXSIZE 46 STREAMS s t 0 0
            *1 *2 $1 s *1 *2 $3 1-0 *2 $1 a $1 1
            > XREAD MAXSIZE 47 STREAMS s t 0 0
            *1 *2 $1 s *2 *2 $3 1-0 *2 $1 a $1 1 *2 $3 2-0 *2 $1 a $1 1
            > XREAD MAXSIZE 109 STREAMS s t 0 0
            *2 *2 $1 s *3 *2 $3 1-0 *2 $1 a $1 1 *2 $3 2-0 *2 $1 a $1 1 *2 $3 3-0 *2 $1 a $1 1 *2 $1 t *1 *2 $3 1-0 *2 $1 b $1 1
            > XREAD MAXSIZE 9223372036854775807 COUNT 1 STREAMS s t 2 0
            *2 *2 $1 s *1 *2 $3 3-0 *2 $1 a $1 1 *2 $1 t *1 *2 $3 1-0 *2 $1 b $1 1
            ",
        );
    }

    #[test]
    fn xreadgroup_delivers_no_more_than_its_limits() {
        check_with_streams(
            "
            > XREADGROUP GROUP g ann MAXCOUNT 2 STREAMS s t > >
            *1 *2 $1 s *2 *2 $3 1-0 *2 $1 a $1 1 *2 $3 2-0 *2 $1 a $1 1
            > XINFO CONSUMERS t g
            *0
            > XREADGROUP GROUP g ann MAXSIZE 47 STREAMS s t > >
            *2 *2 $1 s *1 *2 $3 3-0 *2 $1 a $1 1 *2 $1 t *1 *2 $3 1-0 *2 $1 b $1 1
            > XPENDING s g
            *4 :3 $3 1-0 $3 3-0 *1 *2 $3 ann $1 3
            > XPENDING t g
            *4 :1 $3 1-0 $3 1-0 *1 *2 $3 ann $1 1
            > XREADGROUP GROUP g ann MAXCOUNT 2 STREAMS s t 0 0
            *1 *2 $1 s *2 *2 $3 1-0 *2 $1 a $1 1 *2 $3 2-0 *2 $1 a $1 1
            > XREADGROUP GROUP g ann MAXSIZE 1 STREAMS s t 3 0
            *2 *2 $1 s *0 *2 $1 t *1 *2 $3 1-0 *2 $1 b $1 1
            @ +10
            > XREADGROUP GROUP g ben CLAIM 10 MAXCOUNT 2 STREAMS s t > >
            *1 *2 $1 s *2 *4 $3 1-0 *2 $1 a $1 1 :10 :2 *4 $3 2-0 *2 $1 a $1 1 :10 :2
            > XREADGROUP GROUP g ben CLAIM 10 MAXSIZE 56 STREAMS t s > >
            *1 *2 $1 t *2 *4 $3 1-0 *2 $1 b $1 1 :10 :2 *4 $3 2-0 *2 $1 b $1 1 :0 :0
            > XPENDING s g - + 9 ben
            *2 *4 $3 1-0 $3 ben :0 :3 *4 $3 2-0 $3 ben :0 :3
            ",
        );
    }

    #[test]
    fn xread_refuses_limits_that_make_no_sense() {
        check_with_streams(
            "
            > XREAD MAXCOUNT 0 STREAMS s 0
            -ERR MAXCOUNT must be a positive integer
            > XREAD MAXSIZE -1 STREAMS s 0
            -ERR MAXSIZE must be a positive integer
            > XREAD MAXSIZE x STREAMS s 0
            -ERR value is not an integer or out of range
            > XREAD COUNT 3 MAXCOUNT 2 STREAMS s 0
            -ERR MAXCOUNT must be greater than or equal to COUNT
            > XREAD MAXCOUNT STREAMS s 0
            -ERR value is not an integer or out of range
            > XREADGROUP GROUP g c MAXCOUNT 1 COUNT 2 STREAMS s >
            -ERR MAXCOUNT must be greater than or equal to COUNT
            ",
        );
    }
}
