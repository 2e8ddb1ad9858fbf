//! The comparisons: one row each. A row names its topic (the page it appears on) and its method; what
//! a method does is in [`measure`](super::measure).

use std::time::Duration;

use super::{compaction::Write, recovery::Source};

/// A page of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// CPU time of the server for each request.
    Requests,
    /// Two workers against one.
    Workers,
    /// A hot key against uniform keys.
    HotKey,
    /// Bytes for each key.
    Memory,
    /// Latency while the keyspace grows.
    Growth,
    /// Many keys expiring at once.
    Expiry,
    /// Commands on hashes, sets and lists.
    Collections,
    /// Latency of other clients beside long commands.
    LongCommands,
    /// Transactions, scripts and messages.
    Programs,
    /// The cost of an append-only log that is made durable every second.
    Log,
    /// Writes that are durable when they are answered.
    DurableWrites,
    /// Snapshots and compaction under load.
    Compaction,
    /// How fast a server that starts has its data.
    Recovery,
}

impl Topic {
    /// All pages, in the order they are made.
    pub const ALL: [Topic; 13] = [
        Self::Requests,
        Self::Workers,
        Self::HotKey,
        Self::Memory,
        Self::Growth,
        Self::Expiry,
        Self::Collections,
        Self::LongCommands,
        Self::Programs,
        Self::Log,
        Self::DurableWrites,
        Self::Compaction,
        Self::Recovery,
    ];

