//! The new server becomes a replica of the old one.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::side::Side;
use crate::progress::Progress;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// How long nothing may happen.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
/// Bytes of the stream that the new server may lack when it is compared.
const LAG_MAX: u64 = 1 << 20;

/// Makes the new server a replica, and waits until it has nearly everything.
pub(super) fn follow(old: &mut Side, new: &mut Side, follows_already: bool) -> Result<(), String> {
    if !follows_already {
        hand_credentials(old, new)?;
        new.ask(&["REPLICAOF", &old.host.clone(), &old.port.to_string()])?;
    }
    let (begun, mut moved_at, mut last) = (Instant::now(), Instant::now(), (0, 0));
    let mut progress = Progress::of_bytes("snapshot");
    loop {
        let info = new.info("replication")?;
        if let Some(reason) = info.field("master_link_error") {
            return Err(format!("the new server cannot follow: {reason}"));
        }
        if info.field("master_link_status") == Some("up") {
            break;
        }
        let number = |field| info.number(field).unwrap_or(0.0).max(0.0) as u64;
        let loading = new.info("persistence")?;
        let loaded = loading.number("loading_loaded_bytes").unwrap_or(0.0) as u64;
        let (at, total, what) = match loading.number("loading") == Some(1.0) {
            true => (loaded, loading.number("loading_total_bytes").unwrap_or(0.0) as u64, "loading"),
            false => (number("master_sync_read_bytes"), number("master_sync_total_bytes"), "on its way"),
        };
        progress.set(at, total);
        progress.say(what);
        if (at, total) != last {
            (last, moved_at) = ((at, total), Instant::now());
        }
        if moved_at.elapsed() > WAIT_LIMIT {
            return Err(format!(
                "the new server has no link to {}:{} after {} s: its log says why. Passwords and addresses may differ from there: see --old-address. \
                 REPLICAOF NO ONE at the new server ends the attempt",
                old.host,
                old.port,
                WAIT_LIMIT.as_secs()
            ));
        }
        thread::sleep(LOOK);
    }
    drop(progress);
    wait_for_lag(old, new)?;
    let lag = old.offset()?.saturating_sub(new.offset()?);
    dunlin_print::say!(
        "link  {} keys in {:.1} s, {lag} bytes behind",
        new.keys()?,
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Waits until little is lacking of the stream.
fn wait_for_lag(old: &mut Side, new: &mut Side) -> Result<(), String> {
    let mut progress = Progress::of_bytes("lag");
    let first = old.offset()?.saturating_sub(new.offset()?);
    let (mut least, mut moved_at) = (first, Instant::now());
    loop {
        let lag = old.offset()?.saturating_sub(new.offset()?);
        if lag <= LAG_MAX {
            return Ok(());
        }
        progress.set(first.saturating_sub(lag), first);
        progress.say(&format!("{lag} bytes behind"));
        if lag < least {
            (least, moved_at) = (lag, Instant::now());
        }
        if moved_at.elapsed() > WAIT_LIMIT {
            return Err(format!(
                "the new server does not keep up: it is {lag} bytes behind, and that does not become less"
            ));
        }
        thread::sleep(LOOK);
    }
}

/// Tells a server how to identify itself at the other one.
pub(super) fn hand_credentials(primary: &Side, replica: &mut Side) -> Result<(), String> {
    let Some(credentials) = primary.credentials().cloned() else { return Ok(()) };
    let user = credentials.username.unwrap_or_default();
    replica
        .ask(&["CONFIG", "SET", "masteruser", &user, "masterauth", &credentials.password])
        .map(drop)
        .or_else(|_| {
            // Redis before 7.0 takes one directive at a time.
            replica.ask(&["CONFIG", "SET", "masteruser", &user])?;
            replica.ask(&["CONFIG", "SET", "masterauth", &credentials.password]).map(drop)
        })
}
