//! The transitions of a shard's record: a literal table, and nothing else changes a record.
//!
//! Each is one transaction that compares the revision of the record (0: absent). [`TABLE`] says who may propose it,
//! what must hold at that moment, and what the record is afterwards. The facts are the proposer's own; the comparison
//! decides what one node alone cannot know.
//!
//! ```text
//!             learn            admit                    take over, hand over
//!   nobody ─────────▶ learner ────────▶ in-sync member ───────────────────────▶ primary
//!          ◀───────── learner ◀──────── in-sync member ◀─────────────────────── primary
//!            dismiss           expel                         hand over
//!                      ▲                                                           │
//!                      └──────────────── somebody else took over ◀─────────────────┘
//! ```

use std::collections::BTreeSet;

use crate::{
    HistoryId, NodeId,
    records::{History, RequestedChange, ShardRecord},
};

/// A change of a shard's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transition {
    /// The shard comes into being, with one node.
    Form,
    /// A node becomes a learner.
    Learn,
    /// A learner leaves the shard.
    Dismiss,
    /// The primary gets an order, or an order is taken back.
    Order,
    /// A learner becomes a member of the in-sync set.
    Admit,
    /// A member of the in-sync set becomes a learner, or leaves the shard if it is to be released.
    Expel,
    /// A member becomes the primary, because the primary is not heard of.
    TakeOver,
    /// The primary makes another member the primary.
    HandOver,
    /// No node has all that was acknowledged: the node with most goes on, a member or a learner.
    Recover,
    /// As `Recover`, while members are missing: an operator's explicit word.
    Force,
}

/// The proposers of transitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proposer {
    /// The planner, on whichever node it runs.
    Controller,
    /// The primary of the record.
    Primary,
    /// A member of the in-sync set. The primary is one, too: after a restart it may take over from itself.
    Member,
    /// Any node: it reads what others have written down.
    Anyone,
    /// A person.
    Operator,
}

/// The proposer's knowledge. Everything is false or zero unless it is known.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The subject may hold data: its record says `active`.
    pub active: bool,
    /// The primary holds a lease of the subject.
    pub lease: bool,
    /// The subject has everything that is committed, in the current history; and until the outcome is known, whatever commits
    /// needs the subject, too.
    pub caught_up: bool,
    /// The subject lags beyond the limit.
    pub lags: bool,
    /// The subject cannot go on from what it has: it restarted without all that it had acknowledged.
    pub lost: bool,
    /// The proposer's promise to the primary has run out.
    pub grace_over: bool,
    /// The proposer has all that it ever acknowledged.
    pub clean: bool,
    /// Commands are parked, and every member has the end of the stream: but for a primary that resigns.
    pub parked: bool,
    /// The primary cannot keep what is written, and becomes a learner.
    pub resigns: bool,
    /// The nodes whose restart is written down, for their current process.
    pub reported: BTreeSet<NodeId>,
    /// Nodes among them that have all that they ever acknowledged.
    pub reported_clean: BTreeSet<NodeId>,
    /// The node with most, among those that have reported.
    pub best: Option<NodeId>,
    /// Members that are gone. The transaction compares that.
    pub absent: BTreeSet<NodeId>,
    /// Members that the cluster wants for a write.
    pub min_sync: usize,
    /// The history that the new primary's data is part of.
    pub history: Option<HistoryId>,
    /// The end of its data.
    pub end: u64,
    /// An id that no history has had.
    pub new_history: Option<HistoryId>,
    /// The order, for [`Transition::Order`].
    pub requested: Option<RequestedChange>,
}

/// A row of the table.
pub struct Row {
    /// The change.
    pub transition: Transition,
    /// Its proposer.
    pub by: Proposer,
    /// Whether it begins a new epoch: it changes the primary or the in-sync set.
    pub new_epoch: bool,
    /// The conditions on the record, the subject and the proposer's facts; each with the sentence that says why the change waits.
    pub only_if: &'static [(&'static str, Condition)],
    /// The record afterwards, without its epoch.
    pub change: fn(&mut ShardRecord, NodeId, &Facts),
}

/// A condition on the record as it is, the subject and the facts.
pub type Condition = fn(&ShardRecord, NodeId, &Facts) -> bool;