    /// File name without its ending.
    pub fn file(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Workers => "workers",
            Self::HotKey => "hot-key",
            Self::Memory => "memory",
            Self::Growth => "growth",
            Self::Expiry => "expiry",
            Self::Collections => "collections",
            Self::LongCommands => "long-commands",
            Self::Programs => "programs",
            Self::Log => "log",
            Self::DurableWrites => "durable-writes",
            Self::Compaction => "compaction",
            Self::Recovery => "recovery",
        }
    }

    /// Heading of the page.
    pub fn title(self) -> &'static str {
        match self {
            Self::Requests => "Processor time per request",
            Self::Workers => "Two workers against one",
            Self::HotKey => "One hot key against uniform keys",
            Self::Memory => "Memory per key",
            Self::Growth => "Latency while the keyspace grows",
            Self::Expiry => "Many keys expiring in the same second",
            Self::Collections => "Processor time of commands on collections",
            Self::LongCommands => "Latency beside long commands",
            Self::Programs => "Processor time of transactions, scripts and messages",
            Self::Log => "Processor time of the append-only log",
            Self::DurableWrites => "Writes that are durable when they are answered",
            Self::Compaction => "Snapshots and compaction under load",
            Self::Recovery => "Recovery",
        }
    }

    /// How the figures are made.
    pub fn method(self) -> &'static str {
        match self {
            Self::Requests => {
                "CPU time of the server process (sum of all its threads, from /proc) for each request, closed loop, \
                 50 connections, uniformly random keys out of a preloaded set, 100-byte values. Every GET must hit and \
                 carry the whole value; every server must hold exactly the preloaded keys afterwards. Servers take \
                 turns within each round. The server runs with one worker, alone on one processor; the client has another."
            }
            Self::Workers => {
                "CPU time of the server process for each request with one worker and with two, on 50 connections with \
                 uniformly random keys: as many requests a second from an open loop (`600k`), and in a closed loop, \
                 where two workers wait for the one thread of the client. Scripts are called at pipeline 16. Neither \
                 server nor client is pinned: on a machine of two processors the client shares them with both workers."
            }
            Self::HotKey => {
                "Requests per second with every request on one key, divided by requests per second with uniformly \
                 random keys, measured back to back in a closed loop of 50 connections at pipeline 16. The server has as \
                 many workers as processors; neither it nor the client is pinned. Higher is better."
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
            Self::Collections => {
                "CPU time of the server process. Single commands: for each request, closed loop, 50 connections at \
                 pipeline 16, uniformly random members, fields or keys, 16-byte values. Whole commands: for each of 20 \
                 runs, one after the other on one connection. A fresh server for each measurement, with one worker, alone \
                 on one processor; the client has another."
            }
            Self::LongCommands => {
                "Latency of GETs, 2,000 a second on four connections, each counted from when it was due, while another \
                 client sends one command on collections of so many members (16-byte values), and for two seconds \
                 behind its answer. A fresh server for each measurement, with as many workers as processors; neither it \
                 nor the clients are pinned: on a machine of two processors both workers share them with the thread \
                 that does the work, and with the client that reads the answer. The client that measures sleeps until a \
                 request is due, so that it takes no processor from the server."
            }
            Self::Programs => {
                "CPU time of the server process: for each call of a script that writes and reads one declared key, for each \
                 MULTI of ten SETs (16-byte values, uniformly random keys), and for each delivery of a message to one of 100 \
                 subscribers; 50 connections that call, or publish, at pipeline 16. The server runs with one worker, alone on \
                 one processor; the client has another."
            }
            Self::Log => {
                "CPU time of the server process for each request without persistence, and with `appendonly yes` and \
                 `appendfsync everysec` (columns `+log`); closed loop, 50 connections, random keys out of a preloaded \
                 set, 100-byte values; SET, or GET and SET in equal parts. The server runs with one worker on one \
                 processor, which the thread that writes the log shares; the client has another. Logs are never \
                 rewritten."
            }
            Self::DurableWrites => {
                "Writes a second with `appendonly yes` and `appendfsync always`, 50 connections of a closed loop without \
                 pipelining, 100-byte values. The server has as many workers as processors; neither it nor the client is \
                 pinned. The disk is what it is: compare columns, not machines. Higher is better."
            }
            Self::Compaction => {
                "SETs of random keys with 100-byte values at full speed, 50 connections at pipeline 16, while the data set \
                 is written, and for as long afterwards: by BGSAVE without a log, by BGREWRITEAOF with `appendfsync everysec`, \
                 no rewrite beginning by itself. Throughput in windows of 100 ms, against that before; the slowest of them \
                 beside the slowest of as many afterwards, since the more windows there are, the slower is the slowest, \
                 whatever the server does; latency counted from the sending of a pipeline; resident memory, with what a \
                 forked process has copied (`current_cow_peak`). A fresh server for each measurement, with as many workers as \
                 processors; neither it nor the client is pinned. Higher throughput is better."
            }
            Self::Recovery => {
                "A server with keys of 100-byte values is shut down and started on its files: on what SAVE has written \
                 (`load-rdb`), and on an append-only log with a SET for each key that was never rewritten (`load-aof`). Keys a \
                 second from the start of the process until DBSIZE counts all of them, files in the system's cache; the \
                 server may use all processors. Higher is better."
            }
        }
    }

    /// Whether each measurement needs a server that has seen nothing else.
    pub fn wants_fresh_server(self) -> bool {
        !matches!(self, Self::Requests | Self::Workers | Self::HotKey | Self::Log | Self::DurableWrites)
    }

    /// Whether the server gets one processor and the client another.
    pub fn is_pinned(self) -> bool {
        !matches!(
            self,
            Self::Workers
                | Self::HotKey
                | Self::LongCommands
                | Self::DurableWrites
                | Self::Compaction
                | Self::Recovery
        )
    }

    /// Whether a smaller figure is the better one.
    pub fn lower_is_better(self) -> bool {
        !matches!(self, Self::HotKey | Self::DurableWrites | Self::Compaction | Self::Recovery)
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
    /// Reads a random key or overwrites one, each as often as the other.
    GetOrSet,
    /// Appends to a stream, which is kept short.
    Xadd,
    /// Adds a random element to a HyperLogLog.
    Pfadd,
}

/// The method of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// CPU time for each request at a pipeline depth.
    Cost(Verb, Transport, usize),
    /// CPU time for a request at this many requests a second, at most 16 under way on a connection.
    CostAtRate(Verb, u32),
    /// A hot key against uniform keys.
    HotKey(Verb),
    /// Requests each second without pipelining.
    Throughput(Verb),
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
    /// CPU time for each request at pipeline 16.
    Command {
        /// The command that runs before for each number of the key space.
        fill: Option<&'static str>,
        /// The command.
        words: &'static str,
    },
    /// CPU time of a command over whole collections.
    Whole {
        /// The commands that make them, member by member.
        fills: &'static [&'static str],
        /// The command.
        words: &'static str,
    },
    /// Latency of others while a command works on large collections.
    Beside {
        /// The commands that make them, member by member; once if no placeholder says which.
        fills: &'static [&'static str],
        /// The command.
        words: &'static str,
    },
    /// CPU time of a transaction of ten commands.
    Transaction,
    /// CPU time for each subscriber that a message is delivered to.
    Publish,
    /// Time of a script while others run beside it.
    ScriptTime(&'static str),
    /// Requests while the data set is written.
    Compaction(Write),
    /// How fast it is read back.
    Recovery(Source),
}

