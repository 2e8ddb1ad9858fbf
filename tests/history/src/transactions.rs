//! Scenarios of transactions: several keys at once, under MULTI and WATCH.

use std::collections::HashMap;

use dunlin_test_support::random::Random;
use dunlin_test_support::resp::Reply;

use crate::client::{Client, Command};
use crate::command;
use crate::scenarios::{Connect, ensure, keys, together};

/// The balance that every account starts with.
const BALANCE: i64 = 1000;
/// Accounts; few, so that clients meet.
const ACCOUNTS: usize = 6;
/// Attempts at a transfer that others may disturb.
const TRIES_MAX: usize = 100_000;

/// Runs commands as one; `None` if a watched key had changed.
pub fn execute(client: &mut Client, commands: &[Command]) -> Result<Option<Vec<Reply>>, String> {
    let mut all = vec![command!["MULTI"]];
    all.extend_from_slice(commands);
    all.push(command!["EXEC"]);
    let last = client.batch(&all)?.pop().expect("every command is answered");
    match (last.elements(), &last) {
        (Some(replies), _) if replies.len() == commands.len() => Ok(Some(replies.to_vec())),
        (None, Reply::Null(_)) => Ok(None),
        _ => Err(format!("EXEC: {}", last.show())),
    }
}

pub fn number(reply: &Reply) -> Result<i64, String> {
    let text = reply.bytes().and_then(|text| std::str::from_utf8(text).ok());
    reply.integer().or_else(|| text?.parse().ok()).ok_or_else(|| format!("not a number: {}", reply.show()))
}

/// Money moves between accounts, in MULTI alone or guarded by WATCH: a reader that adds all accounts up in
/// one transaction always finds the same sum.
pub fn transfers(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    let accounts = keys(ACCOUNTS);
    let mut client = connect(0)?;
    for account in &accounts {
        client.call(command!["SET", account, BALANCE.to_string()])?;
    }
    let sum = |client: &mut Client| -> Result<(), String> {
        let reads: Vec<Command> = accounts.iter().map(|account| command!["GET", account]).collect();
        let replies = execute(client, &reads)?.ok_or("nothing was watched")?;
        let balances = replies.iter().map(number).collect::<Result<Vec<_>, _>>()?;
        let total: i64 = balances.iter().sum();
        ensure(total == BALANCE * ACCOUNTS as i64, || format!("{balances:?} add up to {total}"))
    };
    together(connect, |index, client| {
        let mut random = Random::new(index as u64);
        for round in 0..rounds {
            let from = random.below(ACCOUNTS);
            let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
            let (from, to) = (&accounts[from], &accounts[to]);
            let amount = random.below(10) as i64;
            match round % 4 {
                0 => sum(client)?,
                1 => drop(execute(
                    client,
                    &[
                        command!["DECRBY", from, amount.to_string()],
                        command!["INCRBY", to, amount.to_string()],
                    ],
                )?),
                _ => guarded_transfer(client, from, to, amount)?,
            }
        }
        Ok(())
    })?;
    sum(&mut client)
}

/// Reads both accounts, then writes both unless another client has meanwhile.
fn guarded_transfer(client: &mut Client, from: &[u8], to: &[u8], amount: i64) -> Result<(), String> {
    for _ in 0..TRIES_MAX {
        let replies =
            client.batch(&[command!["WATCH", from, to], command!["GET", from], command!["GET", to]])?;
        let (a, b) = (number(&replies[1])? - amount, number(&replies[2])? + amount);
        let writes = [command!["SET", from, a.to_string()], command!["SET", to, b.to_string()]];
        if execute(client, &writes)?.is_some() {
            return Ok(());
        }
    }
    Err(format!("no transfer in {TRIES_MAX} tries"))
}

/// A transaction: the version of each key that it read, and whether it made that version.
type Footprint = Vec<(usize, i64, bool)>;

