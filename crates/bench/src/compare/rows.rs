//! The comparisons: one row each. A row names its topic (the page it appears on) and its method; what
//! a method does is in [`measure`](super::measure).

use std::time::Duration;

/// A page of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// CPU time of the server for each request.
    Requests,
    /// Two workers against one.
    Workers,
    /// One hot key against uniform keys.
    HotKey,
    /// Lists: processor time for each request, and bytes for each element.
    Lists,
    /// Bytes for each key.
    Memory,
    /// Latency while the keyspace grows.
    Growth,
    /// Many keys expiring at once.
    Expiry,
}

impl Topic {
    /// All pages, in the order they are made.
    pub const ALL: [Topic; 7] =
        [Self::Requests, Self::Workers, Self::HotKey, Self::Lists, Self::Memory, Self::Growth, Self::Expiry];

    /// File name without its ending.
    pub fn file(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Workers => "workers",
            Self::HotKey => "hot-key",
            Self::Lists => "lists",
            Self::Memory => "memory",
            Self::Growth => "growth",
            Self::Expiry => "expiry",
        }
    }

    /// Heading of the page.
    pub fn title(self) -> &'static str {
        match self {
            Self::Requests => "Processor time per request",
            Self::Workers => "Two workers against one",
            Self::HotKey => "One hot key against uniform keys",
            Self::Lists => "Lists",
            Self::Memory => "Memory per key",
            Self::Growth => "Latency while the keyspace grows",
            Self::Expiry => "Many keys expiring in the same second",
        }
    }

    /// How the figures come about.
    pub fn method(self) -> &'static str {
        match self {
            Self::Requests => {
                "CPU time of the server process (sum of all its threads, from /proc) for each request, closed loop, \
                 50 connections, uniformly random keys out of a preloaded set, 100-byte values. Every GET must hit and \
                 carry the whole value; every server must hold exactly the preloaded keys afterwards. Servers take \
                 turns within each round. The server runs with one worker, alone on one processor; the client has another."
            }
            Self::Workers => {
                "CPU time of the server process for each request with one worker and with two, under the same 50 \
                 connections of a closed loop with uniformly random keys. Neither server nor client is pinned: on a \
                 machine of two processors the client shares them with both workers."
            }
            Self::HotKey => {
                "Requests per second with every request on one key, divided by requests per second with uniformly \
                 random keys, measured back to back in a closed loop of 50 connections at pipeline 16. The server has as \
                 many workers as processors; neither it nor the client is pinned. Higher is better."
            }
            Self::Lists => {
                "CPU time of the server process for each request, closed loop, 50 connections at pipeline 16, on uniformly \
                 random ones of many lists of 16-byte elements that a fresh server was filled with; every answer must be \
                 whole. Memory: resident memory above the empty server's for one list, divided by its elements. The server \
                 runs with one worker, alone on one processor; the client has another."
            }
            Self::Memory => {
                "Resident memory above the empty server's, divided by the number of keys; 16-byte keys, written once \
                 in a fresh server, measured when the resident size has come to rest."
            }
            Self::Growth => {
                "Latency of all requests while new 16-byte keys with 16-byte values fill an empty server: closed loop, \
                 8 connections at pipeline 16, counted from the sending of a pipeline."
            }
            Self::Expiry => {
                "All keys expire at the same instant. Time from then until DBSIZE counts only the other keys and \
                 used_memory has fallen by nine tenths of what the expired keys had added, and latency of one connection \
                 that reads keys without expiry all the while."
            }
        }
    }

    /// Whether each measurement needs a server that has seen nothing else.
    pub fn wants_fresh_server(self) -> bool {
        matches!(self, Self::Lists | Self::Memory | Self::Growth | Self::Expiry)
    }

    /// Whether the server gets one processor and the client another.
    pub fn is_pinned(self) -> bool {
        !matches!(self, Self::Workers | Self::HotKey)
    }

    /// Whether a smaller figure is the better one.
    pub fn lower_is_better(self) -> bool {
        self != Self::HotKey
    }
}

/// How requests reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Over loopback TCP.
    Tcp,
    /// Over a Unix domain socket.
    Unix,
}

/// The commands that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Reads a random key.
    Get,
    /// Overwrites a random key.
    Set,
    /// Appends to a stream, which is kept short.
    Xadd,
    /// Adds a random element to a HyperLogLog.
    Pfadd,
}

/// The commands on lists that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListVerb {
    /// Adds an element before the first.
    Push,
    /// Takes the first element.
    Pop,
    /// Reads the first hundred elements.
    Range,
}

/// What a row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// CPU time for each request at a pipeline depth.
    Cost(Verb, Transport, usize),
    /// One hot key against uniform keys.
    HotKey(Verb),
    /// CPU time for each request on random lists.
    ListCost(ListVerb),
    /// Resident memory for each element of one list.
    ListMemory,
    /// Resident memory of an empty server.
    EmptyMemory,
    /// Resident memory for each key.
    Memory {
        /// Length of values.
        value_bytes: usize,
        /// Whether keys have an expiry.
        expiry: bool,
    },
    /// Fills an empty server.
    Growth,
    /// Lets many keys expire at once.
    Expiry,
}