/// A comparison.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The page it appears on.
    pub topic: Topic,
    /// The name by which `--rows` selects it.
    pub name: &'static str,
    /// Its method.
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
    row(Topic::Workers, "workers-get-600k", Method::CostAtRate(Verb::Get, 600_000)),
    row(Topic::Workers, "workers-set-600k", Method::CostAtRate(Verb::Set, 600_000)),
    row(Topic::Workers, "workers-get-16", Method::Cost(Verb::Get, Transport::Tcp, 16)),
    row(Topic::Workers, "workers-set-16", Method::Cost(Verb::Set, Transport::Tcp, 16)),
    row(Topic::Workers, "workers-script-50us", Method::ScriptTime(LONG_SCRIPT)),
    row(Topic::HotKey, "hot-get-16", Method::HotKey(Verb::Get)),
    row(Topic::HotKey, "hot-set-16", Method::HotKey(Verb::Set)),
    row(Topic::Memory, "empty", Method::EmptyMemory),
    row(Topic::Memory, "memory-16", Method::Memory { value_bytes: 16, expiry: false }),
    row(Topic::Memory, "memory-16-expiry", Method::Memory { value_bytes: 16, expiry: true }),
    row(Topic::Memory, "memory-100", Method::Memory { value_bytes: 100, expiry: false }),
    row(Topic::Memory, "memory-100-expiry", Method::Memory { value_bytes: 100, expiry: true }),
    row(Topic::Growth, "growth", Method::Growth),
    row(Topic::Expiry, "expiry", Method::Expiry),
    row(Topic::Collections, "incr-16", command("INCR counter:__rand_int__")),
    row(Topic::Collections, "mset-10-16", command(MSET_10)),
    row(Topic::Collections, "sadd-16", command("SADD set member:__rand_int__")),
    row(Topic::Collections, "hset-16", command("HSET hash field:__rand_int__ __data__")),
    row(
        Topic::Collections,
        "hget-16",
        Method::Command {
            fill: Some("HSET hash field:__seq_int__ __data__"),
            words: "HGET hash field:__rand_int__",
        },
    ),
    row(Topic::Collections, "lpush-16", command("LPUSH list __data__")),
    row(Topic::Collections, "lpop-16", Method::Command { fill: Some(RPUSH_50), words: "LPOP list" }),
    row(
        Topic::Collections,
        "lrange-100-16",
        Method::Command { fill: Some("RPUSH list __data__"), words: "LRANGE list 0 99" },
    ),
    row(
        Topic::Collections,
        "sinterstore",
        Method::Whole {
            fills: &["SADD one member:__seq_int__", "SADD other member:__seq_int__"],
            words: "SINTERSTORE both one other",
        },
    ),
    row(
        Topic::Collections,
        "zadd-16",
        Method::Command { fill: Some(ZADD), words: "ZADD zset __rand_int__ member:__rand_int__" },
    ),
    row(
        Topic::Collections,
        "zrank-16",
        Method::Command { fill: Some(ZADD), words: "ZRANK zset member:__rand_int__" },
    ),
    row(
        Topic::Collections,
        "zrange-100-16",
        Method::Command { fill: Some(ZADD), words: "ZRANGE zset __rand_int__ +inf BYSCORE LIMIT 0 100" },
    ),
    row(
        Topic::Collections,
        "zunionstore",
        Method::Whole {
            fills: &[
                "ZADD one __rand_int__ member:__seq_int__",
                "ZADD other __rand_int__ member:__seq_int__",
            ],
            words: "ZUNIONSTORE both 2 one other",
        },
    ),
    row(Topic::Collections, "sort", Method::Whole { fills: NUMBERS, words: "SORT list" }),
    row(Topic::Collections, "sort-store", Method::Whole { fills: NUMBERS, words: "SORT list STORE sorted" }),
    row(Topic::Collections, "sort-limit", Method::Whole { fills: NUMBERS, words: "SORT list LIMIT 0 10" }),
    row(Topic::LongCommands, "long-del-set", Method::Beside { fills: LARGE_SET, words: "DEL set" }),
    row(Topic::LongCommands, "long-del-hash", Method::Beside { fills: LARGE_HASH, words: "DEL hash" }),
    row(Topic::LongCommands, "long-del-list", Method::Beside { fills: LARGE_LIST, words: "DEL list" }),
    row(
        Topic::LongCommands,
        "long-del-sorted-set",
        Method::Beside { fills: LARGE_SORTED_SET, words: "DEL zset" },
    ),
    row(Topic::LongCommands, "long-del-stream", Method::Beside { fills: LARGE_STREAM, words: "DEL stream" }),
    row(Topic::LongCommands, "long-unlink", Method::Beside { fills: LARGE_SET, words: "UNLINK set" }),
    row(Topic::LongCommands, "long-expire", Method::Beside { fills: LARGE_HASH, words: "PEXPIRE hash 1" }),
    row(
        Topic::LongCommands,
        "long-rename",
        Method::Beside {
            fills: &["SADD set member:__seq_int__", "SET small value"],
            words: "RENAME small set",
        },
    ),
    row(Topic::LongCommands, "long-smembers", Method::Beside { fills: LARGE_SET, words: "SMEMBERS set" }),
    row(Topic::LongCommands, "long-hgetall", Method::Beside { fills: LARGE_HASH, words: "HGETALL hash" }),
    row(Topic::LongCommands, "long-lrange", Method::Beside { fills: LARGE_LIST, words: "LRANGE list 0 -1" }),
    row(
        Topic::LongCommands,
        "long-zrange",
        Method::Beside { fills: LARGE_SORTED_SET, words: "ZRANGE zset 0 -1" },
    ),
    row(
        Topic::LongCommands,
        "long-xrange",
        Method::Beside { fills: LARGE_STREAM, words: "XRANGE stream - +" },
    ),
    row(
        Topic::LongCommands,
        "long-xreadgroup",
        Method::Beside { fills: LARGE_GROUP, words: "XREADGROUP GROUP group consumer STREAMS stream >" },
    ),
    row(
        Topic::LongCommands,
        "long-xtrim",
        Method::Beside { fills: LARGE_STREAM, words: "XTRIM stream MAXLEN 10" },
    ),
    row(
        Topic::LongCommands,
        "long-sinter",
        Method::Beside { fills: TWO_LARGE_SETS, words: "SINTER set other" },
    ),
    row(
        Topic::LongCommands,
        "long-sinterstore",
        Method::Beside { fills: TWO_LARGE_SETS, words: "SINTERSTORE both set other" },
    ),
    row(
        Topic::LongCommands,
        "long-sort",
        Method::Beside { fills: &["RPUSH list __rand_int__"], words: "SORT list" },
    ),
    row(Topic::LongCommands, "long-copy", Method::Beside { fills: LARGE_SET, words: "COPY set other" }),
    row(Topic::LongCommands, "long-dump", Method::Beside { fills: LARGE_HASH, words: "DUMP hash" }),
    row(Topic::LongCommands, "long-spop", Method::Beside { fills: LARGE_SET, words: "SPOP set 100000" }),
    row(
        Topic::LongCommands,
        "long-lmpop",
        Method::Beside { fills: LARGE_LIST, words: "LMPOP 1 list LEFT COUNT 5000000" },
    ),
    row(Topic::LongCommands, "long-keys", Method::Beside { fills: MANY_KEYS, words: "KEYS *" }),
    row(Topic::LongCommands, "long-keys-none", Method::Beside { fills: MANY_KEYS, words: "KEYS x*" }),
    row(
        Topic::LongCommands,
        "long-scan",
        Method::Beside { fills: MANY_KEYS, words: "SCAN 0 COUNT 10000000" },
    ),
    row(Topic::Programs, "evalsha-16", Method::Command { fill: Some(SCRIPT_LOAD), words: EVALSHA }),
    row(Topic::Programs, "multi-10-sets-16", Method::Transaction),
    row(Topic::Programs, "publish-100-subscribers", Method::Publish),
    row(Topic::Log, "log-set-1", Method::Cost(Verb::Set, Transport::Tcp, 1)),
    row(Topic::Log, "log-set-16", Method::Cost(Verb::Set, Transport::Tcp, 16)),
    row(Topic::Log, "log-get-or-set-16", Method::Cost(Verb::GetOrSet, Transport::Tcp, 16)),
    row(Topic::DurableWrites, "always-set", Method::Throughput(Verb::Set)),
    row(Topic::Compaction, "bgsave-under-set", Method::Compaction(Write::Snapshot)),
    row(Topic::Compaction, "bgrewriteaof-under-set", Method::Compaction(Write::Rewrite)),
    row(Topic::Recovery, "load-rdb", Method::Recovery(Source::Snapshot)),
    row(Topic::Recovery, "load-aof", Method::Recovery(Source::Log)),
];

