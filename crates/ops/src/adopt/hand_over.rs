//! The word was given: writes pause at the old server until the new one is the primary.
//!
//! ```text
//! CLIENT PAUSE … WRITE ─▶ offsets meet ─▶ last keys equal ─▶ new: REPLICAOF NO ONE ─▶ old: REPLICAOF new, UNPAUSE
//!        └───────────── too long, or anything wrong: CLIENT UNPAUSE, and nothing has changed ──┘
//! ```
//!
//! The pause is longer than this program may take for it, so that no write gets in between if the program is held up;
//! and it ends by itself if the program dies.

use std::time::{Duration, Instant};

use super::{
    compare::{self, DatabaseKey},
    replicate::hand_credentials,
    side::Side,
};

/// How much longer the pause is than it may take.
const MARGIN: Duration = Duration::from_secs(10);
/// More replicas than any server has, and the lag in seconds without which they do not count: writes are refused.
const REPLICAS_NEVER_THERE: &str = "100";
const LAG_S: &str = "10";

pub(super) fn run(
    old: &mut Side,
    new: &mut Side,
    unsettled: &[DatabaseKey],
    old_can_follow: bool,
    pause_max: Duration,
) -> Result<(), String> {
    // All but the last bytes come before the pause.
    compare::catch_up(old, new, Duration::from_secs(60))?;
    let paused_ms = (pause_max + MARGIN).as_millis().to_string();
    // A connection of its own: the one that asks is not to wait.
    let mut pausing = old.another_client()?;
    let begun = Instant::now();
    old.ask(&["CLIENT", "PAUSE", &paused_ms, "WRITE"])?;
    let unpause = |old: &mut Side, reason: String| {
        let resumed = old.ask(&["CLIENT", "UNPAUSE"]);
        let more =
            resumed.err().map_or(String::new(), |error| format!(" ({error}; the pause ends by itself)"));
        Err(format!("{reason}; nothing was changed, the old server goes on{more}"))
    };
    let left = |begun: Instant| pause_max.saturating_sub(begun.elapsed());
    if let Err(reason) = compare::catch_up(old, new, left(begun)) {
        return unpause(old, reason);
    }
    match compare::some(old, new, unsettled) {
        Ok(different) if different.is_empty() => {}
        Ok(different) => {
            let key = different[0].1.escape_ascii();
            return unpause(old, format!("{} keys differ, such as '{key}'", different.len()));
        }
        Err(reason) => return unpause(old, reason),
    }
    if left(begun).is_zero() {
        return unpause(old, format!("the pause would have been longer than {} s", pause_max.as_secs()));
    }
    if let Err(reason) = new.ask(&["REPLICAOF", "NO", "ONE"]) {
        return unpause(old, reason);
    }
    let pause = begun.elapsed();
    // From here on the new server has the writes: the old one must refuse them.
    let closed = close(old, new, old_can_follow);
    if closed.is_ok() {
        let _ = pausing.call(&["CLIENT", "UNPAUSE"]);
    }
    dunlin_print::say!(
        "done  {}:{} is the primary; writes were paused for {} ms",
        new.host,
        new.port,
        pause.as_millis()
    );
    match closed? {
        true => dunlin_print::say!(
            "back  the old server follows the new one. The way back: dunlin adopt redis://{}:{} --into redis://{}:{}",
            new.host,
            new.port,
            old.host,
            old.port
        ),
        false => {
            dunlin_print::say!(
                "note  the old server refuses writes (min-replicas-to-write {REPLICAS_NEVER_THERE})"
            )
        }
    }
    Ok(())
}

/// Makes the old server refuse writes. Returns whether it follows the new one.
fn close(old: &mut Side, new: &mut Side, can_follow: bool) -> Result<bool, String> {
    let followed = can_follow
        && hand_credentials(new, old)
            .and_then(|()| old.ask(&["REPLICAOF", &new.host.clone(), &new.port.to_string()]))
            .is_ok();
    if followed {
        return Ok(true);
    }
    let settings = [("min-replicas-max-lag", LAG_S), ("min-replicas-to-write", REPLICAS_NEVER_THERE)];
    for (directive, value) in settings {
        old.ask(&["CONFIG", "SET", directive, value]).map_err(|reason| {
            format!(
                "the new server is the primary, but the old one cannot be kept from taking writes, which would be lost: stop \
                 it now, while its writes are still paused for {} s ({reason})",
                MARGIN.as_secs()
            )
        })?;
    }
    Ok(false)
}
