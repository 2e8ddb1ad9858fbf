//! The store: requests that are lost, late or done without an answer.

use super::*;

impl World {
    pub(super) fn ask(&mut self, node: usize, request: Request) {
        let Some(boot) = self.nodes[node].process.as_ref().map(|process| process.boot) else { return };
        let is_lost = self.store_cut[node] || self.is_trouble && self.random.chance(self.loss);
        if is_lost {
            if let (Request::Propose(proposal, _, mark), true) = (&request, self.random.chance(30)) {
                // The connection was refused: this is known.
                let failed = TransactionOutcome::Failed(MetaError::Unavailable("cut off".to_owned()));
                let answer = Answer::Outcome(proposal.number, failed, *mark);
                self.at(1, Happening::Answer { node, boot, answer });
            }
            return;
        }
        let delay = match self.random.below(20) {
            0 if self.is_trouble => self.random.below(3_000),
            _ => 1 + self.random.below(15),
        };
        self.at(delay, Happening::Ask { node, boot, request });
    }

    pub(super) fn store_asked(&mut self, node: usize, boot: BootId, request: Request) {
        if self.store_down_until > self.now {
            // The request may be in the store's own queue, and be done when the store is back.
            if self.random.chance(30) {
                self.at(self.store_down_until - self.now, Happening::Ask { node, boot, request });
            }
            return;
        }
        let answer = match request {
            Request::Propose(proposal, transaction, mark) => {
                let (_, before) = self.record();
                let outcome = self.store.commit(&transaction);
                if matches!(outcome, TransactionOutcome::Done(_)) {
                    self.changed(&before, &proposal.record, proposal.transition);
                }
                Answer::Outcome(proposal.number, outcome, mark)
            }
            Request::Read(number, asked) => {
                Answer::Read(number, Some(self.record()), Seal { marks: self.marks(), asked })
            }
            Request::Watch(asked, sent) => {
                let nodes = (0..self.nodes.len()).filter_map(|other| {
                    let id = self.nodes[other].id;
                    let item = self.store.item(&self.keys.text(Key::Node(id)))?;
                    let record = NodeRecord::decode(&item.value).expect("a record");
                    Some((id, item.revision, record.boot, record.restart))
                });
                let seal = Seal { marks: self.marks(), asked };
                Answer::Watch(Some(self.record()), nodes.collect(), seal, sent)
            }
            Request::Report { restart, compare } => {
                let key = self.keys.text(Key::Node(self.nodes[node].id));
                let own =
                    self.store.item(&key).map(|item| NodeRecord::decode(&item.value).expect("a record"));
                if let Some(own) = own.filter(|own| own.boot == boot) {
                    let record = NodeRecord { restart: Some(restart), ..own };
                    let shard = self.keys.text(Key::Shard(self.shard));
                    let transaction =
                        Transaction::default().compare(shard, compare).put(key, record.encode());
                    self.store.commit(&transaction);
                }
                return;
            }
            Request::Announce { restart, is_start } => {
                let record = NodeRecord {
                    addresses: Addresses::default(),
                    name: String::new(),
                    host: String::new(),
                    zone: String::new(),
                    weight: 1,
                    version: String::new(),
                    state: NodeState::Active,
                    boot,
                    restart,
                };
                let key = self.keys.text(Key::Node(self.nodes[node].id));
                // An order of an earlier process that comes late must not undo a later one's.
                let current =
                    self.store.item(&key).map(|item| NodeRecord::decode(&item.value).expect("a record").boot);
                let is_own = current == Some(boot);
                // A real process compares what it has read of its record, which comes to the same.
                if !self.is_running(node, boot) || !is_start && !is_own {
                    return;
                }
                // A process reads before it writes anything.
                if !self.may_obey(node) {
                    return;
                }
                if !(is_start && is_own) {
                    let mut transaction = Transaction::default().put(key, record.encode());
                    if is_start {
                        transaction = transaction.put(self.alive(node), Vec::new());
                    }
                    self.store.commit(&transaction);
                }
                if !is_start {
                    return;
                }
                Answer::Started
            }
        };
        let is_lost = self.store_cut[node] || self.is_trouble && self.random.chance(self.loss);
        if !is_lost {
            let delay = match self.random.below(20) {
                0 if self.is_trouble => self.random.below(2_000),
                _ => 1 + self.random.below(15),
            };
            self.at(delay, Happening::Answer { node, boot, answer });
        }
    }

    /// The key that is there while the node's process is.
    pub(super) fn alive(&self, node: usize) -> String {
        self.keys.text(Key::Alive(self.nodes[node].id))
    }

    pub(super) fn changed(&mut self, before: &ShardRecord, after: &ShardRecord, transition: Transition) {
        if self.trace {
            println!(
                "{:>6} {transition:?}: epoch {} {:?} | {:?} | {:?} from {}",
                self.now, after.epoch, after.primary, after.in_sync, after.learners, after.history.from
            );
        }
        let checked = self.oracle.record(before, after, transition, self.is_durable);
        self.check(checked);
        if matches!(transition, Transition::Recover | Transition::Force) {
            // Data that only lost or absent processes had are gone, as the operator learns. Everything else holds from here on.
            let best = self.index(after.primary);
            // Entries that are not synced do not count yet: the next crash may lose them.
            let held = self.nodes[best].local(self.is_durable).held as usize;
            let log = &self.nodes[best].log[..held];
            let shared =
                log.iter().zip(&self.oracle.committed).take_while(|(one, other)| one == other).count();
            self.oracle.committed.truncate(shared);
            self.oracle.generation += 1;
        }
    }

    pub(super) fn answered(&mut self, node: usize, answer: Answer) {
        match answer {
            Answer::Started => {
                let now = self.nodes[node].clock(self.now);
                let local = self.nodes[node].local(self.is_durable);
                let (me, options, shard) = (self.nodes[node].id, self.options.clone(), self.shard);
                let process = self.nodes[node].process.as_mut().expect("it runs");
                if process.shard.is_none() && process.left.is_none() {
                    process.shard = Some(Shard::new(me, shard, process.boot, options, local, 0, now));
                    self.step(node, Event::Tick);
                }
            }
            Answer::Outcome(number, outcome, mark) => {
                if let TransactionOutcome::Done(revision) = outcome {
                    self.made(node, revision, mark);
                }
                let is_nothing =
                    matches!(outcome, TransactionOutcome::Refused(_) | TransactionOutcome::Failed(_));
                let process = self.nodes[node].process.as_mut().expect("it runs");
                if is_nothing {
                    process.writer.undone(mark);
                }
                if process.asked.remove(&number).is_some() {
                    self.step(node, Event::Outcome(number, outcome));
                }
            }
            Answer::Read(number, known, seal) => {
                if self.obeys(node, &seal) {
                    self.step(node, Event::Read(number, known));
                }
            }
            Answer::Watch(known, nodes, seal, sent) => {
                if !self.obeys(node, &seal) {
                    return;
                }
                self.follow_view(node, known.as_ref(), &nodes, sent);
                self.announce_again(node, &nodes);
                self.begin_anew(node, known.as_ref(), &seal);
                // The first look has to be a read.
                let is_known = self.nodes[node].shard().is_some_and(|shard| shard.known().is_some());
                for (id, revision, boot, restart) in nodes {
                    self.step(node, Event::Node(id, revision, boot, restart));
                }
                if let (Some(known), true) = (known, is_known) {
                    self.step(node, Event::Watched(known));
                }
            }
        }
    }
}