/// A comparison.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The page it appears on.
    pub topic: Topic,
    /// What `--rows` selects it by.
    pub name: &'static str,
    /// What it does.
    pub method: Method,
}

const fn row(topic: Topic, name: &'static str, method: Method) -> Row {
    Row { topic, name, method }
}

/// All comparisons.
pub const ROWS: &[Row] = &[
    row(Topic::Requests, "get-tcp-1", Method::Cost(Verb::Get, Transport::Tcp, 1)),
    row(Topic::Requests, "get-tcp-16", Method::Cost(Verb::Get, Transport::Tcp, 16)),
    row(Topic::Requests, "get-tcp-100", Method::Cost(Verb::Get, Transport::Tcp, 100)),
    row(Topic::Requests, "get-unix-1", Method::Cost(Verb::Get, Transport::Unix, 1)),
    row(Topic::Requests, "set-tcp-1", Method::Cost(Verb::Set, Transport::Tcp, 1)),
    row(Topic::Requests, "set-tcp-16", Method::Cost(Verb::Set, Transport::Tcp, 16)),
    row(Topic::Requests, "set-tcp-100", Method::Cost(Verb::Set, Transport::Tcp, 100)),
    row(Topic::Requests, "set-unix-1", Method::Cost(Verb::Set, Transport::Unix, 1)),
    row(Topic::Requests, "xadd-tcp-16", Method::Cost(Verb::Xadd, Transport::Tcp, 16)),
    row(Topic::Requests, "pfadd-tcp-16", Method::Cost(Verb::Pfadd, Transport::Tcp, 16)),
    row(Topic::Workers, "workers-get-16", Method::Cost(Verb::Get, Transport::Tcp, 16)),
    row(Topic::Workers, "workers-set-16", Method::Cost(Verb::Set, Transport::Tcp, 16)),
    row(Topic::HotKey, "hot-get-16", Method::HotKey(Verb::Get)),
    row(Topic::HotKey, "hot-set-16", Method::HotKey(Verb::Set)),
    row(Topic::Lists, "lpush-16", Method::ListCost(ListVerb::Push)),
    row(Topic::Lists, "lpop-16", Method::ListCost(ListVerb::Pop)),
    row(Topic::Lists, "lrange-100-16", Method::ListCost(ListVerb::Range)),
    row(Topic::Lists, "memory-list", Method::ListMemory),
    row(Topic::Memory, "empty", Method::EmptyMemory),
    row(Topic::Memory, "memory-16", Method::Memory { value_bytes: 16, expiry: false }),
    row(Topic::Memory, "memory-16-expiry", Method::Memory { value_bytes: 16, expiry: true }),
    row(Topic::Memory, "memory-100", Method::Memory { value_bytes: 100, expiry: false }),
    row(Topic::Memory, "memory-100-expiry", Method::Memory { value_bytes: 100, expiry: true }),
    row(Topic::Growth, "growth", Method::Growth),
    row(Topic::Expiry, "expiry", Method::Expiry),
];

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Preloaded keys of the request rows.
    pub keys: u64,
    /// Lists of the rows on lists.
    pub lists: u64,
    /// Elements of each of them.
    pub list_elements: u64,
    /// Elements of the one list of the memory row.
    pub memory_elements: u64,
    /// Keys of the memory rows.
    pub memory_keys: u64,
    /// Keys of the growth row.
    pub growth_keys: u64,
    /// Keys of the expiry row.
    pub expiry_keys: u64,
    /// Load before each measurement that is not counted.
    pub warmup: Duration,
    /// Length of each measurement.
    pub measured: Duration,
}

impl Scale {
    /// What the published figures use.
    pub const FULL: Scale = Scale {
        keys: 1_000_000,
        lists: 10_000,
        list_elements: 1_000,
        memory_elements: 1_000_000,
        memory_keys: 5_000_000,
        growth_keys: 20_000_000,
        expiry_keys: 1_000_000,
        warmup: Duration::from_millis(500),
        measured: Duration::from_millis(3000),
    };

    /// Seconds instead of minutes; the figures mean nothing.
    pub const QUICK: Scale = Scale {
        keys: 2_000,
        lists: 100,
        list_elements: 1_000,
        memory_elements: 20_000,
        memory_keys: 20_000,
        growth_keys: 20_000,
        expiry_keys: 2_000,
        warmup: Duration::from_millis(20),
        measured: Duration::from_millis(80),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_every_topic_has_rows() {
        let names: HashSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
        for topic in Topic::ALL {
            assert!(ROWS.iter().any(|row| row.topic == topic), "{topic:?}");
        }
        let files: HashSet<_> = Topic::ALL.iter().map(|topic| topic.file()).collect();
        assert_eq!(files.len(), Topic::ALL.len());
    }
}