const MANY_KEYS: &[&str] = &["SET key:__seq_int__ __data__"];
const LARGE_SET: &[&str] = &["SADD set member:__seq_int__"];
const TWO_LARGE_SETS: &[&str] = &["SADD set member:__seq_int__", "SADD other member:__seq_int__"];
const LARGE_HASH: &[&str] = &["HSET hash field:__seq_int__ __data__"];
const LARGE_LIST: &[&str] = &["RPUSH list __data__"];
const LARGE_SORTED_SET: &[&str] = &[ZADD];
const LARGE_STREAM: &[&str] = &["XADD stream * field __data__"];
const LARGE_GROUP: &[&str] = &["XADD stream * field __data__", "XGROUP CREATE stream group 0"];
const ZADD: &str = "ZADD zset __rand_int__ member:__seq_int__";
const SCRIPT_LOAD: &str = "SCRIPT LOAD redis.call('set',KEYS[1],ARGV[1])return(redis.call('get',KEYS[1]))";
const EVALSHA: &str = "EVALSHA fd4b696bead91bc4b6d1039af0221557f7f302af 1 key:__rand_int__ __data__";
/// Takes some 50 µs.
const LONG_SCRIPT: &str = "local x = 0 for i = 1, 9000 do x = x + i end return redis.call('incr', KEYS[1])";
const NUMBERS: &[&str] = &["RPUSH list __rand_int__"];
const MSET_10: &str = "MSET key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ \
    key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__ \
    key:__rand_int__ __data__ key:__rand_int__ __data__ key:__rand_int__ __data__";
