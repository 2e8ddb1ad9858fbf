//! `dunlin cluster move`: slots go to another shard, on an operator's word.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use dunlin_bench::{server_flags::ServerFlags, target::Client};
use dunlin_resp::Value;
use indicatif::HumanBytes;

use super::{
    plural, short,
    state::{ClusterState, SLOTS, number, runs, word},
};
use crate::{
    progress::Progress,
    server::{ask, connect, connect_to},
};

/// Between two looks at a move.
const PAUSE: Duration = Duration::from_millis(200);
/// Hundredths by which a shard's part may be larger than its share, before the planner moves slots away.
const TOLERANCE: usize = 5;

/// A move that was begun.
struct Begun {
    source: Client,
    /// The source's shard.
    shard: String,
    /// As the source writes them.
    ranges: String,
    slots: usize,
    id: String,
    progress: Progress,
    end: Option<Result<(), String>>,
}

/// The slots that a word of the command line names.
fn slots_of(text: &str) -> Result<BTreeSet<usize>, String> {
    let runs = runs(text).ok_or_else(|| format!("'{text}' are no slots: write them as 0-99,200"))?;
    Ok(runs.into_iter().flat_map(|(first, last)| first..=last).collect())
}

/// Makes the planner leave slots in their places, or move them again. Their number.
pub(super) fn pin(server: &ServerFlags, slots: &str, are_pinned: bool) -> Result<usize, String> {
    let all = slots_of(slots)?;
    let command = ["CLUSTER".to_owned(), if are_pinned { "PIN" } else { "UNPIN" }.to_owned()];
    let words: Vec<String> = command.into_iter().chain(words_of(&all)).collect();
    ask(&mut connect(server)?, &words.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok(all.len())
}

/// Begins the moves that bring slots to a shard, one for each shard that has some of them; waits for their end.
pub(super) fn begin(
    server: &ServerFlags,
    slots: &str,
    to: &str,
    pins: bool,
    waits: bool,
) -> Result<(), String> {
    let all = slots_of(slots)?;
    let state = ClusterState::read(&mut connect(server)?)?;
    let target = state.find_shard(to)?;
    let successor =
        state.primary_of(target).ok_or_else(|| format!("shard {} has no primary", short(&target.id)))?;
    let mut parts: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for slot in &all {
        let owner = state.shards.iter().position(|shard| shard.has(*slot));
        let owner = owner.ok_or_else(|| format!("slot {slot} has no shard"))?;
        parts.entry(owner).or_default().insert(*slot);
    }
    parts.retain(|owner, _| state.shards[*owner].id != target.id);
    if pins {
        // Before they move: the planner might take them in between.
        pin(server, slots, true)?;
    }
    if parts.is_empty() {
        dunlin_print::say!("shard {} has these slots already", short(&target.id));
        return Ok(());
    }
    let count: usize = parts.values().map(BTreeSet::len).sum();
    let mut begun = Vec::new();
    for (owner, slots) in parts {
        let shard = &state.shards[owner];
        let primary = state.primary_of(shard).filter(|primary| primary.is_online()).ok_or_else(|| {
            format!("shard {} is not served: nobody can give its slots away", short(&shard.id))
        })?;
        begun.push(request(server, &primary.address, &shard.id, &successor.id, &slots)?);
    }
    let title = format!("{} to shard {} ({})", plural(count, "slot"), short(&target.id), successor.address);
    if !waits {
        dunlin_print::say!("{title}: `dunlin cluster status` shows how far that is");
        return Ok(());
    }
    let since = Instant::now();
    while begun.iter().any(|one| one.end.is_none()) {
        thread::sleep(PAUSE);
        for one in begun.iter_mut().filter(|one| one.end.is_none()) {
            look(one)?;
        }
    }
    for one in begun {
        drop(one.progress);
        let what = format!("{} of shard {}", plural(one.slots, "slot"), short(&one.shard));
        one.end.unwrap_or(Ok(())).map_err(|why| format!("{what} stay there: {why}"))?;
    }
    dunlin_print::say!("{title}: done in {:.1} s", since.elapsed().as_secs_f64());
    let share = SLOTS / state.shards.len().max(1);
    if pins {
        dunlin_print::say!(
            "The slots are pinned: the planner leaves them there, unless the node is drained."
        );
    } else if (target.slot_count() + count) * 100 > share * (100 + TOLERANCE) {
        dunlin_print::say!(
            "The shard has more slots than its share by number. If it has more data than its share by {TOLERANCE}%, too, the planner moves slots back; --pin keeps these there."
        );
    }
    Ok(())
}

/// Asks a source to give slots away.
fn request(
    server: &ServerFlags,
    address: &str,
    shard: &str,
    successor: &str,
    slots: &BTreeSet<usize>,
) -> Result<Begun, String> {
    let mut source = connect_to(server, address)?;
    let ranges = ranges(slots);
    let mut words = vec!["CLUSTER".to_owned(), "MIGRATESLOTS".to_owned(), "SLOTSRANGE".to_owned()];
    words.extend(words_of(slots));
    words.extend(["NODE".to_owned(), successor.to_owned()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    ask(&mut source, &words).map_err(|error| format!("{address}: {error}"))?;
    let range = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let ranges = ranges.iter().map(range).collect::<Vec<_>>().join(" ");
    let id = jobs(&mut source)?
        .iter()
        .find(|job| word(job, "operation") == "EXPORT" && word(job, "slot_ranges") == ranges)
        .map(|job| word(job, "name"))
        .ok_or_else(|| format!("{address} does not list the move"))?;
    let progress = Progress::of_move(short(&id));
    let slots = slots.len();
    Ok(Begun { source, shard: shard.to_owned(), ranges, slots, id, progress, end: None })
}

fn jobs(source: &mut Client) -> Result<Vec<Value>, String> {
    match ask(source, &["CLUSTER", "GETSLOTMIGRATIONS"])? {
        Value::Array(jobs) => Ok(jobs),
        _ => Ok(Vec::new()),
    }
}

/// Looks how far a move is.
fn look(one: &mut Begun) -> Result<(), String> {
    let jobs = jobs(&mut one.source)?;
    let Some(job) = jobs.iter().find(|job| word(job, "name") == one.id && word(job, "operation") == "EXPORT")
    else {
        one.end = Some(Err("its source has forgotten it".to_owned()));
        return Ok(());
    };
    let message = word(job, "message");
    match word(job, "state").as_str() {
        "success" => one.end = Some(Ok(())),
        "failed" => one.end = Some(Err(message)),
        "cancelled" => one.end = Some(Err(format!("the move has ended: {message}"))),
        name => {
            let state = ClusterState::read(&mut one.source)?;
            if let Some(seen) = state.moves.iter().find(|seen| seen.id == one.id) {
                one.progress.set(seen.walked, 1000);
                let waits =
                    if seen.waits.is_empty() { String::new() } else { format!(", waits {}", seen.waits) };
                let behind = number(job, "remaining_repl_size").unwrap_or(0);
                one.progress.say(&format!(
                    "slots {}, {name}, {} sent, {} behind{waits}",
                    one.ranges,
                    HumanBytes(seen.sent_bytes),
                    HumanBytes(behind)
                ));
            }
        }
    }
    Ok(())
}

/// Runs of neighbouring slots.
fn ranges(slots: &BTreeSet<usize>) -> Vec<(usize, usize)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *slot => *last = *slot,
            _ => ranges.push((*slot, *slot)),
        }
    }
    ranges
}

