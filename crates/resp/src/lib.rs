//! RESP2 and RESP3: incremental decoding of requests, encoding of replies.
