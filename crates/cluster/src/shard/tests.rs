//! Scenarios of single machines; the simulator has the rest.

use super::*;
use crate::{
    meta::TransactionOutcome,
    records::{History, Key, Keys},
};

const P: u8 = 1;
const M: u8 = 2;

fn node(number: u8) -> NodeId {
    NodeId::from_bytes([number; 20])
}

fn boot(number: u8) -> BootId {
    BootId::from_bytes([number; 20])
}

fn history(number: u8) -> HistoryId {
    HistoryId::from_bytes([number; 20])
}

fn record(epoch: u64) -> ShardRecord {
    ShardRecord {
        epoch,
        primary: node(P),
        in_sync: [node(P), node(M)].into(),
        learners: Default::default(),
        history: History { id: history(1), from: 0, previous: None },
        requested: None,
    }
}

/// Times in round numbers, for the scenarios.
fn options() -> Options {
    Options { lease_ms: 1_000, grace_ms: 1_500, ..Options::default() }
}

/// The word of a node that knows this record, and has obeyed a store without marks.
fn stale(revision: u64, record: ShardRecord) -> Message {
    Message::Stale { record: Box::new((revision, record)), lineage: Box::default() }
}

/// A node of the shard that has read the record at revision 10.
fn started(me: u8, clean: bool) -> (Shard, Vec<Action>) {
    let local = Local { history: Some(history(1)), end: 50, held: 50, clean };
    let shard = ShardId::from_bytes([1; 20]);
    let mut machine = Shard::new(node(me), shard, boot(me), options(), local, 0, 0);
    let mut actions = Vec::new();
    machine.step(0, Event::Tick, &mut actions);
    assert_eq!(actions, [Action::Read(1)], "the first record is read");
    for peer in [P, M] {
        machine.step(0, Event::Node(node(peer), 5, boot(peer), None), &mut actions);
    }
    actions.clear();
    machine.step(0, Event::Read(1, Some((10, record(3)))), &mut actions);
    (machine, actions)
}

fn heartbeat(epoch: u64, sent_ms: u64) -> Event {
    let (history, commit, rank) = (history(1), 40, 0);
    let message = Message::Heartbeat { epoch, sent_ms, history, commit, rank, counted: None };
    Event::Message(node(P), message)
}

/// A heartbeat that names what the primary counts of the receiver.
fn counting(epoch: u64, counted: Option<(BootId, u64)>) -> Event {
    let (sent_ms, history, commit, rank) = (7, history(1), 40, 0);
    Event::Message(node(P), Message::Heartbeat { epoch, sent_ms, history, commit, rank, counted })
}

fn step(machine: &mut Shard, now_ms: u64, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    machine.step(now_ms, event, &mut actions);
    actions
}

fn proposed(actions: &[Action]) -> Option<&Proposal> {
    actions.iter().find_map(|action| match action {
        Action::Propose(proposal) => Some(proposal),
        _ => None,
    })
}

#[test]
fn member_follows_promises_and_takes_over_when_its_promise_has_run_out() {
    let (mut member, actions) = started(M, true);
    assert_eq!(actions, [Action::Follow { primary: node(P), epoch: 3, attach: Attach::Stream }]);
    let actions = step(&mut member, 1_000, heartbeat(3, 77));
    assert_eq!(actions[0], Action::Commit(40));
    let Action::Send(to, Message::Echo { sent_ms: 77, held: 50, lost: false, .. }) = &actions[1] else {
        panic!("{actions:?}")
    };
    assert_eq!(*to, node(P));
    assert_eq!(proposed(&step(&mut member, 2_499, Event::Tick)), None);
    let actions = step(&mut member, 2_500, Event::Tick);
    let proposal = proposed(&actions).expect("a takeover");
    assert_eq!((proposal.transition, proposal.compare), (Transition::TakeOver, Some(10)));
    assert_eq!((proposal.record.epoch, proposal.record.history.from), (4, 50));
    // While the outcome is open, it promises nothing to the primary and applies nothing.
    assert_eq!(step(&mut member, 2_510, heartbeat(3, 99)), []);
    assert!(!member.accepts(3, history(1)));
    let number = proposal.number;
    let actions = step(&mut member, 2_600, Event::Outcome(number, TransactionOutcome::Done(11)));
    assert!(matches!(actions[0], Action::Lead { epoch: 4, from: 50, .. }), "{actions:?}");
    assert!(member.leads());
}

/// Found by the simulator (seed 24371).
#[test]
fn member_takes_over_with_all_that_it_acknowledged_whatever_the_history() {
    // The record's history is two after the one that it knows, or begins before its data ends.
    for (history, attach) in [
        (History { id: history(3), from: 50, previous: Some(history(2)) }, Attach::Not),
        (History { id: history(2), from: 40, previous: Some(history(1)) }, Attach::Rewind(40)),
    ] {
        let (mut member, _) = started(M, true);
        let actions = step(&mut member, 10, Event::Watched((11, ShardRecord { history, ..record(5) })));
        assert_eq!(actions, [Action::Follow { primary: node(P), epoch: 5, attach }]);
        let actions = step(&mut member, 2_000, Event::Tick);
        let proposal = proposed(&actions).expect("a takeover");
        let begins = proposal.record.history;
        assert_eq!((begins.from, begins.previous), (50, member.local().history));
        let number = proposal.number;
        let actions = step(&mut member, 2_010, Event::Outcome(number, TransactionOutcome::Done(12)));
        assert!(matches!(actions[0], Action::Lead { from: 50, .. }), "{actions:?}");
    }
}

