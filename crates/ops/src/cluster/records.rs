//! `dunlin cluster records`: etcd was restored from a backup, and nodes have obeyed more than it has. Which side is right?
//!
//! Nothing is done without `--yes`: what differs is shown first.

use dunlin_bench::server_flags::ServerFlags;
use dunlin_resp::Value;

use super::{
    plural, short,
    state::{ClusterState, list, word},
    table::{Cell, Tone, print},
};
use crate::server::{ask, connect, connect_to, text};

/// Asks a node whether it obeys the records.
fn report(server: &ServerFlags, address: &str) -> Result<Value, String> {
    let mut client = connect_to(server, address)?;
    ask(&mut client, &["CLUSTER", "RECOVER", "RECORDS"]).map_err(|error| format!("{address}: {error}"))
}

fn differences(report: &Value) -> Vec<String> {
    list(report, "differences").iter().filter_map(Value::as_bytes).map(text).collect()
}

pub(super) fn run(
    server: &ServerFlags,
    keep: Option<&str>,
    at: Option<&str>,
    yes: bool,
) -> Result<(), String> {
    let state = ClusterState::read(&mut connect(server)?)?;
    let mut strays = Vec::new();
    let rows = state.nodes.iter().map(|node| {
        let report = report(server, &node.address);
        let (tone, says) = match &report {
            Ok(report) if word(report, "obeys") == "yes" => (Tone::Good, "obeys etcd".to_owned()),
            Ok(report) => {
                strays.push((node, differences(report)));
                (Tone::Bad, "does not obey etcd".to_owned())
            }
            Err(why) => (Tone::Attention, why.clone()),
        };
        vec![Cell::plain(short(&node.id)), Cell::plain(&node.address), Cell::toned(&says, tone)]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    print(&["NODE", "ADDRESS", "RECORDS"], &rows);
    let Some((first, _)) = strays.first() else {
        return match keep {
            None => Ok(()),
            Some(_) => {
                Err("every node that answers obeys the records: there is nothing to decide".to_owned())
            }
        };
    };
    for (node, lines) in &strays {
        dunlin_print::say!("\n{} ({}) differs from etcd:", short(&node.id), node.address);
        lines.iter().for_each(|line| dunlin_print::say!("▸ {line}"));
    }
    dunlin_print::say!();
    let Some(side) = keep else {
        dunlin_print::say!(
            "etcd was restored from a backup that is older than what these nodes have obeyed. They keep their data, and change no record. Restore a newer backup, or say which side is right:"
        );
        dunlin_print::say!(
            "`dunlin cluster records --keep nodes [--at NODE]` writes what a node has obeyed into etcd: what was acknowledged under the restored records since is lost."
        );
        dunlin_print::say!(
            "`dunlin cluster records --keep etcd` has the nodes obey etcd: what they have acknowledged beyond it is lost."
        );
        return Ok(());
    };
    let chosen = match at {
        None => first.address.clone(),
        Some(at) => state.find(at)?.address.clone(),
    };
    let (word, what) = match side {
        "etcd" => ("ETCD", "all nodes obey etcd, and drop what they have beyond it".to_owned()),
        _ => ("NODE", format!("etcd gets the records of {chosen}, and all nodes drop what is not theirs")),
    };
    dunlin_print::say!("▸ {what}");
    if !yes {
        return Err("nothing was changed: say --yes to have it done".to_owned());
    }
    ask(&mut connect_to(server, &chosen)?, &["CLUSTER", "RECOVER", "RECORDS", "KEEP", word])?;
    dunlin_print::say!("{}: they follow within seconds", plural(strays.len(), "node"));
    Ok(())
}
