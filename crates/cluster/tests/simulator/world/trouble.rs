//! Operators' acts, and faults.

use super::*;

impl World {
    pub(super) fn controller(&mut self) {
        self.at(300, Happening::Controller);
        self.back_up();
        if self.store_down_until > self.now {
            return;
        }
        let (revision, record) = self.record();
        let pick = self.random.below(self.nodes.len() as u64) as usize;
        let node = self.nodes[pick].id;
        let (mut facts, mut transition, mut subject) =
            (Facts { active: true, ..Facts::default() }, Transition::Learn, node);
        let is_quiet = !self.is_trouble || !self.setting.is_stormy;
        match self.random.below(20) {
            _ if is_quiet && record.requested.is_some() => transition = Transition::Order,
            0 if !is_quiet => {
                facts.requested = requested_change(&record, pick, self.random.chance(40));
                (transition, subject) = (Transition::Order, record.primary);
            }
            1 if !is_quiet => transition = Transition::Dismiss,
            2 if !is_quiet => transition = Transition::Order,
            _ => {}
        }
        let Ok(changed) = table::change(transition, &record, subject, &facts) else { return };
        let key = self.keys.text(Key::Shard(self.shard));
        let transaction = Transaction::default().compare(&*key, revision).put(key, changed.encode());
        let transaction = self.signed_by_planner(transaction);
        let outcome = self.store.commit(&transaction);
        assert!(matches!(outcome, TransactionOutcome::Done(_)));
        self.changed(&record, &changed, transition);
    }

    pub(super) fn heal(&mut self) {
        for row in &mut self.cut {
            row.fill(false);
        }
        self.store_cut.fill(false);
        self.loss = 0;
        self.store_down_until = self.store_down_until.min(self.now);
        for node in 0..self.nodes.len() {
            self.nodes[node].paused_until = self.nodes[node].paused_until.min(self.now);
            if !self.is_trouble {
                self.start(node);
            }
        }
    }

    /// An operator makes a node take the shard without the members whose processes are gone.
    pub(super) fn force(&mut self) {
        let gone = self.nodes.iter().filter(|node| node.process.is_none()).map(|node| node.id).collect();
        let others = 0..self.nodes.len();
        let others: Vec<usize> = others.filter(|node| self.nodes[*node].shard().is_some()).collect();
        if self.is_trouble && !others.is_empty() {
            let node = others[self.random.below(others.len() as u64) as usize];
            self.step(node, Event::Force(gone));
        }
    }

    /// A node takes over, and just then the links of the one that it does not hear come back for a moment. The old
    /// primary learns nothing from the store.
    pub(super) fn flap(&mut self, primary: usize) {
        if self.is_trouble && self.setting.is_stormy && self.random.chance(20) {
            self.cut_off(primary, false);
            self.store_cut[primary] = true;
            let delay = 20 + self.random.below(200);
            self.at(delay, Happening::CutOff(primary, true));
        }
    }

    pub(super) fn cut_off(&mut self, node: usize, is_cut: bool) {
        for other in 0..self.nodes.len() {
            (self.cut[node][other], self.cut[other][node]) = (is_cut, is_cut);
        }
    }

    pub(super) fn trouble(&mut self) {
        if !self.is_trouble {
            return;
        }
        if !self.setting.is_stormy {
            // I9: the store is gone for a minute, and no node needs it.
            self.store_down_until = self.now + 60_000;
            return;
        }
        let delay = 150 + self.random.below(1_200);
        self.at(delay, Happening::Trouble);
        let count = self.nodes.len() as u64;
        let mut node = self.random.below(count) as usize;
        let other = self.random.below(count) as usize;
        // Primaries are hit more often than their share.
        if self.random.chance(50) {
            node = self.nodes.iter().position(Node::leads).unwrap_or(node);
        }
        match self.random.below(14) {
            0 | 1 if self.random.chance(20) => self.end(node),
            0 | 1 => {
                let is_orderly = self.random.chance(10);
                self.crash(node, is_orderly);
                let delay = 50 + self.random.below(4_000);
                self.at(delay, Happening::Start(node));
            }
            2 => {
                // The power fails.
                for node in 0..self.nodes.len() {
                    if self.random.chance(80) {
                        self.crash(node, false);
                        let delay = 50 + self.random.below(1_000);
                        self.at(delay, Happening::Start(node));
                    }
                }
            }
            3 | 4 => self.nodes[node].paused_until = self.now + 100 + self.random.below(4_000),
            5 => self.cut[node][other] = true,
            6 => (self.cut[node][other], self.cut[other][node]) = (true, true),
            7 => self.cut_off(node, true),
            8 => self.store_cut[node] = true,
            9 => self.store_down_until = self.now + 100 + self.random.below(3_000),
            10 => self.loss = self.random.below(40),
            // A member has to begin anew, while another one has everything: not by the store, if that went back.
            11 if self.restored.is_none() => {
                let shard = self.nodes[other].shard().filter(|shard| !shard.leads() && !shard.takes_over());
                let primary = shard.and_then(Shard::known).map(|known| known.1.primary);
                let leads = |node: &Node| {
                    let is_clean = node.shard().is_some_and(|shard| shard.local().clean);
                    Some(node.id) == primary && node.leads() && is_clean
                };
                if self.nodes.iter().any(leads) {
                    self.empty(other);
                    self.begin_base(other);
                }
            }
            // The members' processes are gone for a while, and an operator does not wait for them.
            12 => {
                let (_, record) = self.record();
                for node in 0..self.nodes.len() {
                    if record.in_sync.contains(&self.nodes[node].id) && self.random.chance(80) {
                        self.crash(node, false);
                        let delay = 200 + self.random.below(5_000);
                        self.at(delay, Happening::Start(node));
                    }
                }
                let delay = self.random.below(2_000);
                self.at(delay, Happening::Force);
            }
            _ => self.heal(),
        }
        if self.random.chance(40) {
            let delay = 300 + self.random.below(2_500);
            self.at(delay, Happening::Heal);
        }
    }
}