/// A link that was not cut yet goes on in the history before, when the member knows the next one already.
#[test]
fn member_whose_data_grow_in_the_history_before_takes_over_with_all_of_them() {
    let (mut member, _) = started(M, true);
    let begins = History { id: history(2), from: 52, previous: Some(history(1)) };
    step(&mut member, 10, Event::Watched((11, ShardRecord { history: begins, ..record(5) })));
    assert_eq!((member.attach(), member.local().history), (Attach::Stream, Some(history(2))));
    // Up to where the next one begins, both are the same.
    step(&mut member, 20, Event::Grown(history(1), 51, 51));
    assert_eq!((member.attach(), member.local().end), (Attach::Stream, 51));
    let actions = step(&mut member, 30, Event::Grown(history(1), 55, 54));
    assert_eq!(actions, [Action::Follow { primary: node(P), epoch: 5, attach: Attach::Rewind(52) }]);
    assert_eq!(member.local(), Local { history: Some(history(1)), end: 55, held: 54, clean: true });
    // No other node is left to go back with.
    let begins = proposed(&step(&mut member, 2_000, Event::Tick)).expect("a takeover").record.history;
    assert_eq!((begins.from, begins.previous), (55, Some(history(1))));
    // Another history is none of its own.
    step(&mut member, 2_010, Event::Grown(history(3), 60, 60));
    assert_eq!(member.local().end, 55);
}

#[test]
fn unknown_outcome_is_proposed_again_until_the_record_has_moved() {
    let (mut member, _) = started(M, true);
    let number = proposed(&step(&mut member, 1_500, Event::Tick)).expect("a takeover").number;
    let actions =
        step(&mut member, 1_800, Event::Outcome(number, TransactionOutcome::Unknown(String::new())));
    assert_eq!(actions, [Action::Read(2)]);
    let actions = step(&mut member, 1_810, Event::Read(2, Some((10, record(3)))));
    let again = proposed(&actions).expect("the same again").clone();
    assert_eq!((again.compare, again.record.epoch), (Some(10), 4));
    // Refused: the first copy was in.
    step(&mut member, 1_820, Event::Outcome(again.number, TransactionOutcome::Refused(11)));
    let actions = step(&mut member, 2_100, Event::Read(3, Some((11, again.record))));
    assert!(matches!(actions[0], Action::Lead { epoch: 4, .. }), "{actions:?}");
}

#[test]
fn primary_that_restarts_leads_in_a_new_epoch_only() {
    let (mut primary, actions) = started(P, true);
    assert!(!primary.leads());
    let proposal = proposed(&actions).expect("it takes over from itself");
    assert_eq!((proposal.transition, proposal.record.epoch), (Transition::TakeOver, 4));
    let number = proposal.number;
    step(&mut primary, 10, Event::Outcome(number, TransactionOutcome::Done(11)));
    assert!(primary.leads());
    assert_eq!(primary.lease_until_ms(), 0, "it has no lease yet");
    let echo = |sent_ms, process| {
        let message = Message::Echo {
            epoch: 4,
            sent_ms,
            boot: boot(process),
            revision: 11,
            history: primary_history(),
            held: 50,
            copy: 0,
            lost: false,
        };
        Event::Message(node(M), message)
    };
    fn primary_history() -> Option<HistoryId> {
        let mut bytes = [P; 20];
        bytes[19] ^= 3;
        Some(HistoryId::from_bytes(bytes))
    }
    // The word of a process that is gone, and an echo from before it led, count for nothing.
    step(&mut primary, 100, echo(50, 9));
    step(&mut primary, 100, echo(5, M));
    assert_eq!((primary.lease_until_ms(), primary.commit()), (0, 0));
    step(&mut primary, 100, echo(50, M));
    assert_eq!((primary.lease_until_ms(), primary.commit()), (1_050, 50));
}