const RPUSH_50: &str = "RPUSH list __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ \
    __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ \
    __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ \
    __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ __data__ \
    __data__ __data__ __data__ __data__ __data__";
const fn command(words: &'static str) -> Method {
    Method::Command { fill: None, words }
}

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Preloaded keys of the request rows.
    pub keys: u64,
    /// Keys of the memory rows.
    pub memory_keys: u64,
    /// Keys of the growth row.
    pub growth_keys: u64,
    /// Keys of the expiry row.
    pub expiry_keys: u64,
    /// Members of the collections that long commands work on.
    pub long_members: u64,
    /// Keys of the rows about compaction and recovery.
    pub compaction_keys: u64,
    /// Load before each measurement that is not counted.
    pub warmup: Duration,
    /// Length of each measurement.
    pub measured: Duration,
}

impl Scale {
    /// The sizes of the published figures.
    pub const FULL: Scale = Scale {
        keys: 1_000_000,
        memory_keys: 5_000_000,
        growth_keys: 20_000_000,
        expiry_keys: 1_000_000,
        long_members: 10_000_000,
        compaction_keys: 2_000_000,
        warmup: Duration::from_millis(500),
        measured: Duration::from_millis(3000),
    };

    /// Seconds instead of minutes; the figures mean nothing.
    pub const QUICK: Scale = Scale {
        keys: 8_000,
        memory_keys: 20_000,
        growth_keys: 20_000,
        expiry_keys: 2_000,
        long_members: 20_000,
        compaction_keys: 20_000,
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
