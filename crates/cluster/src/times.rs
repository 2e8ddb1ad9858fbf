//! The times of a shard, in milliseconds: one table for the server, the machines and the simulator.
//!
//! ```text
//!   heartbeat  retry   successor  lease   promise      link    presence        lag
//!  ────┼─────────┼──────┼──────┼────────┼───────────┼─────────┼────────────┼──▶
//!     100       200    250    900     1,300       2,000     5,000       10,000
//! ```
//!
//! The relations that safety and availability rest on are assertions at compile time. The simulator runs with this table and with
//! clocks whose rates fill [`RATE_MIN`]..[`RATE_MAX`], so a table that the server does not run with proves nothing and cannot exist.

/// A lease of a member, from when its heartbeat was sent: L.
pub const LEASE_MS: u64 = 900;
/// The promise behind a lease, from when the heartbeat was received: G. A takeover follows its end.
pub const PROMISE_MS: u64 = 1_300;
/// Between two heartbeats.
pub const HEARTBEAT_MS: u64 = 100;
/// A member with less data waits longer by this for each member with more.
pub const RANK_MS: u64 = 100;
/// Between two attempts to read or to propose.
pub const RETRY_MS: u64 = 200;
/// A member is expelled that lacks for this time what the primary had.
pub const LAG_MS: u64 = 10_000;
/// The longest that commands are parked for a handover that fails.
pub const HANDOVER_MS: u64 = 1_000;
/// Between a handover that has failed and the next one.
pub const HANDOVER_AGAIN_MS: u64 = 5_000;
/// The longest that the clients of a primary that has handed over wait for a sign of its successor.
pub const SUCCESSOR_MS: u64 = 250;
/// How long a member that has lost data waits for the learners of its shard to report what they have.
pub const RECOVER_MS: u64 = 4_000;

/// A connection to another member is made anew when its machine has acknowledged nothing for this time.
pub const LINK_SILENCE_MS: u64 = 2_000;
/// Between two attempts to connect to another member.
pub const LINK_RETRY_MS: u64 = 100;
/// How long a node counts as there that has stopped renewing its presence. A hint: no safety rests on it.
pub const PRESENCE_MS: u64 = 5_000;

/// The longest that commands on moving slots are parked before a proposal.
pub const MOVE_PARK_MS: u64 = 500;
/// Pause after commands on moving slots were parked without success.
pub const MOVE_AGAIN_MS: u64 = 1_000;

/// Thousandths of the slowest clock's rate that promises allow for.
pub const RATE_MIN: u64 = 850;
/// Thousandths of the fastest clock's rate that promises allow for.
pub const RATE_MAX: u64 = 1_150;

// A promise that began after its lease outlasts it, if the member's clock is the fastest and the primary's the slowest.
const _: () = assert!(PROMISE_MS * RATE_MIN > LEASE_MS * RATE_MAX);
// A lease survives the loss of several heartbeats.
const _: () = assert!(5 * HEARTBEAT_MS <= LEASE_MS);
// The next member in rank hears of a takeover before it begins its own.
const _: () = assert!(RANK_MS >= HEARTBEAT_MS);
// A proposal that was refused is made anew while the lease that it is about still tells something.
const _: () = assert!(RETRY_MS < LEASE_MS);
// A link that broke is there again, and has carried a heartbeat and its echo, before a lease runs out.
const _: () = assert!(LINK_RETRY_MS + 2 * HEARTBEAT_MS < LEASE_MS);
// A link is not given up while a promise rests on what may still come over it.
const _: () = assert!(LINK_SILENCE_MS > PROMISE_MS);
// A node whose presence has ended serves nothing: its leases have run out.
const _: () = assert!(PRESENCE_MS > PROMISE_MS + LINK_SILENCE_MS);
// A member is expelled for its silence before it is expelled for its lag.
const _: () = assert!(LAG_MS > PRESENCE_MS);
// Clients that wait for an successor are let go before a failed successor would be replaced.
const _: () = assert!(SUCCESSOR_MS < LEASE_MS);
// A learner reports within some turns; one that is being started does, too, if its machine is quick.
const _: () = assert!(RECOVER_MS > PROMISE_MS + 4 * RETRY_MS);
// Clients that are parked for a handover or a move wait for less than a takeover takes.
const _: () =
    assert!(HANDOVER_MS < PROMISE_MS && MOVE_PARK_MS < PROMISE_MS && HANDOVER_AGAIN_MS > HANDOVER_MS);