/// A store that was restored from a backup has a record in which P leads, and M leads in a newer one.
#[test]
fn node_that_follows_a_backup_stops_when_it_hears_of_a_newer_epoch() {
    let (mut primary, _) = started(P, true);
    // P has taken over from itself in the epoch that M leads in, and lacks M's lease.
    let number = proposed(&step(&mut primary, 400, Event::Tick)).map_or(1, |proposal| proposal.number);
    step(&mut primary, 410, Event::Outcome(number, TransactionOutcome::Done(11)));
    assert!(primary.leads() && primary.epoch() == 4);
    let newer = ShardRecord { primary: node(M), in_sync: [node(M)].into(), ..record(4) };
    // M may answer, so it answers the heartbeat with its record.
    let mut other = started(M, true).0;
    step(&mut other, 10, Event::Watched((900, ShardRecord { epoch: 3, ..newer.clone() })));
    let number = proposed(&step(&mut other, 20, Event::Tick)).map_or(1, |proposal| proposal.number);
    step(&mut other, 30, Event::Outcome(number, TransactionOutcome::Done(901)));
    assert!(other.leads(), "it leads alone, from its restart on");
    let heartbeat =
        Message::Heartbeat { epoch: 4, sent_ms: 0, history: history(1), commit: 0, rank: 0, counted: None };
    let actions = step(&mut other, 500, Event::Message(node(P), heartbeat));
    let stale = actions.iter().find_map(|action| match action {
        Action::Send(to, stale @ Message::Stale { .. }) if *to == node(P) => Some(stale.clone()),
        _ => None,
    });
    // P may not have heard that before it has expelled M, and answers then: the lower revision yields, and the other one does not.
    let alone = ShardRecord { in_sync: [node(P)].into(), learners: [node(M)].into(), ..record(5) };
    let history = primary.known().unwrap().1.history;
    let backup = self::stale(12, ShardRecord { history, ..alone.clone() });
    step(&mut primary, 505, Event::Watched((12, ShardRecord { history, ..alone })));
    assert!(primary.leads() && primary.lease_until_ms() > 505);
    let actions = step(&mut other, 505, Event::Message(node(P), backup));
    assert!(other.leads(), "{actions:?}");
    let actions = step(&mut primary, 510, Event::Message(node(M), stale.expect("its record")));
    assert!(actions.contains(&Action::Leave) && !primary.leads(), "{actions:?}");
    assert_eq!(step(&mut primary, 9_000, Event::Tick), [], "it expels nobody");
}

#[test]
fn read_that_shows_an_older_epoch_than_was_heard_of_before_is_a_backups() {
    let (mut member, _) = started(M, true);
    // The record may be on its way.
    let actions = step(&mut member, 1_000, heartbeat(5, 7));
    assert!(actions.contains(&Action::Read(2)), "{actions:?}");
    let actions = step(&mut member, 1_010, Event::Read(2, Some((10, record(3)))));
    assert!(actions.contains(&Action::Leave), "{actions:?}");
    assert_eq!(step(&mut member, 9_000, Event::Tick), [], "it takes nothing over");
}

#[test]
fn member_that_has_lost_its_tail_promises_nothing_and_takes_nothing_over() {
    let (mut member, actions) = started(M, false);
    let report = Restart { shard: member.shard, epoch: 3, history: history(1), offset: 50, clean: false };
    let follow = Action::Follow { primary: node(P), epoch: 3, attach: Attach::Not };
    assert_eq!(actions, [follow, Action::ReportLoss(report, 10)], "its record does not say so yet");
    let actions = step(&mut member, 100, heartbeat(3, 7));
    assert!(matches!(actions.last(), Some(Action::Send(_, Message::Echo { lost: true, .. }))), "{actions:?}");
    assert_eq!(proposed(&step(&mut member, 60_000, Event::Tick)), None);
    // As a learner it owes nothing.
    let mut expelled = record(4);
    expelled.in_sync.remove(&node(M));
    expelled.learners.insert(node(M));
    let actions = step(&mut member, 60_100, Event::Watched((11, expelled)));
    assert_eq!(actions, [Action::Follow { primary: node(P), epoch: 4, attach: Attach::Stream }]);
}

/// Found by the simulator (seed 70450).
#[test]
fn first_record_is_nobodys_word() {
    let local = Local { history: Some(history(1)), end: 50, held: 50, clean: false };
    let shard = ShardId::from_bytes([1; 20]);
    let mut member = Shard::new(node(M), shard, boot(M), options(), local, 0, 0);
    let learner = ShardRecord { in_sync: [node(P)].into(), learners: [node(M)].into(), ..record(2) };
    let stale = stale(9, learner);
    step(&mut member, 0, Event::Message(node(P), stale));
    step(&mut member, 10, Event::Read(1, Some((10, record(3)))));
    assert!(member.is_lost(), "it has been admitted meanwhile, and lost its tail then");
}

/// I6.
#[test]
fn heartbeat_of_an_older_epoch_is_answered_with_the_record() {
    let (mut member, _) = started(M, true);
    let actions = step(&mut member, 10, heartbeat(2, 7));
    assert_eq!(actions, [Action::Send(node(P), stale(10, record(3)))]);
    let actions = step(&mut member, 20, Event::Watched((12, record(2))));
    assert!(matches!(actions[..], [Action::Warn(_)]), "a store that went back is no news: {actions:?}");
}

/// I11.
#[test]
fn record_of_a_newer_version_stops_the_node() {
    let (mut member, _) = started(M, true);
    let actions = step(&mut member, 10, Event::Unreadable("version 2".to_owned()));
    assert!(matches!(actions[..], [Action::Warn(_), Action::Leave]), "{actions:?}");
    assert_eq!(step(&mut member, 20, heartbeat(3, 7)), []);
    assert_eq!(step(&mut member, 60_000, Event::Tick), []);
    assert!(!member.accepts(3, history(1)));
}