/// The slots as words of a command: each run's first and last slot.
fn words_of(slots: &BTreeSet<usize>) -> impl Iterator<Item = String> {
    ranges(slots).into_iter().flat_map(|(first, last)| [first.to_string(), last.to_string()])
}

/// Ends all moves.
pub(super) fn cancel(server: &ServerFlags) -> Result<(), String> {
    let state = ClusterState::read(&mut connect(server)?)?;
    let sources: BTreeSet<&str> = state.moves.iter().map(|one| one.from.as_str()).collect();
    if sources.is_empty() {
        dunlin_print::say!("no slots are being moved");
        return Ok(());
    }
    for shard in state.shards.iter().filter(|shard| sources.contains(shard.id.as_str())) {
        let Some(primary) = state.primary_of(shard).filter(|primary| primary.is_online()) else {
            dunlin_print::say!("shard {} is not served: its moves end with its failover", short(&shard.id));
            continue;
        };
        match ask(&mut connect_to(server, &primary.address)?, &["CLUSTER", "CANCELSLOTMIGRATIONS"]) {
            Ok(_) => dunlin_print::say!("the slots of shard {} stay where they are", short(&shard.id)),
            // The moves have ended by themselves.
            Err(error) if error.contains("No migrations ongoing") => {
                dunlin_print::say!("the moves of shard {} have ended", short(&shard.id));
            }
            Err(error) => return Err(format!("{}: {error}", primary.address)),
        }
    }
    dunlin_print::say!(
        "Where a shard has more data than its share by {TOLERANCE}%, the planner begins another move."
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_asked_for_in_runs() {
        let slots: BTreeSet<usize> = [7, 1, 2, 3, 9].into();
        assert_eq!(ranges(&slots), [(1, 3), (7, 7), (9, 9)]);
        assert!(ranges(&BTreeSet::new()).is_empty());
    }
}
