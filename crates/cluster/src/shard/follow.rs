//! Members and learners: promises, takeovers, and how the stream is joined.

use std::collections::BTreeSet;

use super::{Action, Attach, Facts, Fault, Local, Message, Shard, Transition, table};
use crate::{
    HistoryId, NodeId,
    records::{Restart, ShardRecord},
};

impl Shard {
    /// Decides how this node joins the stream of the record's primary, from what it has.
    pub(super) fn join(&mut self, actions: &mut Vec<Action>) {
        let Some((_, record)) = &self.known else { return };
        if !record.has(self.me) {
            self.attach = Attach::Not;
            actions.push(Action::Leave);
            return;
        }
        let (history, primary, epoch) = (record.history, record.primary, record.epoch);
        let is_learner = record.learners.contains(&self.me);
        let otherwise = if is_learner { Attach::Copy } else { Attach::Not };
        self.attach = match self.local.history {
            Some(own) if own == history.id => Attach::Stream,
            Some(own) if Some(own) == history.previous => {
                if self.local.end > history.from && !self.is_broken(Fault::KeepTail) {
                    Attach::Rewind(history.from)
                } else {
                    self.local.history = Some(history.id);
                    Attach::Stream
                }
            }
            None if self.local.end == 0 && history.from == 0 => {
                self.local.history = Some(history.id);
                Attach::Stream
            }
            _ => otherwise,
        };
        // A member that has lost something stays as it is, until it is a learner: what it has may be all that is left.
        if !is_learner && !self.local.clean {
            self.attach = Attach::Not;
        }
        if primary != self.me {
            actions.push(Action::Follow { primary, epoch, attach: self.attach });
        }
    }

    /// The data has grown, in its own history, or in the one before the record's: the link to the primary before was not cut yet.
    pub(super) fn take_grown(&mut self, history: HistoryId, end: u64, held: u64, actions: &mut Vec<Action>) {
        let mut is_beyond = false;
        if self.local.history != Some(history) {
            let Some(branch) = self.record().map(|record| record.history) else { return };
            if self.local.history != Some(branch.id) || branch.previous != Some(history) {
                return;
            }
            is_beyond = end > branch.from;
            if is_beyond && (self.lead.is_some() || self.takes_over()) {
                return;
            }
        }
        debug_assert!(held <= end && end >= self.local.end, "the data grows");
        (self.local.end, self.local.held) = (end, held);
        if is_beyond {
            // The node's data has left the record's history: the node goes back, or takes over with all that it has.
            self.local.history = Some(history);
            self.join(actions);
        } else {
            self.echo_again(actions);
        }
    }

    pub(super) fn take_rewound(&mut self, end: u64) {
        let Some((_, record)) = &self.known else { return };
        if let Attach::Rewind(to) = self.attach
            && end == to
        {
            self.local.history = Some(record.history.id);
            self.local.end = end;
            self.local.held = self.local.held.min(end);
            self.attach = Attach::Stream;
            // Only a recovery can be shorter.
            self.commit = self.commit.min(end);
        }
    }

    /// The data is another one, or none. Another node may count on what was there before, and admit this node for it.
    pub(super) fn replaced(&mut self, local: Local) {
        debug_assert!(self.lead.is_none(), "a primary copies nobody");
        self.copies += 1;
        self.is_counted = self.is_broken(Fault::CopyCountsAtOnce);
        self.local = Local { clean: self.is_broken(Fault::EmptiedIsClean), ..local };
        self.commit = self.commit.min(local.end);
        self.owe();
    }

    /// A learner owes nothing, unless another node counts on data that it has lost: it may be a member already, and not
    /// know it.
    pub(super) fn owe(&mut self) {
        if self.is_learner() && self.is_counted {
            self.local.clean = true;
        }
    }