#[test]
fn member_whose_data_is_replaced_is_lost_until_it_has_the_copy() {
    let (mut member, _) = started(M, true);
    step(&mut member, 1_000, heartbeat(3, 77));
    step(&mut member, 1_010, Event::Emptied);
    let actions = step(&mut member, 1_020, heartbeat(3, 78));
    assert!(
        matches!(&actions[..], [Action::Send(_, Message::Echo { history: None, held: 0, lost: true, .. })]),
        "{actions:?}"
    );
    // Its promise does not matter: it has nothing to lead with.
    assert_eq!(proposed(&step(&mut member, 9_000, Event::Tick)), None);
    let learner = ShardRecord {
        epoch: 4,
        in_sync: [node(P)].into(),
        learners: [node(M)].into(),
        history: History { id: history(1), from: 20, previous: None },
        ..record(4)
    };
    let actions = step(&mut member, 9_010, Event::Watched((11, learner)));
    assert_eq!(actions, [Action::Follow { primary: node(P), epoch: 4, attach: Attach::Copy }]);
    let actions = step(&mut member, 9_020, Event::Copied(history(1), 60, 0));
    assert_eq!(actions, [Action::Follow { primary: node(P), epoch: 4, attach: Attach::Stream }]);
    assert_eq!(member.local(), Local { history: Some(history(1)), end: 60, held: 0, clean: false });
    // A start would load it only now.
    step(&mut member, 9_025, Event::Grown(history(1), 60, 60));
    assert_eq!(member.local().held, 60);
    // The copy counts once the primary counts nothing from before.
    let is_lost = |member: &mut Shard, now_ms, counted| {
        let actions = step(member, now_ms, counting(4, counted));
        let echo = actions.iter().find_map(|action| match action {
            Action::Send(_, Message::Echo { lost, .. }) => Some(*lost),
            _ => None,
        });
        echo.expect("an echo")
    };
    assert!(is_lost(&mut member, 9_030, None));
    assert!(is_lost(&mut member, 9_040, Some((boot(M), 1))), "the one before");
    assert!(is_lost(&mut member, 9_050, Some((boot(P), 2))), "another process");
    assert!(!is_lost(&mut member, 9_060, Some((boot(M), 2))));
    assert!(member.local().clean);
}

/// Found by the simulator (seed 8088).
#[test]
fn learner_that_was_admitted_for_what_it_has_no_more_is_no_member() {
    let (mut learner, _) = started(M, true);
    let alone = ShardRecord { in_sync: [node(P)].into(), learners: [node(M)].into(), ..record(4) };
    step(&mut learner, 10, Event::Watched((11, alone)));
    // The primary has proposed to admit it, and commits what it had.
    step(&mut learner, 20, Event::Copied(history(1), 49, 49));
    step(&mut learner, 30, Event::Watched((12, record(5))));
    assert!(learner.is_lost() && !learner.local().clean);
    // The primary counts the new copy by now. That is too late: the node was admitted for the data before it.
    let actions = step(&mut learner, 40, counting(5, Some((boot(M), 1))));
    assert!(matches!(actions.last(), Some(Action::Send(_, Message::Echo { lost: true, .. }))), "{actions:?}");
    let actions: Vec<Action> =
        (1..9).flat_map(|second| step(&mut learner, second * 1_000, Event::Tick)).collect();
    assert_eq!(proposed(&actions), None, "it takes nothing over");
    assert!(actions.iter().any(|action| matches!(action, Action::ReportLoss(..))), "{actions:?}");
}

#[test]
fn primary_confirms_no_copy_while_an_admission_is_open() {
    let (mut primary, actions) = started(P, true);
    let number = proposed(&actions).expect("it takes over from itself").number;
    step(&mut primary, 10, Event::Outcome(number, TransactionOutcome::Done(11)));
    let mut record = primary.known().unwrap().1.clone();
    (record.in_sync, record.learners) = ([node(P)].into(), [node(M)].into());
    step(&mut primary, 20, Event::Watched((12, record)));
    let history = primary.local().history;
    let echo = |sent_ms, held, copy, lost| {
        let message =
            Message::Echo { epoch: 4, sent_ms, boot: boot(M), revision: 12, history, held, copy, lost };
        Event::Message(node(M), message)
    };
    let counted = |actions: &[Action]| {
        let sent = actions.iter().find_map(|action| match action {
            Action::Send(_, Message::Heartbeat { counted, .. }) => Some(*counted),
            _ => None,
        });
        sent.expect("a heartbeat")
    };
    assert_eq!(counted(&step(&mut primary, 1_000, Event::Tick)), None, "it has not been heard of");
    // A copy that does not count yet is confirmed, and no reason for an admission.
    let actions = step(&mut primary, 1_100, echo(1_000, 50, 1, true));
    assert_eq!((counted(&actions), proposed(&actions)), (Some((boot(M), 1)), None));
    let actions = step(&mut primary, 1_200, echo(1_100, 50, 1, false));
    assert_eq!(proposed(&actions).expect("it has everything").transition, Transition::Admit);
    let number = proposed(&actions).unwrap().number;
    // Another copy comes to it while that is under way.
    assert_eq!(counted(&step(&mut primary, 1_300, echo(1_200, 0, 2, true))), None);
    step(
        &mut primary,
        1_310,
        Event::Outcome(number, TransactionOutcome::Failed(crate::meta::MetaError::Refused(String::new()))),
    );
    assert_eq!(counted(&step(&mut primary, 1_400, Event::Tick)), Some((boot(M), 2)));
}