/// The specification. `Form` has no record before it; its row sees the record that it makes.
pub const TABLE: [Row; 10] = [
    Row {
        transition: Transition::Form,
        by: Proposer::Controller,
        new_epoch: true,
        only_if: &[("the node is active", |_, _, facts| facts.active)],
        change: |_, _, _| {},
    },
    Row {
        transition: Transition::Learn,
        by: Proposer::Controller,
        new_epoch: false,
        only_if: &[
            ("the node is active", |_, _, facts| facts.active),
            ("the node is no part of the shard", |record, node, _| !record.has(node)),
        ],
        change: |record, node, _| {
            record.learners.insert(node);
        },
    },
    Row {
        transition: Transition::Dismiss,
        by: Proposer::Controller,
        new_epoch: false,
        only_if: &[("the node is a learner", |record, node, _| record.learners.contains(&node))],
        change: |record, node, _| {
            record.learners.remove(&node);
        },
    },
    Row {
        transition: Transition::Order,
        by: Proposer::Controller,
        new_epoch: false,
        only_if: &[
            ("the order names a member that is not the primary", |record, _, facts| match facts.requested {
                Some(RequestedChange::HandOver(node) | RequestedChange::Release(node)) => {
                    record.in_sync.contains(&node) && node != record.primary
                }
                None => true,
            }),
            ("the order is another one", |record, _, facts| record.requested != facts.requested),
        ],
        change: |record, _, facts| record.requested = facts.requested,
    },
    Row {
        transition: Transition::Admit,
        by: Proposer::Primary,
        new_epoch: true,
        only_if: &[
            ("the node is a learner", |record, node, _| record.learners.contains(&node)),
            ("the primary holds its lease", |_, _, facts| facts.lease),
            ("it has everything that is committed", |_, _, facts| facts.caught_up && !facts.lost),
        ],
        change: |record, node, _| {
            record.learners.remove(&node);
            record.in_sync.insert(node);
        },
    },
    Row {
        transition: Transition::Expel,
        by: Proposer::Primary,
        new_epoch: true,
        only_if: &[
            ("the node is a member, and not the primary", |record, node, _| {
                record.in_sync.contains(&node) && node != record.primary
            }),
            ("its lease has run out, it lags, it is lost, or it is to be released", |record, node, facts| {
                !facts.lease
                    || facts.lags
                    || facts.lost
                    || record.requested == Some(RequestedChange::Release(node))
            }),
            // Else a primary that is cut off from its members would leave the shard without enough of them, although they
            // could go on without it.
            ("enough members remain, or it is lost", |record, _, facts| {
                facts.lost || record.in_sync.len() > facts.min_sync
            }),
        ],
        change: |record, node, _| {
            record.in_sync.remove(&node);
            // A member that is to be released leaves at once: as a learner it would only be admitted again.
            if record.requested != Some(RequestedChange::Release(node)) {
                record.learners.insert(node);
            }
            record.requested = record
                .requested
                .filter(|requested| !matches!(requested, RequestedChange::HandOver(to) | RequestedChange::Release(to) if *to == node));
        },
    },
    Row {
        transition: Transition::TakeOver,
        by: Proposer::Member,
        new_epoch: true,
        only_if: &[
            ("the node is a member", |record, node, _| record.in_sync.contains(&node)),
            ("its promise to the primary has run out", |record, node, facts| {
                facts.grace_over || node == record.primary
            }),
            ("it has all that it ever acknowledged", |_, _, facts| facts.clean && facts.history.is_some()),
        ],
        change: |record, node, facts| {
            if record.primary != node {
                record.in_sync.remove(&record.primary);
                record.learners.insert(record.primary);
            }
            lead(record, node, facts);
        },
    },
    Row {
        transition: Transition::HandOver,
        by: Proposer::Primary,
        new_epoch: true,
        only_if: &[
            ("the node is a member, and not the primary", |record, node, _| {
                record.in_sync.contains(&node) && node != record.primary
            }),
            ("the primary holds its lease", |_, _, facts| facts.lease),
            ("commands are parked, and every member has the end of the stream", |_, _, facts| facts.parked),
            ("enough members remain", |record, _, facts| {
                !facts.resigns || record.in_sync.len() > facts.min_sync
            }),
        ],
        change: |record, node, facts| {
            if facts.resigns {
                record.in_sync.remove(&record.primary);
                record.learners.insert(record.primary);
            }
            lead(record, node, facts);
        },
    },
    Row {
        transition: Transition::Recover,
        by: Proposer::Anyone,
        new_epoch: true,
        only_if: &[
            ("every member has reported its restart", |record, _, facts| {
                record.in_sync.is_subset(&facts.reported)
            }),
            ("no member has all that it acknowledged", |record, _, facts| {
                record.in_sync.is_disjoint(&facts.reported_clean)
            }),
            ("the node is the one with most", |record, node, facts| {
                facts.best == Some(node) && record.has(node)
            }),
        ],
        change: alone,
    },
    Row {
        transition: Transition::Force,
        by: Proposer::Operator,
        new_epoch: true,
        only_if: &[
            ("the node is part of the shard, and says itself what it has", |record, node, facts| {
                record.has(node) && facts.reported.contains(&node)
            }),
            ("it has data of the shard", |_, _, facts| facts.history.is_some()),
            // Else the member would lead, with more.
            ("no member is there that has all that it acknowledged", |record, node, facts| {
                let others = record.in_sync.iter().filter(|other| **other != node);
                !facts.clean
                    && others.clone().all(|other| {
                        facts.absent.contains(other)
                            || facts.reported.contains(other) && !facts.reported_clean.contains(other)
                    })
            }),
            ("a member is gone, or a recovery would come", |record, _, facts| {
                record.in_sync.iter().any(|member| facts.absent.contains(member))
            }),
        ],
        change: alone,
    },
];