/// Random transactions read some counters and increment others. Every value is a version, so the replies
/// show which transaction must stand before which; no circle may result, even when each client's own order
/// and that of disjoint moments is added.
pub fn serializable(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    random_transactions(connect, rounds, &|client, _, counters, chosen| {
        let commands: Vec<Command> = chosen
            .iter()
            .map(|&(key, writes)| command![if writes { "INCR" } else { "GET" }, counters[key]])
            .collect();
        match execute(client, &commands)? {
            Some(replies) => replies.iter().map(number).collect::<Result<Vec<_>, _>>().map(Some),
            None => Ok(None),
        }
    })
}

/// Runs a transaction over some counters, of which it writes those marked so, and gives their values; `None`
/// if it did not happen.
pub type Play =
    dyn Fn(&mut Client, &mut Random, &[Vec<u8>], &[(usize, bool)]) -> Result<Option<Vec<i64>>, String> + Sync;

/// Plays random transactions and checks their order.
pub fn random_transactions(connect: &Connect<'_>, rounds: usize, play: &Play) -> Result<(), String> {
    let counters = keys(ACCOUNTS);
    let mut client = connect(0)?;
    for counter in &counters {
        client.call(command!["SET", counter, "0"])?;
    }
    let histories = together(connect, |index, client| {
        let mut random = Random::new(index as u64 + 100);
        let mut history: Vec<Footprint> = Vec::new();
        while history.len() < rounds {
            let mut chosen: Vec<(usize, bool)> = (0..ACCOUNTS).map(|key| (key, random.chance(50))).collect();
            chosen.retain(|_| random.chance(50));
            if let Some(versions) = play(client, &mut random, &counters, &chosen)? {
                history.push(chosen.into_iter().zip(versions).map(|((k, w), v)| (k, v, w)).collect());
            }
        }
        Ok(history)
    })?;
    check_order(&histories)
}

/// Whether all transactions can be put in one order: that of the versions and of each client.
fn check_order(histories: &[Vec<Footprint>]) -> Result<(), String> {
    let transactions: Vec<&Footprint> = histories.iter().flatten().collect();
    let mut makers: HashMap<(usize, i64), usize> = HashMap::new();
    for (at, transaction) in transactions.iter().enumerate() {
        for &(key, version, writes) in transaction.iter() {
            if writes && let Some(other) = makers.insert((key, version), at) {
                return Err(format!(
                    "transactions {other} and {at} both made version {version} of key {key}"
                ));
            }
        }
    }
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); transactions.len()];
    let mut at = 0;
    for history in histories {
        for own in 0..history.len() {
            if own + 1 < history.len() {
                after[at].push(at + 1);
            }
            for &(key, version, writes) in &history[own] {
                let before = if writes { version - 1 } else { version };
                if let Some(&maker) = makers.get(&(key, before)) {
                    after[maker].push(at);
                }
                if let Some(&next) = makers.get(&(key, version + 1)) {
                    after[at].push(next);
                }
            }
            at += 1;
        }
    }
    let mut waits = vec![0; transactions.len()];
    after.iter().flatten().for_each(|&next| waits[next] += 1);
    let mut free: Vec<usize> = (0..waits.len()).filter(|&at| waits[at] == 0).collect();
    let mut placed = 0;
    while let Some(at) = free.pop() {
        placed += 1;
        for &next in &after[at] {
            waits[next] -= 1;
            if waits[next] == 0 {
                free.push(next);
            }
        }
    }
    ensure(placed == transactions.len(), || {
        format!("{} of {} transactions stand in a circle", transactions.len() - placed, transactions.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_order_finds_a_circle() {
        let in_order = [vec![vec![(0, 1, true), (1, 0, false)]], vec![vec![(1, 1, true), (0, 1, false)]]];
        assert!(check_order(&in_order).is_ok());
        // Each has read a value that the other had not yet overwritten.
        let skewed = [vec![vec![(0, 1, true), (1, 0, false)]], vec![vec![(1, 1, true), (0, 0, false)]]];
        assert!(check_order(&skewed).is_err());
        let lost = [vec![vec![(0, 1, true)]], vec![vec![(0, 1, true)]]];
        assert!(check_order(&lost).is_err());
    }
}