/// Found by the simulator (seed 106, when members first lost their data while they ran).
#[test]
fn primary_forgets_what_a_node_had_before_its_data_was_replaced() {
    let (mut primary, actions) = started(P, true);
    let number = proposed(&actions).expect("it takes over from itself").number;
    step(&mut primary, 10, Event::Outcome(number, TransactionOutcome::Done(11)));
    let history = primary.local().history;
    let mut sent_ms = 10;
    let mut echo = |primary: &mut Shard, held, copy| {
        sent_ms += 1;
        let message = Message::Echo {
            epoch: 4,
            sent_ms,
            boot: boot(M),
            revision: 11,
            history,
            held,
            copy,
            lost: false,
        };
        step(primary, sent_ms, Event::Message(node(M), message));
    };
    step(&mut primary, 10, Event::Grown(history.unwrap(), 60, 60));
    echo(&mut primary, 55, 0);
    assert_eq!(primary.commit(), 55);
    // The member had 60, has a copy of 55 now, and a word from before comes late.
    echo(&mut primary, 55, 2);
    echo(&mut primary, 60, 0);
    assert_eq!(primary.commit(), 55);
    echo(&mut primary, 60, 2);
    assert_eq!(primary.commit(), 60);
}

/// Found by the simulator (seed 582, when members first lost their data while they ran).
#[test]
fn primary_that_restarts_does_not_lead_by_a_newer_record_of_the_same_epoch() {
    let local = Local { history: Some(history(1)), end: 50, held: 50, clean: true };
    let mut primary = Shard::new(node(P), ShardId::from_bytes([1; 20]), boot(P), options(), local, 0, 0);
    let begins_here = ShardRecord { history: History { from: 50, ..record(3).history }, ..record(3) };
    step(&mut primary, 0, Event::Node(node(P), 5, boot(P), None));
    step(&mut primary, 0, Event::Read(1, Some((10, begins_here.clone()))));
    // An order has changed the record, and nothing else.
    step(&mut primary, 10, Event::Watched((11, begins_here)));
    assert!(!primary.leads());
}

#[test]
fn member_that_ends_asks_to_be_expelled_and_takes_nothing_over() {
    let (mut member, _) = started(M, true);
    step(&mut member, 1_000, heartbeat(3, 77));
    let actions = step(&mut member, 1_010, Event::Ending);
    assert!(matches!(&actions[..], [Action::Send(_, Message::Echo { lost: true, .. })]), "{actions:?}");
    assert_eq!(proposed(&step(&mut member, 9_000, Event::Tick)), None);
}

#[test]
fn handover_is_proposed_when_no_command_is_under_way_and_passed_on() {
    let (mut primary, actions) = started(P, true);
    let number = proposed(&actions).expect("it takes over from itself").number;
    step(&mut primary, 10, Event::Outcome(number, TransactionOutcome::Done(11)));
    let history = primary.local().history;
    let echo = |sent_ms, held| {
        let message = Message::Echo {
            epoch: 4,
            sent_ms,
            boot: boot(M),
            revision: 11,
            history,
            held,
            copy: 0,
            lost: false,
        };
        Event::Message(node(M), message)
    };
    step(&mut primary, 100, echo(90, 50));
    // A proposal was made a moment ago.
    let actions = step(&mut primary, 300, Event::HandOver(None));
    assert_eq!(actions.last(), Some(&Action::Park), "{actions:?}");
    // A command that was let in before adds to the data.
    assert_eq!(proposed(&step(&mut primary, 310, Event::Tick)), None);
    step(&mut primary, 320, Event::Grown(history.unwrap(), 60, 60));
    assert_eq!(proposed(&step(&mut primary, 330, Event::Rested)), None, "the successor lacks it");
    let actions = step(&mut primary, 340, echo(330, 60));
    let proposal = proposed(&actions).expect("a handover").clone();
    assert_eq!((proposal.transition, proposal.record.history.from), (Transition::HandOver, 60));
    let actions = step(&mut primary, 350, Event::Outcome(proposal.number, TransactionOutcome::Done(12)));
    assert!(actions.contains(&Action::Send(node(M), stale(12, proposal.record))), "{actions:?}");
}

#[test]
fn force_lets_a_learner_lead_with_what_it_has() {
    let mut without = record(3);
    (without.in_sync, without.learners) = ([node(P)].into(), [node(M)].into());
    let (mut learner, _) = started(M, true);
    step(&mut learner, 10, Event::Watched((11, without.clone())));
    let heard =
        Message::Heartbeat { epoch: 3, sent_ms: 0, history: history(1), commit: 70, rank: 0, counted: None };
    step(&mut learner, 20, Event::Message(node(P), heard));
    assert_eq!(learner.heard(), Some((70, 20)), "it knows what it lacks");
    let actions = step(&mut learner, 9_000, Event::Force([].into()));
    assert!(matches!(&actions[..], [Action::Warn(_)]), "the primary may be there: {actions:?}");
    let actions = step(&mut learner, 9_010, Event::Force([node(P)].into()));
    let proposal = proposed(&actions).expect("the operator's word").clone();
    assert_eq!((proposal.transition, &proposal.absent[..]), (Transition::Force, &[node(P)][..]));
    assert_eq!((proposal.record.history.from, proposal.record.epoch), (50, 4));
    assert!(!learner.accepts(3, history(1)), "its data is at rest meanwhile");
    // A member that is there again has the word, and this node is what it was.
    step(&mut learner, 9_020, Event::Outcome(proposal.number, TransactionOutcome::Refused(11)));
    assert!(learner.accepts(3, history(1)));
    let actions = step(&mut learner, 9_030, Event::Force([node(P)].into()));
    let number = proposed(&actions).expect("once more").number;
    let actions = step(&mut learner, 9_040, Event::Outcome(number, TransactionOutcome::Done(12)));
    assert!(matches!(actions[0], Action::Lead { epoch: 4, from: 50, .. }), "{actions:?}");
    assert_eq!(learner.lease_until_ms(), u64::MAX, "it is alone");
}