/// The node becomes the primary, and its stream a new history from where its data ends.
fn lead(record: &mut ShardRecord, node: NodeId, facts: &Facts) {
    record.primary = node;
    record.requested = None;
    if let Some(id) = facts.new_history {
        record.history = History { id, from: facts.end, previous: facts.history };
    }
}

/// The node becomes the primary; all others have to learn anew.
fn alone(record: &mut ShardRecord, node: NodeId, facts: &Facts) {
    let others: Vec<NodeId> = record.nodes().filter(|other| *other != node).collect();
    record.learners = others.into_iter().collect();
    record.in_sync = [node].into();
    lead(record, node, facts);
}

/// Returns the row of a transition.
pub fn row(transition: Transition) -> &'static Row {
    TABLE.iter().find(|row| row.transition == transition).expect("every transition has a row")
}

/// Returns the record that the transition makes of this one, or the condition that does not hold.
pub fn change(
    transition: Transition,
    record: &ShardRecord,
    subject: NodeId,
    facts: &Facts,
) -> Result<ShardRecord, &'static str> {
    let row = row(transition);
    if let Some((why, _)) = row.only_if.iter().find(|(_, holds)| !holds(record, subject, facts)) {
        return Err(why);
    }
    let mut changed = record.clone();
    (row.change)(&mut changed, subject, facts);
    if row.new_epoch && transition != Transition::Form {
        changed.epoch += 1;
    }
    Ok(changed)
}

