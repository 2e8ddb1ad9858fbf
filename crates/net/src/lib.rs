//! The I/O layer: worker threads, listeners, connections and the messages between workers.
//!
//! A [`Service`] executes commands; this crate does not know any. The real server
//! and the constant-answer server of the benchmarks are two services on the same layer.
//!
//! ```text
//!             accept            read            serve              write
//!  listener ────────▶ worker ─────────▶ input ────────▶ reply ──────────────▶ socket
//!  (worker 0)  messages            shared or own            │  what the socket
//!                              buffer                   ▼  does not take
//!                                                     output ──(writable)───▶ socket
//! ```
//!
//! A worker's tick: poll → every ready connection reads once and is served; answers leave up to 16 in a row
//! (`pending_writes`) → messages → what messages made others say → a slice of background work. Before replies leave,
//! pushes do that may be about what they have seen, to whichever worker's clients (`pushes`).
//!
//! Invariants:
//! - Everything of a connection is touched by its own worker only; other threads send messages, and write pushes while it has
//!   nothing of its own to say.
//! - A worker never blocks except in its poll, and for as long as another one writes pushes. The right to write these is
//!   the only lock that is held across a system call.
//! - Memory of a connection follows what has arrived, never what has been announced, and both
//!   directions are bounded (see [`connection`]).
//! - A ready socket costs one read and one write: readiness is edge triggered and a short read
//!   means that the socket is drained.

mod busy_poll;
mod clients;
mod connection;
mod counter;
mod event_loop;
mod handshakes;
mod input;
mod limits;
mod listener;
mod listening;
mod nested_poll;
mod open_files;
mod outgoing;
mod output;
mod pending_writes;
mod pushes;
mod service;
mod stages;
mod stream;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tls;
mod withheld;
mod worker;
mod worker_queue;
mod workers;

#[cfg(any(test, feature = "testing"))]
pub use clients::test_client;
pub use clients::{Address, Buffers, Client, Clients, Names, OutputClass, PeerIds, Transport};
pub use connection::{SHARED_BYTES, STRANGER_AGE_MAX, connection_bytes};
pub use counter::{Counter, Traffic};
/// The parts of [`StageTimes`].
pub use dunlin_structures::{Log2Counts, Log2Histogram};
pub use event_loop::EventLoop;
pub use limits::{Limits, OutputLimit};
pub use listener::{ListenError, ListenOptions, listen_on};
pub use listening::Listening;
pub use open_files::{CONSOLES_MAX, HTTP_CLIENTS_MAX, OpenFilesError, reserve_open_files};
pub use outgoing::begin_connection;
pub use pushes::{ClientPushes, Listener, Push, PushList, Pushed, WaitingPush};
pub use service::{Next, Now, REPLY_BYTES_MAX, SeenReplies, SeenReply, Served, Service, To};
pub use stages::StageTimes;
pub use stream::Stream;
pub use tls::Identity;
pub use withheld::Commitment;
#[cfg(any(test, feature = "testing"))]
pub use worker_queue::TestQueues;
pub use worker_queue::{Commitments, WorkerQueues};
pub use workers::{Listened, Running, StartError, WorkerContext, Workers};