/// Found by the simulator (seed 32842): it answered what a crash of its machine took away.
#[test]
fn force_commits_nothing_that_is_not_on_disk() {
    let (mut member, _) = started(M, true);
    step(&mut member, 10, heartbeat(3, 7));
    assert_eq!(member.commit(), 40);
    // The member was put out of the shard because its disk was slow.
    let mut without = record(3);
    (without.epoch, without.in_sync, without.learners) = (4, [node(P)].into(), [node(M)].into());
    step(&mut member, 20, Event::Watched((11, without)));
    step(&mut member, 30, Event::Grown(history(1), 60, 35));
    let number =
        proposed(&step(&mut member, 9_000, Event::Force([node(P)].into()))).expect("a proposal").number;
    let actions = step(&mut member, 9_010, Event::Outcome(number, TransactionOutcome::Done(12)));
    assert!(matches!(actions[0], Action::Lead { from: 60, .. }), "{actions:?}");
    assert_eq!(member.commit(), 35);
    step(&mut member, 9_020, Event::Grown(history(1), 60, 60));
    assert_eq!(member.commit(), 60);
}

/// Found by the simulator (seed 578, when operators first made nodes take the shard).
#[test]
fn force_whose_first_answer_was_lost_is_void_once_the_node_is_recorded_anew() {
    let mut without = record(3);
    (without.in_sync, without.learners) = ([node(P)].into(), [node(M)].into());
    let (mut learner, _) = started(M, true);
    step(&mut learner, 10, Event::Watched((11, without.clone())));
    let number =
        proposed(&step(&mut learner, 9_000, Event::Force([node(P)].into()))).expect("a proposal").number;
    step(&mut learner, 9_100, Event::Outcome(number, TransactionOutcome::Unknown(String::new())));
    let actions = step(&mut learner, 9_200, Event::Read(2, Some((11, without.clone()))));
    let number = proposed(&actions).expect("once more").number;
    // The member is there again. The first copy may come when it is gone once more.
    step(&mut learner, 9_300, Event::Outcome(number, TransactionOutcome::Refused(0)));
    let actions = step(&mut learner, 9_500, Event::Read(3, Some((11, without.clone()))));
    assert_eq!(proposed(&actions), None, "it would be refused for ever");
    assert!(actions.iter().any(|action| matches!(action, Action::ReportLoss(..))), "{actions:?}");
    assert!(learner.takes_over(), "nothing is known yet");
    step(&mut learner, 9_600, Event::Node(node(M), 12, boot(M), lost(50)));
    let mut actions = Vec::new();
    for read in 4..7 {
        actions = step(&mut learner, 9_000 + read * 300, Event::Read(read, Some((11, without.clone()))));
    }
    assert!(!learner.takes_over(), "{actions:?}");
    assert!(learner.accepts(3, history(1)));
    assert!(step(&mut learner, 20_000, Event::Tick).contains(&Action::ClearReport), "it has lost nothing");
}

/// Found by the simulator (seed 7324, when operators first made nodes take the shard).
#[test]
fn commit_never_passes_the_copies() {
    let (mut member, _) = started(M, true);
    step(&mut member, 10, heartbeat(3, 7));
    assert_eq!(member.commit(), 40);
    step(&mut member, 20, Event::Emptied);
    assert_eq!(member.commit(), 0);
}

/// The report of a process that has lost data.
fn lost(offset: u64) -> Option<Restart> {
    let shard = ShardId::from_bytes([1; 20]);
    Some(Restart { shard, epoch: 3, history: history(1), offset, clean: false })
}

#[test]
fn primary_by_recovery_admits_nobody_before_its_report_is_gone() {
    let (mut primary, _) = started(P, false);
    step(&mut primary, 300, Event::Node(node(M), 6, boot(M), lost(40)));
    let actions = step(&mut primary, 600, Event::Node(node(P), 6, boot(P), lost(50)));
    let actions = [actions, step(&mut primary, 900, Event::Tick)].concat();
    let number = proposed(&actions).expect("it has most").number;
    assert_eq!(proposed(&actions).unwrap().transition, Transition::Recover);
    step(&mut primary, 910, Event::Outcome(number, TransactionOutcome::Done(11)));
    // A learner has everything, and nothing is left in its record.
    step(&mut primary, 920, Event::Node(node(M), 7, boot(M), None));
    let history = primary.local().history;
    let echo = Message::Echo {
        epoch: 4,
        sent_ms: 920,
        boot: boot(M),
        revision: 11,
        history,
        held: 50,
        copy: 0,
        lost: false,
    };
    let mut actions = step(&mut primary, 930, Event::Message(node(M), echo));
    actions.extend(step(&mut primary, 1_200, Event::Tick));
    assert!(actions.contains(&Action::ClearReport), "{actions:?}");
    assert_eq!(proposed(&actions), None, "a member could recover from a primary that lacks nothing");
    let mut actions = step(&mut primary, 1_300, Event::Node(node(P), 8, boot(P), None));
    actions.extend(step(&mut primary, 1_500, Event::Tick));
    assert_eq!(proposed(&actions).expect("it has cleared it").transition, Transition::Admit);
}