    pub(super) fn take_heartbeat(
        &mut self,
        now_ms: u64,
        from: NodeId,
        message: Message,
        actions: &mut Vec<Action>,
    ) {
        let Message::Heartbeat { epoch, sent_ms, history, commit, rank, counted } = message else {
            return;
        };
        if epoch < self.epoch() {
            if self.record().is_some_and(|record| record.epoch > epoch) {
                actions.extend(self.stale().map(|stale| Action::Send(from, stale)));
            }
            return;
        }
        if from != self.me && now_ms < self.lease_until_ms() {
            // No successor is there while this node may answer: the sender finds out whether the store was restored from a backup.
            actions.extend(self.stale().map(|stale| Action::Send(from, stale)));
        }
        self.epoch_seen = self.epoch_seen.max(epoch);
        let Some((_, own)) = &self.known else { return };
        let (own_epoch, own_history) = (own.epoch, own.history.id);
        match epoch.cmp(&own_epoch) {
            std::cmp::Ordering::Less => return,
            std::cmp::Ordering::Equal if from != own.primary || from == self.me => return,
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => self.want_read(),
        }
        if self.lead.is_some() || self.takes_over() && !self.is_broken(Fault::PromiseWhileTakingOver) {
            return;
        }
        self.promised_until_ms = self.promised_until_ms.max(now_ms + self.options.grace_ms);
        self.rank = rank;
        if epoch == own_epoch && history == own_history && self.local.history == Some(history) {
            self.raise_commit(commit.min(self.local.end), actions);
        }
        if epoch == own_epoch {
            self.heard = Some((commit, now_ms));
            // As a member it would have been admitted for what was there before.
            if counted == Some((self.boot, self.copies)) && self.is_learner() {
                self.is_counted = true;
                self.owe();
            }
        }
        self.answered = Some((from, epoch, sent_ms));
        self.echo(actions);
    }

    /// Answers the last heartbeat, or says once more how much this node has: the promise is as old as the heartbeat.
    fn echo(&self, actions: &mut Vec<Action>) {
        let Some((to, epoch, sent_ms)) = self.answered else { return };
        let echo = Message::Echo {
            epoch,
            sent_ms,
            boot: self.boot,
            revision: self.revision(),
            history: self.local.history.filter(|_| self.attach == Attach::Stream),
            held: self.local.held,
            copy: self.copies,
            lost: self.is_lost(),
        };
        actions.push(Action::Send(to, echo));
    }

    pub(super) fn echo_again(&mut self, actions: &mut Vec<Action>) {
        let is_current = self.answered.is_some_and(|(_, epoch, _)| epoch == self.epoch());
        if is_current && self.lead.is_none() && !self.takes_over() {
            self.echo(actions);
        }
    }

    pub(super) fn work_as_follower(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if self.pending.is_some() || now_ms < self.propose_at_ms || self.is_ending {
            return;
        }
        let Some((_, record)) = &self.known else { return };
        if record.learners.contains(&self.me) {
            if !self.offer(now_ms, actions) {
                self.clear_report(now_ms, actions);
            }
            return;
        }
        if !record.in_sync.contains(&self.me) {
            return;
        }
        let is_own = record.primary == self.me;
        let wait_ms = u64::from(self.rank) * self.options.rank_ms;
        let is_over = now_ms >= self.promised_until_ms + wait_ms;
        // A member's data may belong to an older history than the record's, and still has all that is committed: a
        // commit needs every member.
        if (is_own && self.restarted || is_over) && self.local.clean {
            let facts = Facts {
                grace_over: is_over,
                clean: true,
                history: self.local.history,
                end: self.local.end,
                new_history: Some(self.new_history()),
                ..Facts::default()
            };
            self.propose(now_ms, Transition::TakeOver, self.me, &facts, Vec::new(), actions);
        } else if !self.local.clean && !self.report_loss(now_ms, actions) {
            self.recover(now_ms, actions);
        }
    }

