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

/// The times that decide how long a primary may stand still before it is replaced.
#[derive(Debug, Clone, Copy)]
pub struct Leases {
    /// See [`LEASE_MS`].
    pub lease_ms: u64,
    /// See [`PROMISE_MS`].
    pub promise_ms: u64,
    /// See [`LINK_SILENCE_MS`].
    pub link_silence_ms: u64,
}

/// The times of every server in use.
pub const LEASES: Leases =
    Leases { lease_ms: LEASE_MS, promise_ms: PROMISE_MS, link_silence_ms: LINK_SILENCE_MS };
/// The longest times that all relations below allow. Tests of healthy nodes use them: a machine that runs tests may stand still for
/// a second. All nodes of a cluster must have the same.
pub const SLOW_LEASES: Leases = Leases { lease_ms: 1_550, promise_ms: 2_250, link_silence_ms: 2_600 };
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

const _: () = LEASES.check();
const _: () = SLOW_LEASES.check();

impl Leases {
    const fn check(self) {
        let Self { lease_ms, promise_ms, link_silence_ms } = self;
        // A promise that began after its lease outlasts it, if the member's clock is the fastest and the primary's the slowest.
        assert!(promise_ms * RATE_MIN > lease_ms * RATE_MAX);
        // A lease survives the loss of several heartbeats.
        assert!(5 * HEARTBEAT_MS <= lease_ms);
        // A proposal that was refused is made anew while the lease that it is about still tells something.
        assert!(RETRY_MS < lease_ms);
        // A link that broke is there again, and has carried a heartbeat and its echo, before a lease runs out.
        assert!(LINK_RETRY_MS + 2 * HEARTBEAT_MS < lease_ms);
        // A link is not given up while a promise rests on what may still come over it.
        assert!(link_silence_ms > promise_ms);
        // A node whose presence has ended serves nothing: its leases have run out.
        assert!(PRESENCE_MS > promise_ms + link_silence_ms);
        // Clients that wait for a successor are let go before a failed successor would be replaced.
        assert!(SUCCESSOR_MS < lease_ms);
        // A learner reports within some turns; one that is being started does, too, if its machine is quick.
        assert!(RECOVER_MS > promise_ms + 4 * RETRY_MS);
        // Clients that are parked for a handover or a move wait for less than a takeover takes.
        assert!(HANDOVER_MS < promise_ms);
        assert!(MOVE_PARK_MS < promise_ms);
    }
}

// The next member in rank hears of a takeover before it begins its own.
const _: () = assert!(RANK_MS >= HEARTBEAT_MS);
// A member is expelled for its silence before it is expelled for its lag.
const _: () = assert!(LAG_MS > PRESENCE_MS);
// A handover that has failed is over before the next one.
const _: () = assert!(HANDOVER_AGAIN_MS > HANDOVER_MS);