#[test]
fn member_whose_data_are_thrown_away_reports_it() {
    let (mut member, _) = started(M, true);
    let actions = [step(&mut member, 500, Event::Emptied), step(&mut member, 800, Event::Tick)].concat();
    let reports =
        |action: &Action| matches!(action, Action::ReportLoss(Restart { offset: 0, clean: false, .. }, 10));
    assert!(actions.iter().any(reports), "{actions:?}");
    step(&mut member, 900, Event::Node(node(M), 9, boot(M), lost(0)));
    let actions = step(&mut member, 1_200, Event::Tick);
    assert!(!actions.iter().any(reports), "once is enough: {actions:?}");
}

/// A shard whose only member has restarted without its data, and the learner beside it.
fn bereft() -> ShardRecord {
    ShardRecord { in_sync: [node(P)].into(), learners: [node(M)].into(), ..record(4) }
}

#[test]
fn member_that_has_nothing_waits_for_a_learner_that_may_have_more() {
    let local = Local { history: None, end: 0, held: 0, clean: false };
    let shard = ShardId::from_bytes([1; 20]);
    let mut member = Shard::new(node(P), shard, boot(P), options(), local, 0, 0);
    let own = Restart { epoch: 4, history: HistoryId::from_bytes([0; 20]), offset: 0, ..lost(0).unwrap() };
    step(&mut member, 0, Event::Node(node(P), 5, boot(P), Some(own)));
    step(&mut member, 0, Event::Node(node(M), 6, boot(M), None));
    let mut actions = step(&mut member, 0, Event::Read(1, Some((10, bereft()))));
    for now_ms in (300..60_000).step_by(300) {
        actions.extend(step(&mut member, now_ms, Event::Tick));
    }
    assert_eq!(proposed(&actions), None, "for ever, unless an operator forgets the learner");
    let warnings = actions.iter().filter(|action| matches!(action, Action::Warn(_))).count();
    assert_eq!(warnings, 1, "{actions:?}");
    // A learner that says it has less than nothing is no reason to wait.
    let empty = Restart { epoch: 4, history: history(9), ..lost(0).unwrap() };
    let mut actions = step(&mut member, 60_000, Event::Node(node(M), 11, boot(M), Some(empty)));
    actions.extend(step(&mut member, 60_300, Event::Tick));
    let proposal = proposed(&actions).expect("nobody has more");
    assert_eq!((proposal.transition, proposal.subject), (Transition::Recover, node(P)));
    assert!(proposal.nodes.contains(&(node(M), 11)), "it rests on the learner's word: {proposal:?}");
}

#[test]
fn learner_that_has_more_than_any_member_recovers_the_shard() {
    let (mut learner, _) = started(M, true);
    step(&mut learner, 10, Event::Watched((11, bereft())));
    // The report of a start in an epoch before is not today's.
    let early = Restart { epoch: 3, ..lost(0).unwrap() };
    step(&mut learner, 20, Event::Node(node(P), 12, boot(9), Some(early)));
    let reports = |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::ReportLoss(..)));
    assert!(!reports(&step(&mut learner, 400, Event::Tick)));
    let now = Restart { epoch: 4, ..lost(20).unwrap() };
    let mut actions = step(&mut learner, 500, Event::Node(node(P), 13, boot(9), Some(now)));
    actions.extend(step(&mut learner, 800, Event::Tick));
    let own = Restart { epoch: 4, ..lost(50).unwrap() };
    assert!(actions.contains(&Action::ReportLoss(own.clone(), 11)), "{actions:?}");
    let mut actions = step(&mut learner, 900, Event::Node(node(M), 14, boot(M), Some(own)));
    actions.extend(step(&mut learner, 1_200, Event::Tick));
    let proposal = proposed(&actions).expect("it has 50, and the member 20");
    assert_eq!((proposal.transition, proposal.subject), (Transition::Recover, node(M)));
    assert_eq!((proposal.record.primary, proposal.record.history.from), (node(M), 50));
    let actions = step(&mut learner, 1_300, Event::Outcome(proposal.number, TransactionOutcome::Done(15)));
    assert!(matches!(actions[0], Action::Lead { epoch: 5, from: 50, .. }), "{actions:?}");
}

/// Found by the simulator (seed 264, when the store first went back).
#[test]
fn primary_of_a_record_with_another_history_leads_anew() {
    let (mut primary, actions) = started(P, true);
    let number = proposed(&actions).expect("it takes over from itself").number;
    step(&mut primary, 10, Event::Outcome(number, TransactionOutcome::Done(11)));
    assert!(primary.leads());
    // An operator has decided for a line in which it leads, too.
    let actions = step(&mut primary, 20, Event::Watched((30, record(7))));
    assert!(!primary.leads() && primary.lease_until_ms() == 0, "{actions:?}");
    let actions = [actions, step(&mut primary, 500, Event::Tick)].concat();
    let proposal = proposed(&actions).expect("it takes over");
    assert_eq!((proposal.record.epoch, proposal.record.history.from), (8, 50));
}

fn lineage(marks: &[(u8, u64)]) -> Lineage {
    let mark = |count| crate::records::Mark::new(count, count);
    marks.iter().map(|(number, count)| (node(*number), mark(*count))).collect()
}