    /// A member that has lost its data since its start says so in its record, as a restart does: otherwise those that
    /// look for the one that has most would wait for it. Returns whether that is to be done.
    fn report_loss(&mut self, now_ms: u64, actions: &mut Vec<Action>) -> bool {
        let own = self.nodes.get(&self.me).filter(|own| own.boot == self.boot);
        let epoch = self.record().map_or(0, |record| record.epoch);
        // Learners take no word of an epoch before: a primary by recovery may not have taken its own back yet.
        let is_current = |restart: &Restart| !restart.clean && restart.epoch >= epoch;
        let says_nothing = own.is_some_and(|own| !own.restart.as_ref().is_some_and(is_current));
        if says_nothing {
            self.propose_at_ms = now_ms + self.options.retry_ms;
            self.report(actions);
        }
        says_nothing
    }

    /// Returns the report of what this node has, and that this is not everything.
    fn loss(&self) -> Restart {
        Restart {
            shard: self.shard,
            epoch: self.epoch(),
            history: self.local.history.unwrap_or(HistoryId::from_bytes([0; 20])),
            offset: self.local.end,
            clean: false,
        }
    }

    /// Writes into this node's record what it has, and that this is not everything.
    pub(super) fn report(&self, actions: &mut Vec<Action>) {
        actions.push(Action::ReportLoss(self.loss(), self.revision()));
    }

    /// Writes the record of a learner, or of a primary by recovery, anew if it still says that its process has lost
    /// data: the word would be taken for a member's once there are members. Returns whether the record says it.
    pub(super) fn clear_report(&mut self, now_ms: u64, actions: &mut Vec<Action>) -> bool {
        let own = self.nodes.get(&self.me).filter(|own| own.boot == self.boot);
        let is_reported = own.is_some_and(|own| own.restart.as_ref().is_some_and(|restart| !restart.clean));
        if is_reported && now_ms >= self.propose_at_ms {
            self.propose_at_ms = now_ms + self.options.retry_ms;
            actions.push(Action::ClearReport);
        }
        is_reported
    }

    /// A learner whose shard has no member that has all that was acknowledged reports what it has, and goes on with
    /// that if it is most. Returns whether the shard is in that state.
    fn offer(&mut self, now_ms: u64, actions: &mut Vec<Action>) -> bool {
        let Some((_, record)) = &self.known else { return false };
        let (facts, _) = self.reports(record, record.in_sync.iter());
        let is_of_now = |member: &NodeId| {
            let restart = self.nodes.get(member).and_then(|process| process.restart.as_ref());
            restart.is_some_and(|restart| restart.epoch >= record.epoch)
        };
        let is_lost = record.in_sync.is_subset(&facts.reported)
            && facts.reported_clean.is_empty()
            && record.in_sync.iter().all(is_of_now);
        if !is_lost || self.is_broken(Fault::RecoverMembersOnly) {
            return false;
        }
        let own = self.nodes.get(&self.me).filter(|own| own.boot == self.boot);
        let says = own.and_then(|own| own.restart.as_ref()).filter(|restart| **restart == self.loss());
        match says {
            Some(_) => self.recover(now_ms, actions),
            None => {
                self.propose_at_ms = now_ms + self.options.retry_ms;
                self.report(actions);
            }
        }
        true
    }

    /// Whether a node's report is of data that belong to the record's history, or the one before.
    fn belongs(record: &ShardRecord, restart: &Restart) -> bool {
        restart.offset > 0
            && (restart.history == record.history.id || Some(restart.history) == record.history.previous)
    }

