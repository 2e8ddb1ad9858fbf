//! Compares all keys of both servers while clients write.
//!
//! A key that differs is looked at again: at the old server, then, behind the stream that has led there, at the new
//! one, then at the old one once more. The key differs if the old server's value was the same both times and the new
//! one's was not.

use std::{
    thread,
    time::{Duration, Instant},
};

use dunlin_resp::Value;

use super::{
    check::scanned,
    digest::{Digest, Questions, digests},
    side::Side,
};
use crate::progress::Progress;

/// Keys of a slice.
const SLICE: &str = "300";
/// How often a key is looked at that changes all the time; it is compared in the pause.
const LOOKS_MAX: usize = 20;
/// How often a difference has to be seen.
const PROOFS: usize = 2;
/// Differences that are shown.
const SHOWN_MAX: usize = 10;
/// How long the new server may take for the old one's writes.
const CATCH_UP_MAX: Duration = Duration::from_secs(60);

/// A key, with its database.
pub(super) type DatabaseKey = (u32, Vec<u8>);

/// Compares everything; the keys that changed too often to be compared.
pub(super) fn all(old: &mut Side, new: &mut Side) -> Result<Vec<DatabaseKey>, String> {
    let questions = questions(old, new);
    let (mut differences, mut unsettled) = (Vec::new(), Vec::new());
    let (mut compared, begun) = (0, Instant::now());
    let mut progress = Progress::of_keys("compared", old.keys()?);
    for (database, _) in old.databases()? {
        let mut cursor = "0".to_owned();
        loop {
            select(old, new, database)?;
            let reply = old.ask(&["SCAN", &cursor, "COUNT", SLICE])?;
            let (next, keys) = scanned(&reply).ok_or("the old server does not answer SCAN as it should")?;
            let (before, after) = (digests(old, &keys, questions)?, digests(new, &keys, questions)?);
            let suspects =
                keys.iter().zip(before.iter().zip(&after)).filter(|(_, (one, other))| one != other);
            let suspects: Vec<Vec<u8>> = suspects.map(|(key, _)| key.clone()).collect();
            let (different, open) = settle(old, new, suspects, questions)?;
            differences.extend(different.into_iter().map(|key| (database, key)));
            unsettled.extend(open.into_iter().map(|key| (database, key)));
            compared += keys.len();
            progress.advance(keys.len() as u64);
            progress.say(&format!("lag {} bytes", old.offset()?.saturating_sub(new.offset()?)));
            cursor = next;
            if cursor == "0" || differences.len() > SHOWN_MAX {
                break;
            }
        }
    }
    drop(progress);
    let strangers = strangers(old, new, questions)?;
    differences.extend(strangers);
    select(old, new, 0)?;
    if differences.is_empty() {
        dunlin_print::say!("same  {compared} keys in {:.1} s, all equal", begun.elapsed().as_secs_f64());
        if !unsettled.is_empty() {
            dunlin_print::say!(
                "note  {} keys change all the time and are compared in the pause",
                unsettled.len()
            );
        }
        return Ok(unsettled);
    }
    for (database, key) in differences.iter().take(SHOWN_MAX) {
        dunlin_print::say!("DIFF  '{}' in database {database}", key.escape_ascii());
    }
    Err("the servers differ; the old one is as it was, the new one is its replica: REPLICAOF NO ONE there ends that".to_owned())
}

/// Compares some keys now, while nothing changes; those that differ.
pub(super) fn some(
    old: &mut Side,
    new: &mut Side,
    places: &[DatabaseKey],
) -> Result<Vec<DatabaseKey>, String> {
    let questions = questions(old, new);
    let mut different = Vec::new();
    for (database, key) in places {
        select(old, new, *database)?;
        let key_alone = std::slice::from_ref(key);
        if digests(old, key_alone, questions)? != digests(new, key_alone, questions)? {
            different.push((*database, key.clone()));
        }
    }
    select(old, new, 0)?;
    Ok(different)
}

fn questions(old: &mut Side, new: &mut Side) -> Questions {
    Questions {
        expiry_times: old.knows("PEXPIRETIME") && new.knows("PEXPIRETIME"),
        field_expiries: old.knows("HPEXPIRETIME") && new.knows("HPEXPIRETIME"),
    }
}

fn select(old: &mut Side, new: &mut Side, database: u32) -> Result<(), String> {
    let database = database.to_string();
    old.ask(&["SELECT", &database])?;
    new.ask(&["SELECT", &database]).map(drop)
}

/// Keys of the new server that the old one does not have.
fn strangers(old: &mut Side, new: &mut Side, questions: Questions) -> Result<Vec<DatabaseKey>, String> {
    let mut found = Vec::new();
    for (database, _) in new.databases()? {
        let mut cursor = "0".to_owned();
        loop {
            select(old, new, database)?;
            let reply = new.ask(&["SCAN", &cursor, "COUNT", SLICE])?;
            let (next, keys) = scanned(&reply).ok_or("the new server does not answer SCAN as it should")?;
            let asked = keys.iter().map(|key| vec![b"EXISTS".to_vec(), key.clone()]);
            let known = old.pipelined(asked)?;
            let missing = keys.iter().zip(known).filter(|(_, known)| *known == Value::Integer(0));
            let missing: Vec<Vec<u8>> = missing.map(|(key, _)| key.clone()).collect();
            let (different, _) = settle(old, new, missing, questions)?;
            found.extend(different.into_iter().map(|key| (database, key)));
            cursor = next;
            if cursor == "0" || found.len() > SHOWN_MAX {
                break;
            }
        }
    }
    Ok(found)
}

/// Waits until the new server has what the old one has written by now.
pub(super) fn catch_up(old: &mut Side, new: &mut Side, wait_limit: Duration) -> Result<(), String> {
    let (wanted, until) = (old.offset()?, Instant::now() + wait_limit);
    while new.offset()? < wanted {
        if Instant::now() >= until {
            return Err("the new server does not keep up with the old one".to_owned());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Names of keys.
type Keys = Vec<Vec<u8>>;

/// Looks at keys that differ until it is known whether they do: those that do, and those that change all the time.
fn settle(
    old: &mut Side,
    new: &mut Side,
    mut suspects: Keys,
    questions: Questions,
) -> Result<(Keys, Keys), String> {
    let (mut different, mut proofs) = (Vec::new(), vec![0; suspects.len()]);
    for _ in 0..LOOKS_MAX {
        if suspects.is_empty() {
            break;
        }
        let before = digests(old, &suspects, questions)?;
        catch_up(old, new, CATCH_UP_MAX)?;
        let there = digests(new, &suspects, questions)?;
        let after = digests(old, &suspects, questions)?;
        let mut open = (Vec::new(), Vec::new());
        for (nth, key) in suspects.into_iter().enumerate() {
            match verdict(before[nth], there[nth], after[nth]) {
                Some(true) => {}
                Some(false) if proofs[nth] + 1 >= PROOFS => different.push(key),
                seen => {
                    open.0.push(key);
                    open.1.push(proofs[nth] + usize::from(seen == Some(false)));
                }
            }
        }
        (suspects, proofs) = open;
    }
    Ok((different, suspects))
}

/// Whether a key is the same, given its digests at the old server, at the new one, and at the old one once more; `None`
/// if that cannot be said.
fn verdict(before: Digest, there: Digest, after: Digest) -> Option<bool> {
    match there == before || there == after {
        true => Some(true),
        false => (before == after).then_some(false),
    }
}
