//! The settings of a machine, and the rules that the simulator breaks.

use crate::times;

/// Times and limits. All times are milliseconds.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a lease lasts, from the heartbeat's sending: L.
    pub lease_ms: u64,
    /// How long the promise behind it lasts, from the heartbeat's receipt: G. Safe while rates of clocks differ by less than
    /// G/L.
    pub grace_ms: u64,
    /// Between two heartbeats.
    pub heartbeat_ms: u64,
    /// A member with less data waits longer by this for each one with more.
    pub rank_ms: u64,
    /// A member is expelled that lacks for this time what the primary had.
    pub lag_ms: u64,
    /// The longest that commands are parked for a handover that does not come about.
    pub handover_ms: u64,
    /// Between two attempts to read or to propose.
    pub retry_ms: u64,
    /// How long a member that has lost data waits for learners to report what they have.
    pub recover_ms: u64,
    /// Members that a write needs.
    pub min_sync: usize,
    /// A rule that is broken on purpose.
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

impl Default for Options {
    /// The times of [`crate::times`].
    fn default() -> Self {
        Self {
            lease_ms: times::LEASE_MS,
            grace_ms: times::PROMISE_MS,
            heartbeat_ms: times::HEARTBEAT_MS,
            rank_ms: times::RANK_MS,
            lag_ms: times::LAG_MS,
            handover_ms: times::HANDOVER_MS,
            retry_ms: times::RETRY_MS,
            recover_ms: times::RECOVER_MS,
            min_sync: 1,
            fault: None,
        }
    }
}

/// Rules that the simulator breaks, one at a time, to prove that its checks would see it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A write is committed when most members have it.
    CommitByMajority,
    /// A lease counts from when its echo came.
    LeaseFromReceipt,
    /// A takeover compares nothing.
    TakeOverWithoutCompare,
    /// A demoted primary keeps what was not committed.
    KeepTail,
    /// An unknown outcome counts as a failure.
    UnknownIsFailure,
    /// A process that has lost its tail remains a member.
    LostIsClean,
    /// A member whose data is gone remains one.
    EmptiedIsClean,
    /// A node is believed to have what it had before its data was replaced by a copy.
    HeldOutlivesCopy,
    /// A copy counts before the primary has said that it counts nothing from before it.
    CopyCountsAtOnce,
    /// A copy counts as synced before a start would load it: the log that it begins has no base yet.
    CopyCountsWithoutBase,
    /// A heartbeat is answered although a takeover is under way.
    PromiseWhileTakingOver,
    /// A learner is admitted on the word of a process that may be gone.
    AdmitOnHearsay,
    /// A proposal is good although its process has ended.
    ProposeAfterDeath,
    /// The lease is not looked at.
    ServeWithoutLease,
    /// Replies leave before their writes are committed.
    AnswerUncommitted,
    /// A stream of an older epoch is applied.
    AcceptStaleEpoch,
    /// A store is obeyed whose numbers are high enough, whatever it has come from.
    ObeyRestored,
    /// A recovery looks at members only: one that has nothing beats a learner.
    RecoverMembersOnly,
    /// Slots: the target serves before the record says so.
    ServeImporting,
    /// Slots: a new primary serves by the record as it was before its takeover.
    ServeUnread,
    /// Slots: the source gives away what the target has not committed.
    GiveEarly,
    /// Slots: the source gives slots away while others that it was given could still vanish from its log.
    GiveUnsettled,
}