    /// No node of the in-sync set has all that was acknowledged: the node with most goes on, and every node sees
    /// which one that is. Learners count, too. A member waits for learners, and for ever if it has nothing: an
    /// operator decides then.
    fn recover(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let Some((_, record)) = &self.known else { return };
        let counts_learners = !self.is_broken(Fault::RecoverMembersOnly);
        let learners = || record.learners.iter().filter(|_| counts_learners);
        let (facts, nodes) = self.reports(record, record.in_sync.iter().chain(learners()));
        if !record.in_sync.is_subset(&facts.reported) || !facts.reported_clean.is_empty() {
            self.recovers_since_ms = None;
            return;
        }
        let is_begin = self.recovers_since_ms.is_none();
        let since_ms = *self.recovers_since_ms.get_or_insert(now_ms);
        let silent: Vec<NodeId> =
            learners().copied().filter(|learner| !facts.reported.contains(learner)).collect();
        let has_data = |node: NodeId| {
            let restart = self.nodes.get(&node).and_then(|process| process.restart.as_ref());
            restart.is_some_and(|restart| Self::belongs(record, restart))
        };
        let is_empty = !facts.best.is_some_and(has_data);
        if !silent.is_empty() && (is_empty || now_ms < since_ms + self.options.recover_ms) {
            if is_begin && is_empty {
                let names: Vec<String> = silent.iter().map(NodeId::to_string).collect();
                actions.push(Action::Warn(format!(
                    "no member has anything of the shard. Learners may have, and are waited for: {}. Start them, or forget them with CLUSTER FORGET",
                    names.join(", ")
                )));
            }
            return;
        }
        if facts.best != Some(self.me) {
            return;
        }
        let facts = Facts {
            history: self.local.history,
            end: self.local.end,
            new_history: Some(self.new_history()),
            ..facts
        };
        if self.propose(now_ms, Transition::Recover, self.me, &facts, nodes, actions) {
            self.recovers_since_ms = None;
            let line = "no member has all that was acknowledged: this node has most, and goes on with it";
            actions.push(Action::Warn(line.to_owned()));
        }
    }

    /// Takes the shard with what this node has, on an operator's word.
    pub(super) fn force(&mut self, now_ms: u64, absent: BTreeSet<NodeId>, actions: &mut Vec<Action>) {
        let Some((_, record)) = &self.known else { return };
        let members = record.in_sync.iter().filter(|node| **node != self.me);
        let (mut facts, nodes) = self.reports(record, members);
        let present = |(node, _): &(NodeId, u64)| !absent.contains(node);
        let nodes = nodes.into_iter().filter(present).collect();
        facts.reported.insert(self.me);
        let facts = Facts {
            absent,
            clean: self.is_member() && self.local.clean,
            history: self.local.history,
            end: self.local.end,
            new_history: Some(self.new_history()),
            ..facts
        };
        let why = match table::change(Transition::Force, record, self.me, &facts) {
            _ if self.lead.is_some() => "it leads it already",
            _ if self.pending.is_some() => "another change of its record is under way",
            Err(why) => why,
            Ok(_) => {
                self.propose_at_ms = now_ms;
                match self.propose(now_ms, Transition::Force, self.me, &facts, nodes, actions) {
                    true => "",
                    false => "its process is not recorded yet",
                }
            }
        };
        actions.push(Action::Warn(match why {
            "" => "an operator has this node take the shard with what it has".to_owned(),
            why => format!("an operator's word to take the shard waits: {why}"),
        }));
    }

    /// Returns what the records of nodes say of their restarts, and the revisions that this rests on. A learner that says that it is
    /// clean reports its start, and not what it has by now.
    fn reports<'a>(
        &self,
        record: &ShardRecord,
        nodes: impl Iterator<Item = &'a NodeId>,
    ) -> (Facts, Vec<(NodeId, u64)>) {
        let mut facts = Facts::default();
        let mut revisions = Vec::new();
        let mut most = None;
        for member in nodes {
            let Some(process) = self.nodes.get(member) else { continue };
            let is_learner = record.learners.contains(member);
            let counts = |restart: &&Restart| restart.shard == self.shard && !(is_learner && restart.clean);
            let Some(restart) = process.restart.as_ref().filter(counts) else { continue };
            facts.reported.insert(*member);
            if restart.clean {
                facts.reported_clean.insert(*member);
            }
            revisions.push((*member, process.revision));
            // A learner's data of another history may be of another line altogether.
            if is_learner && !Self::belongs(record, restart) {
                continue;
            }
            // Data of the current history are more than any of the one before. A member is preferred to a learner that has as much.
            let has = (restart.history == record.history.id, restart.offset, !is_learner, *member);
            if Some(has) > most {
                (most, facts.best) = (Some(has), Some(*member));
            }
        }
        (facts, revisions)
    }
}