#[test]
fn record_of_another_line_is_read_and_not_believed() {
    let (mut member, _) = started(M, true);
    step(&mut member, 10, Event::Obeyed(lineage(&[(P, 3)]), [(node(P), 9)].into()));
    let learner = ShardRecord { in_sync: [node(P)].into(), learners: [node(M)].into(), ..record(5) };
    let told = |marks: &[(u8, u64)]| {
        let (record, lineage) = (Box::new((40, learner.clone())), Box::new(lineage(marks)));
        Event::Message(node(P), Message::Stale { record, lineage })
    };
    // By its numbers it is newer.
    let actions = step(&mut member, 300, told(&[(P, 2), (9, 7)]));
    assert!(actions.contains(&Action::Read(2)), "{actions:?}");
    assert_eq!(member.known().unwrap().1.epoch, 3);
    let actions = step(&mut member, 310, told(&[(P, 4)]));
    assert!(matches!(actions[..], [Action::Follow { epoch: 5, .. }]), "{actions:?}");
    assert_eq!(*member.lineage(), lineage(&[(P, 4)]), "it is remembered");
}

#[test]
fn proposal_compares_the_marks_of_the_records_other_nodes() {
    let (mut member, _) = started(M, true);
    step(&mut member, 10, Event::Obeyed(lineage(&[(P, 3)]), [(node(P), 9), (node(M), 4)].into()));
    let actions = step(&mut member, 2_000, Event::Tick);
    let proposal = proposed(&actions).expect("a takeover").clone();
    assert_eq!(proposal.marks, [(node(P), 9)]);
    let keys = Keys::new("c").unwrap();
    let transaction = proposal.transaction(&keys, member.shard);
    assert!(
        transaction.compares.iter().any(|one| one.key == keys.text(Key::Mark(node(P))) && one.revision == 9)
    );
    // The other node has changed another record meanwhile.
    step(&mut member, 2_010, Event::Outcome(proposal.number, TransactionOutcome::Refused(30)));
    step(&mut member, 2_020, Event::Obeyed(lineage(&[(P, 4)]), [(node(P), 29)].into()));
    let actions = step(&mut member, 2_400, Event::Read(2, Some((10, record(3)))));
    assert_eq!(proposed(&actions).expect("once more").marks, [(node(P), 29)], "{actions:?}");
}

#[test]
fn machine_that_stopped_begins_anew_after_an_operators_word() {
    let (mut member, _) = started(M, true);
    step(&mut member, 10, Event::Obeyed(lineage(&[(M, 2)]), [].into()));
    let other = ShardRecord { primary: node(M), in_sync: [node(M)].into(), ..record(3) };
    let (record_of_other, marks) = (Box::new((99, other)), Box::new(lineage(&[(P, 1)])));
    let stale = Message::Stale { record: record_of_other, lineage: marks };
    let actions = step(&mut member, 20, Event::Message(node(P), stale));
    assert!(actions.contains(&Action::Leave), "{actions:?}");
    for (epoch, marks, may) in [
        (1_003, &[(M, 2)][..], false),
        (1_003, &[(P, 1)], false),
        // A takeover of either line.
        (4, &[(P, 1), (M, 2)], false),
        (1_003, &[(P, 1), (M, 2)], true),
    ] {
        assert_eq!(member.may_begin_anew(&record(epoch), &lineage(marks)), may, "{epoch} {marks:?}");
    }
}

/// Found by the simulator (seeds 53, 2638).
#[test]
fn member_does_not_stop_at_old_news_of_its_own_line() {
    let told = |known: Known, marks: &[(u8, u64)]| {
        let (mut member, _) = started(M, true);
        step(&mut member, 10, Event::Obeyed(lineage(&[(P, 3)]), [].into()));
        let stale = Message::Stale { record: Box::new(known), lineage: Box::new(lineage(marks)) };
        step(&mut member, 20, Event::Message(node(P), stale)).contains(&Action::Leave)
    };
    // An operator's record of a restored store: a later epoch at an earlier revision.
    let decided = (9, record(1_003));
    let other = (99, ShardRecord { primary: node(M), ..record(3) });
    for (known, marks, stops) in [
        (&decided, &[(P, 3), (9, 1)][..], false),
        (&decided, &[(9, 1)], true),
        (&other, &[(P, 2)], false),
        (&other, &[(9, 1)], true),
        // A node of the version before sends no marks.
        (&other, &[], true),
    ] {
        assert_eq!(told(known.clone(), marks), stops, "{known:?} {marks:?}");
    }
}

/// Found by the simulator (seeds 8216, 9744).
#[test]
fn record_of_another_line_contradicts_the_known_one() {
    let (member, _) = started(M, true);
    let of = |primary, epoch| ShardRecord { primary: node(primary), ..record(epoch) };
    for (revision, record, contradicts) in [
        (10, of(P, 3), false),
        (11, of(P, 3), false),
        (11, of(M, 4), false),
        (9, of(M, 2), false),
        (9, of(P, 1_003), true),
        (11, of(P, 2), true),
        (11, of(M, 3), true),
    ] {
        assert_eq!(member.contradicts(&(revision, record.clone())), contradicts, "{revision} {record:?}");
    }
}
