//! `dunlin cluster recover`: a shard whose members are gone goes on with what is left of it, on an operator's word.
//!
//! Nothing is done without `--yes`: what would be lost is shown first. The node that is to lead refuses if another one
//! could go on with all that was acknowledged.

use std::{
    thread,
    time::{Duration, Instant},
};

use dunlin_bench::server_flags::ServerFlags;
use dunlin_resp::Value;
use indicatif::HumanBytes;

use super::{
    plural, short,
    state::{ClusterState, Shard, list, number, word},
    table::{Cell, Tone, print},
};
use crate::server::{ask, connect, connect_to};

/// How long the node has to lead.
const TIME_MAX: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(200);

/// The operator's word.
pub(super) enum Decision<'a> {
    /// None yet.
    None,
    /// This node is to lead.
    From(&'a str),
    /// The shard is given up; this one gets its slots.
    Empty(Option<&'a str>),
}

pub(super) fn run(
    server: &ServerFlags,
    shard: &str,
    decision: &Decision<'_>,
    yes: bool,
) -> Result<(), String> {
    let state = ClusterState::read(&mut connect(server)?)?;
    let shard = state.find_shard(shard)?;
    match decision {
        Decision::None => show(server, &state, shard),
        Decision::From(node) => from(server, &state, shard, node, yes),
        Decision::Empty(to) => empty(server, &state, shard, *to, yes),
    }
}

/// Asks a node what it has.
fn report(server: &ServerFlags, address: &str) -> Result<Value, String> {
    let mut client = connect_to(server, address)?;
    ask(&mut client, &["CLUSTER", "RECOVER", "REPORT"]).map_err(|error| format!("{address}: {error}"))
}

/// Shows what each node of a shard has.
fn show(server: &ServerFlags, state: &ClusterState, shard: &Shard) -> Result<(), String> {
    dunlin_print::say!(
        "shard {} in epoch {}: {}",
        short(&shard.id),
        shard.epoch,
        plural(shard.slot_count(), "slot")
    );
    let mut advice = None;
    let rows = state.nodes.iter().filter(|node| node.shard == shard.id).map(|node| {
        let report =
            if node.is_online() { report(server, &node.address) } else { Err("it is gone".to_owned()) };
        let has = match &report {
            Ok(report) => describe(report),
            Err(why) => why.clone(),
        };
        if let Ok(report) = &report
            && word(report, "refusal").is_empty()
        {
            advice.get_or_insert_with(|| node.address.clone());
        }
        let tone = if node.is_online() { Tone::Good } else { Tone::Bad };
        vec![
            Cell::plain(short(&node.id)),
            Cell::toned(&node.address, tone),
            Cell::plain(&node.role),
            Cell::plain(&node.sync),
            Cell::plain(&has),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    print(&["NODE", "ADDRESS", "ROLE", "SYNC", "HAS"], &rows);
    dunlin_print::say!();
    let name = short(&shard.id);
    match advice {
        Some(address) => {
            dunlin_print::say!("`dunlin cluster recover {name} --from {address}` says what is lost then.")
        }
        None if state.nodes.iter().any(|node| node.shard == shard.id && node.is_online()) => {
            dunlin_print::say!(
                "No node may take it: `--from NODE` says why. `dunlin cluster status` says what waits."
            );
        }
        None => dunlin_print::say!(
            "Start one of its nodes again in its directory. If none ever comes back, `dunlin cluster recover {name} --empty` gives its slots to other shards, without keys."
        ),
    }
    Ok(())
}

/// Describes a node's data in a few words.
fn describe(report: &Value) -> String {
    let offset = number(report, "offset").unwrap_or(0);
    match word(report, "history").as_str() {
        "current" => format!("the data up to offset {offset}"),
        "previous" => format!("the data of the epochs before, up to offset {offset}"),
        "none" => "no whole copy of the data".to_owned(),
        _ => format!("data of another history, up to offset {offset}"),
    }
}

/// The losses if a node leads with its data.
fn losses(report: &Value) -> Vec<String> {
    let number = |name: &str| number(report, name);
    let offset = number("offset").unwrap_or(0);
    let mut lines = Vec::new();
    match word(report, "history").as_str() {
        "current" => match (number("committed"), number("heard-ms")) {
            (Some(committed), Some(ago_ms)) => {
                let behind = committed.saturating_sub(offset);
                let ago = ago_ms as f64 / 1000.0;
                lines.push(match behind {
                    0 => format!(
                        "it has all that its primary had acknowledged {ago:.1} s ago, when it was heard of last; what came later is lost"
                    ),
                    _ => format!(
                        "at least {} of changes are lost: {ago:.1} s ago, when the primary was heard of last, it had acknowledged up to offset {committed}",
                        HumanBytes(behind)
                    ),
                });
            }
            _ => lines.push(
                "nobody knows how much is lost: this process has not heard of the primary in this epoch"
                    .to_owned(),
            ),
        },
        "previous" => lines.push(format!(
            "everything since the last failover is lost, at offset {}",
            number("history-from").unwrap_or(0)
        )),
        _ => lines.push("its data are of an earlier history: everything since then is lost".to_owned()),
    }
    for node in list(report, "nodes") {
        let id = word(node, "id");
        let at_start = self::number(node, "offset-at-start");
        if word(node, "there") == "no" && word(node, "sync") == "in-sync" {
            let had =
                at_start.map_or(String::new(), |offset| format!(", which had {offset} when it started last"));
            lines.push(format!(
                "node {}{had}, loses what it has beyond when it comes back. See to it that its process has ended",
                short(&id)
            ));
        } else if word(node, "there") == "yes" && at_start.is_some_and(|has| has > offset) {
            lines.push(format!("node {} is there and may have more: {}", short(&id), at_start.unwrap_or(0)));
        }
    }
    lines
}

fn from(
    server: &ServerFlags,
    state: &ClusterState,
    shard: &Shard,
    node: &str,
    yes: bool,
) -> Result<(), String> {
    let node = state.find(node)?;
    if node.shard != shard.id {
        return Err(format!("node {} is no part of shard {}", short(&node.id), short(&shard.id)));
    }
    let report = report(server, &node.address)?;
    let refusal = word(&report, "refusal");
    if !refusal.is_empty() {
        return Err(format!("shard {} is not to be recovered: {refusal}", short(&shard.id)));
    }
    let epoch = number(&report, "epoch").unwrap_or(0).to_string();
    dunlin_print::say!(
        "shard {} in epoch {epoch} ({}) goes on at node {} ({}) with {}.",
        short(&shard.id),
        plural(shard.slot_count(), "slot"),
        short(&node.id),
        node.address,
        describe(&report)
    );
    losses(&report).iter().for_each(|line| dunlin_print::say!("▸ {line}"));
    if !yes {
        return Err("nothing was changed: say --yes to have it done".to_owned());
    }
    let mut client = connect_to(server, &node.address)?;
    ask(&mut client, &["CLUSTER", "RECOVER", "HERE", &epoch])?;
    let until = Instant::now() + TIME_MAX;
    loop {
        thread::sleep(PAUSE);
        let now = ClusterState::read(&mut client)?;
        let taken = now.shards.iter().find(|known| known.id == shard.id);
        let leads =
            taken.and_then(|shard| now.primary_of(shard)).is_some_and(|primary| primary.id == node.id);
        if let Some(taken) = taken.filter(|taken| leads && taken.epoch != epoch) {
            dunlin_print::say!("node {} leads the shard in epoch {}", short(&node.id), taken.epoch);
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("node {} does not lead yet: its log says why", short(&node.id)));
        }
    }
}

fn empty(
    server: &ServerFlags,
    state: &ClusterState,
    shard: &Shard,
    to: Option<&str>,
    yes: bool,
) -> Result<(), String> {
    let name = short(&shard.id);
    if let Some(node) = state.nodes.iter().find(|node| node.shard == shard.id && node.is_online()) {
        return Err(format!(
            "node {} ({}) of shard {name} is there: recover it --from there",
            short(&node.id),
            node.address
        ));
    }
    let successor = to.map(|to| state.find_shard(to)).transpose()?;
    let who = successor.map_or("all other shards, by their shares".to_owned(), |successor| {
        format!("shard {}", short(&successor.id))
    });
    dunlin_print::say!(
        "shard {name} in epoch {} ends: its {} go to {who}, without keys.",
        shard.epoch,
        plural(shard.slot_count(), "slot")
    );
    dunlin_print::say!("▸ everything in these slots is lost to the cluster");
    dunlin_print::say!(
        "▸ its nodes are forgotten; one that is started again in its directory is refused, and keeps its data"
    );
    if !yes {
        return Err("nothing was changed: say --yes to have it done".to_owned());
    }
    let mut words = vec!["CLUSTER", "RECOVER", "EMPTY", &shard.id, &shard.epoch];
    words.extend(successor.into_iter().flat_map(|successor| ["TO", &successor.id]));
    ask(&mut connect(server)?, &words)?;
    dunlin_print::say!("shard {name} has ended");
    Ok(())
}
