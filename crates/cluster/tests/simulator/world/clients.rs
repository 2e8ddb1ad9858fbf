//! Clients, and the replies that wait until they may leave.

use super::*;

/// Clients have found the primary by then, also those that began at a node that says nothing.
const FOUND_BY_MS: u64 = 20_000;

impl World {
    pub(super) fn client(&mut self, at: usize) {
        let delay = 20 + self.random.below(80);
        if self.is_trouble
            || self.now < 3_000 + STORM_MS + CALM_MS
            || self.oracle.acknowledged == self.acknowledged_in_calm
        {
            self.at(delay, Happening::Client(at));
        }
        let (now, count) = (self.now, self.nodes.len() as u64);
        let client = &mut self.clients[at];
        match client.waits {
            Some(until) if until > now => return,
            Some(_) => client.target = self.random.below(count) as usize,
            None => {}
        }
        client.number += 1;
        let (number, node) = (client.number, client.target);
        let is_write = self.random.chance(60);
        client.waits = Some(now + 1_500);
        let known = (self.oracle.generation, self.oracle.committed.len());
        let delay = 1 + self.random.below(10);
        self.at(delay, Happening::Command { node, client: at, number, is_write, known });
    }

    pub(super) fn command(&mut self, at: usize, client: usize, number: u64, is_write: bool, known: Floor) {
        let id = client as u64 * 1_000_000 + number;
        let Some(shard) = self.nodes[at].shard() else { return };
        if !shard.leads() || is_write && !shard.is_writable() {
            self.oracle.refused.insert(id);
            self.at(1, Happening::Reply { client, number, is_done: false, node: at });
            return;
        }
        let process = self.nodes[at].process.as_ref().expect("it runs");
        if process.parked {
            return;
        }
        let boot = process.boot;
        if is_write {
            append(&mut self.nodes[at].log, id);
            self.grown(at);
        }
        let node = &mut self.nodes[at];
        let seen = node.log.len() as u64;
        node.process.as_mut().expect("it runs").withheld.push(Withheld {
            client,
            number,
            seen,
            is_write,
            known,
        });
        let delay = self.random.below(20);
        self.at(delay, Happening::Release(at, boot));
    }

    /// Sends the replies whose effects are committed, while the lease lasts.
    pub(super) fn release(&mut self, at: usize) {
        let now = self.nodes[at].clock(self.now);
        let Some(shard) = self.nodes[at].shard() else { return };
        if !shard.leads() || now >= shard.lease_until_ms() {
            return;
        }
        let mut commit = shard.commit();
        if self.setting.fault == Some(Fault::AnswerUncommitted) {
            commit = u64::MAX;
        }
        let process = self.nodes[at].process.as_mut().expect("it runs");
        let (ready, rest) =
            std::mem::take(&mut process.withheld).into_iter().partition(|reply| reply.seen <= commit);
        process.withheld = rest;
        let ready: Vec<Withheld> = ready;
        for reply in ready {
            // Writes that a recovery has given up are not owed to any client.
            let known = if reply.known.0 == self.oracle.generation { reply.known.1 } else { 0 };
            let checked = self.oracle.reply(&self.nodes[at], reply.seen, known, reply.is_write);
            self.check(checked);
            if reply.is_write {
                let (_, record) = self.record();
                let checked = self.oracle.acknowledged(&record, &self.nodes, reply.seen);
                self.check(checked);
            }
            let delay = 1 + self.random.below(10);
            self.at(
                delay,
                Happening::Reply { client: reply.client, number: reply.number, is_done: true, node: at },
            );
        }
    }

    pub(super) fn replied(&mut self, client: usize, number: u64, is_done: bool, node: usize) {
        let count = self.nodes.len() as u64;
        let pick = self.random.below(count) as usize;
        let client = &mut self.clients[client];
        if client.number == number {
            client.waits = None;
            client.target = if is_done { node } else { pick };
            if !is_done && !self.setting.is_stormy && self.now > FOUND_BY_MS {
                self.seen.unserved += 1;
            }
        }
    }
}