/// Returns the record of a new shard: [`Transition::Form`].
pub fn form(primary: NodeId, facts: &Facts) -> Result<ShardRecord, &'static str> {
    let history = facts.new_history.or(facts.history).ok_or("the history has an id")?;
    let record = ShardRecord {
        epoch: 1,
        primary,
        in_sync: [primary].into(),
        learners: BTreeSet::new(),
        history: History {
            id: history,
            from: facts.end,
            previous: facts.history.filter(|id| *id != history),
        },
        requested: None,
    };
    change(Transition::Form, &record, primary, facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Record;

    fn node(number: u8) -> NodeId {
        NodeId::from_bytes([number; 20])
    }

    fn history(number: u8) -> HistoryId {
        HistoryId::from_bytes([number; 20])
    }

    const P: u8 = 1;
    const M: u8 = 2;
    const L: u8 = 4;

    /// Primary 1, members 2 and 3, learner 4.
    fn record() -> ShardRecord {
        ShardRecord {
            epoch: 5,
            primary: node(P),
            in_sync: [node(P), node(M), node(3)].into(),
            learners: [node(L)].into(),
            history: History { id: history(8), from: 100, previous: Some(history(7)) },
            requested: None,
        }
    }

    /// All that any row could ask for.
    fn facts() -> Facts {
        let members: BTreeSet<NodeId> = [node(P), node(M), node(3)].into();
        Facts {
            active: true,
            lease: true,
            caught_up: true,
            grace_over: true,
            clean: true,
            parked: true,
            reported: members,
            best: Some(node(M)),
            min_sync: 2,
            history: Some(history(8)),
            end: 200,
            new_history: Some(history(9)),
            ..Facts::default()
        }
    }

    /// The record after a transition, in short: `epoch primary | in-sync | learners`.
    fn after(
        transition: Transition,
        subject: u8,
        edit: impl FnOnce(&mut ShardRecord, &mut Facts),
    ) -> Result<String, &'static str> {
        let (mut record, mut facts) = (record(), facts());
        edit(&mut record, &mut facts);
        let changed = change(transition, &record, node(subject), &facts)?;
        changed.check().unwrap();
        let name = |node: &NodeId| node.bytes()[0].to_string();
        let names = |nodes: &BTreeSet<NodeId>| nodes.iter().map(name).collect::<Vec<_>>().join(" ");
        let own = if changed.history.id == history(9) { " new history" } else { "" };
        let ShardRecord { epoch, primary, in_sync, learners, .. } = &changed;
        Ok(format!("{epoch} {} | {} | {}{own}", name(primary), names(in_sync), names(learners)))
    }

    fn ok(text: &str) -> Result<String, &'static str> {
        Ok(text.to_owned())
    }

    #[test]
    fn transitions_have_one_row_each() {
        let named: BTreeSet<Transition> = TABLE.iter().map(|row| row.transition).collect();
        assert_eq!(named.len(), TABLE.len());
    }

    #[test]
    fn form_makes_a_shard_of_one() {
        let made = form(node(1), &facts()).unwrap();
        made.check().unwrap();
        assert_eq!((made.epoch, made.primary, made.in_sync), (1, node(1), [node(1)].into()));
        assert_eq!(made.history, History { id: history(9), from: 200, previous: Some(history(8)) });
        assert_eq!(form(node(1), &Facts { active: false, ..facts() }), Err("the node is active"));
    }

    #[test]
    fn learn_adds_an_active_stranger_within_the_epoch() {
        assert_eq!(after(Transition::Learn, 5, |_, _| {}), ok("5 1 | 1 2 3 | 4 5"));
        assert_eq!(after(Transition::Learn, 5, |_, facts| facts.active = false), Err("the node is active"));
        for known in [P, M, L] {
            assert_eq!(after(Transition::Learn, known, |_, _| {}), Err("the node is no part of the shard"));
        }
    }

    #[test]
    fn dismiss_takes_learners_only() {
        assert_eq!(after(Transition::Dismiss, L, |_, _| {}), ok("5 1 | 1 2 3 | "));
        for other in [P, M, 5] {
            assert_eq!(after(Transition::Dismiss, other, |_, _| {}), Err("the node is a learner"));
        }
    }

    #[test]
    fn order_names_a_member() {
        let order = |requested| after(Transition::Order, P, |_, facts| facts.requested = requested);
        assert_eq!(order(Some(RequestedChange::HandOver(node(M)))), ok("5 1 | 1 2 3 | 4"));
        assert_eq!(order(Some(RequestedChange::Release(node(M)))), ok("5 1 | 1 2 3 | 4"));
        for odd in [P, L, 5] {
            let why = Err("the order names a member that is not the primary");
            assert_eq!(order(Some(RequestedChange::HandOver(node(odd)))), why);
        }
        assert_eq!(order(None), Err("the order is another one"));
    }

    #[test]
    fn admit_needs_a_lease_and_all_that_is_committed() {
        assert_eq!(after(Transition::Admit, L, |_, _| {}), ok("6 1 | 1 2 3 4 | "));
        assert_eq!(after(Transition::Admit, M, |_, _| {}), Err("the node is a learner"));
        assert_eq!(
            after(Transition::Admit, L, |_, facts| facts.lease = false),
            Err("the primary holds its lease")
        );
        let why = Err("it has everything that is committed");
        assert_eq!(after(Transition::Admit, L, |_, facts| facts.caught_up = false), why);
        assert_eq!(after(Transition::Admit, L, |_, facts| facts.lost = true), why);
    }

    #[test]
    fn expel_needs_a_reason_and_leaves_enough() {
        let why = "its lease has run out, it lags, it is lost, or it is to be released";
        assert_eq!(after(Transition::Expel, M, |_, _| {}), Err(why));
        let gone = ok("6 1 | 1 3 | 2 4");
        assert_eq!(after(Transition::Expel, M, |_, facts| facts.lease = false), gone);
        assert_eq!(after(Transition::Expel, M, |_, facts| facts.lags = true), gone);
        assert_eq!(after(Transition::Expel, M, |_, facts| facts.lost = true), gone);
        assert_eq!(
            after(Transition::Expel, M, |record, _| record.requested =
                Some(RequestedChange::Release(node(M)))),
            ok("6 1 | 1 3 | 4")
        );
        for odd in [P, L, 5] {
            let why = Err("the node is a member, and not the primary");
            assert_eq!(after(Transition::Expel, odd, |_, facts| facts.lease = false), why);
        }
        let few = |lost| {
            move |_: &mut ShardRecord, facts: &mut Facts| {
                (facts.lease, facts.lost, facts.min_sync) = (false, lost, 3)
            }
        };
        assert_eq!(after(Transition::Expel, M, few(false)), Err("enough members remain, or it is lost"));
        assert_eq!(after(Transition::Expel, M, few(true)), gone);
    }

    #[test]
    fn take_over_needs_grace_to_be_over_and_a_clean_member() {
        assert_eq!(after(Transition::TakeOver, M, |_, _| {}), ok("6 2 | 2 3 | 1 4 new history"));
        assert_eq!(after(Transition::TakeOver, L, |_, _| {}), Err("the node is a member"));
        let why = Err("its promise to the primary has run out");
        assert_eq!(after(Transition::TakeOver, M, |_, facts| facts.grace_over = false), why);
        let why = Err("it has all that it ever acknowledged");
        assert_eq!(after(Transition::TakeOver, M, |_, facts| facts.clean = false), why);
        // From itself, after a restart: no promise stands in the way.
        let own = after(Transition::TakeOver, P, |_, facts| facts.grace_over = false);
        assert_eq!(own, ok("6 1 | 1 2 3 | 4 new history"));
    }

    #[test]
    fn hand_over_needs_everything_parked() {
        assert_eq!(after(Transition::HandOver, M, |_, _| {}), ok("6 2 | 1 2 3 | 4 new history"));
        let why = Err("the node is a member, and not the primary");
        assert_eq!(after(Transition::HandOver, L, |_, _| {}), why);
        assert_eq!(after(Transition::HandOver, P, |_, _| {}), why);
        assert_eq!(
            after(Transition::HandOver, M, |_, facts| facts.lease = false),
            Err("the primary holds its lease")
        );
        let why = Err("commands are parked, and every member has the end of the stream");
        assert_eq!(after(Transition::HandOver, M, |_, facts| facts.parked = false), why);
    }

    #[test]
    fn recover_needs_the_word_of_every_member() {
        assert_eq!(after(Transition::Recover, M, |_, _| {}), ok("6 2 | 2 | 1 3 4 new history"));
        let missing = after(Transition::Recover, M, |_, facts| assert!(facts.reported.remove(&node(3))));
        assert_eq!(missing, Err("every member has reported its restart"));
        let clean = after(Transition::Recover, M, |_, facts| facts.reported_clean = [node(3)].into());
        assert_eq!(clean, Err("no member has all that it acknowledged"));
        let why = Err("the node is the one with most");
        assert_eq!(after(Transition::Recover, 3, |_, _| {}), why);
        // A learner of the same history may have more than any member.
        let by_learner = after(Transition::Recover, L, |_, facts| facts.best = Some(node(L)));
        assert_eq!(by_learner, ok("6 4 | 4 | 1 2 3 new history"));
        assert_eq!(after(Transition::Recover, 9, |_, facts| facts.best = Some(node(9))), why);
    }

    #[test]
    fn force_needs_data_and_members_that_are_gone() {
        let force = |subject: u8, absent: &[u8], edit: &dyn Fn(&mut Facts)| {
            after(Transition::Force, subject, |_, facts| {
                facts.clean = false;
                facts.absent = absent.iter().copied().map(node).collect();
                facts.reported = [node(subject)].into();
                edit(facts);
            })
        };
        let all_but = |_: &mut Facts| {};
        assert_eq!(force(L, &[P, M, 3], &all_but), ok("6 4 | 4 | 1 2 3 new history"));
        assert_eq!(force(M, &[P, 3], &all_but), ok("6 2 | 2 | 1 3 4 new history"));
        let why = Err("no member is there that has all that it acknowledged");
        assert_eq!(force(L, &[P, 3], &all_but), why, "member 2 takes over");
        assert_eq!(force(M, &[P, 3], &|facts| facts.clean = true), why, "it takes over itself");
        // A member that is there, and has lost something, is no reason to wait.
        let lost = |facts: &mut Facts| assert!(facts.reported.insert(node(3)));
        assert_eq!(force(L, &[P, M], &lost), ok("6 4 | 4 | 1 2 3 new history"));
        let clean = |facts: &mut Facts| {
            lost(facts);
            facts.reported_clean = [node(3)].into();
        };
        assert_eq!(force(L, &[P, M], &clean), why);
        let all_lost = |facts: &mut Facts| facts.reported = [node(P), node(M), node(3), node(L)].into();
        assert_eq!(force(L, &[], &all_lost), Err("a member is gone, or a recovery would come"));
        let why = Err("the node is part of the shard, and says itself what it has");
        assert_eq!(force(5, &[P, M, 3], &all_but), why);
        assert_eq!(force(L, &[P, M, 3], &|facts| facts.reported.clear()), why);
        let why = Err("it has data of the shard");
        assert_eq!(force(L, &[P, M, 3], &|facts| facts.history = None), why);
        assert_eq!(row(Transition::Force).by, Proposer::Operator);
    }
}
