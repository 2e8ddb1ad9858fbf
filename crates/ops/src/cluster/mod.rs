//! `dunlin cluster`: a cluster in tables, why something waits, and the operator's requests. Any node is asked.

mod moves;
mod records;
mod recover;
mod state;
mod table;
mod waits;

use clap::{Parser, Subcommand};
use dunlin_bench::server_flags::ServerFlags;

use self::{
    state::{ClusterState, Node, Shard},
    table::{Cell, Tone, print},
};
use crate::server::{ask, connect};

const EXAMPLES: &str = "\
Examples:
  dunlin cluster status                     shards, moves, and why something waits
  dunlin cluster nodes -h db1 -p 7001       every node, as db1 knows it
  dunlin cluster replicas 2                 each shard is to have two replicas
  dunlin cluster drain 10.0.0.7:6379        before that machine is taken away
  dunlin cluster drain 3f2a --undo          it may stay
  dunlin cluster move 0-99,200 --to 3f2a    slots go to that node's shard, while they are used
  dunlin cluster move 5 --to 3f2a --pin     the planner leaves it there
  dunlin cluster move --cancel              all moves end, the slots stay
  dunlin cluster pin 5 --undo               the planner may move it again
  dunlin cluster recover 8f76               a shard whose members are gone: what is left of it
  dunlin cluster recover 8f76 --from 10.0.0.7:6379 --yes
  dunlin cluster records                    etcd was restored from a backup: what differs
  dunlin cluster records --keep nodes --yes the nodes are right

Any node can be asked: all read the same records in etcd. A node joins by itself when it is started:
  dunlin server --cluster-join etcd://ETCD:2379/NAME";

/// Shows a cluster, says why something waits, and takes the operator's requests.
#[derive(Debug, Parser)]
#[command(name = "cluster", bin_name = "dunlin cluster", version, disable_help_flag = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Show this help
    #[arg(long, global = true, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the shards, what moves, and why something waits
    #[command(disable_help_flag = true)]
    Status {
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Lists the nodes
    #[command(disable_help_flag = true)]
    Nodes {
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Has a node emptied, so that it can be taken away
    #[command(disable_help_flag = true)]
    Drain {
        #[command(flatten)]
        server: ServerFlags,
        /// Node: its id or the beginning of it, its address HOST:PORT, or its name
        #[arg(value_name = "NODE")]
        node: String,
        /// Keep the node after all
        #[arg(long)]
        undo: bool,
    },
    /// Moves slots to another shard while they are used, and shows how far that is
    #[command(disable_help_flag = true)]
    Move {
        #[command(flatten)]
        server: ServerFlags,
        /// Slots: numbers and ranges, as 0-99,200
        #[arg(value_name = "SLOTS", required_unless_present = "cancel", requires = "to")]
        slots: Option<String>,
        /// Shard that is to have them: its id or the beginning of it, or one of its nodes
        #[arg(long, value_name = "NODE|SHARD", requires = "slots")]
        to: Option<String>,
        /// Pin the slots, so that the planner leaves them there
        #[arg(long, requires = "slots")]
        pin: bool,
        /// Begin the move and do not wait for its end
        #[arg(long, requires = "slots")]
        no_wait: bool,
        /// End all moves that are under way: the slots stay where they are
        #[arg(long, conflicts_with = "slots")]
        cancel: bool,
    },
    /// Has the planner leave slots where they are, unless their node is drained
    #[command(disable_help_flag = true)]
    Pin {
        #[command(flatten)]
        server: ServerFlags,
        /// Slots: numbers and ranges, as 0-99,200
        #[arg(value_name = "SLOTS")]
        slots: String,
        /// The planner may move them again
        #[arg(long)]
        undo: bool,
    },
    /// Takes a shard back whose members are gone, with what is left of it: first without --yes, which shows what is lost
    #[command(disable_help_flag = true)]
    Recover {
        #[command(flatten)]
        server: ServerFlags,
        /// Shard: its id or the beginning of it, or one of its nodes
        #[arg(value_name = "SHARD")]
        shard: String,
        /// Node of the shard that is to lead it with what it has
        #[arg(long, value_name = "NODE", conflicts_with = "empty")]
        from: Option<String>,
        /// Give a shard up that has no node any more: other shards have its slots, without keys
        #[arg(long)]
        empty: bool,
        /// Shard that gets the slots (default: all shards, by their shares)
        #[arg(long, value_name = "SHARD", requires = "empty")]
        to: Option<String>,
        /// Do it
        #[arg(long)]
        yes: bool,
    },
    /// Shows which nodes do not obey etcd because it was restored from a backup, and decides which side is right
    #[command(disable_help_flag = true)]
    Records {
        #[command(flatten)]
        server: ServerFlags,
        /// Side that is right: `etcd`, or `nodes` whose records are written into etcd
        #[arg(long, value_name = "SIDE", value_parser = ["etcd", "nodes"])]
        keep: Option<String>,
        /// Node that is asked to do it (default: the first that does not obey)
        #[arg(long, value_name = "NODE", requires = "keep")]
        at: Option<String>,
        /// Do it
        #[arg(long)]
        yes: bool,
    },
    /// Says how many replicas each shard is to have
    #[command(disable_help_flag = true)]
    Replicas {
        #[command(flatten)]
        server: ServerFlags,
        /// Replicas of each shard, beside its primary
        #[arg(value_name = "N", value_parser = clap::value_parser!(u8).range(0..=16))]
        count: u8,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    match &arguments.command {
        Command::Status { server } => status(&ClusterState::read(&mut connect(server)?)?),
        Command::Nodes { server } => nodes(&ClusterState::read(&mut connect(server)?)?),
        Command::Drain { server, node, undo } => {
            let mut client = connect(server)?;
            let state = ClusterState::read(&mut client)?;
            let node = state.find(node)?;
            let mut words = vec!["CLUSTER", "DRAIN", &node.id];
            words.extend(undo.then_some("OFF"));
            ask(&mut client, &words)?;
            let named = format!("node {} ({})", short(&node.id), node.address);
            match undo {
                true => dunlin_print::say!("{named} may hold data again"),
                false => dunlin_print::say!(
                    "{named} is being drained: `dunlin cluster status` shows when it is empty"
                ),
            }
        }
        Command::Move { server, slots, to, pin, no_wait, cancel: _ } => {
            return match (slots, to) {
                (Some(slots), Some(to)) => moves::begin(server, slots, to, *pin, !no_wait),
                _ => moves::cancel(server),
            };
        }
        Command::Pin { server, slots, undo } => {
            let count = moves::pin(server, slots, !undo)?;
            match undo {
                true => dunlin_print::say!("{}: the planner may move what was pinned", plural(count, "slot")),
                false => {
                    dunlin_print::say!(
                        "{} pinned: they stay, unless their node is drained",
                        plural(count, "slot")
                    );
                }
            }
        }
        Command::Recover { server, shard, from, empty, to, yes } => {
            let decision = match (from, empty) {
                (Some(node), _) => recover::Decision::From(node),
                (None, true) => recover::Decision::Empty(to.as_deref()),
                (None, false) => recover::Decision::None,
            };
            return recover::run(server, shard, &decision, *yes);
        }
        Command::Records { server, keep, at, yes } => {
            return records::run(server, keep.as_deref(), at.as_deref(), *yes);
        }
        Command::Replicas { server, count } => {
            let mut client = connect(server)?;
            ask(&mut client, &["CLUSTER", "SETREPLICAS", &count.to_string()])?;
            let state = ClusterState::read(&mut client)?;
            let wanted = usize::from(*count);
            let lacking =
                state.shards.iter().filter(|shard| state.replicas_of(shard).count() < wanted).count();
            dunlin_print::say!("each shard is to have {}", plural(wanted, "replica"));
            if lacking > 0 {
                dunlin_print::say!(
                    "{lacking} of {} lack some: free nodes become their replicas, `dunlin cluster status` shows how far that is",
                    plural(state.shards.len(), "shard")
                );
            }
        }
    }
    Ok(())
}

/// The beginning of an id.
fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

/// `1 shard`, `2 shards`.
fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn status(state: &ClusterState) {
    let plain = table::paint(Tone::Strong, &state.name);
    dunlin_print::say!(
        "cluster {plain}: {}, {}, {} with {} wanted for each shard",
        plural(state.shards.len(), "shard"),
        plural(state.nodes.len(), "node"),
        state.durability,
        plural(state.replicas, "replica"),
    );
    if !state.shards.is_empty() {
        dunlin_print::say!();
        let rows = state.shards.iter().map(|shard| row_of(state, shard)).collect::<Vec<_>>();
        print(&["SHARD", "EPOCH", "SLOTS", "PRIMARY", "REPLICAS"], &rows);
    }
    if !state.moves.is_empty() {
        dunlin_print::say!();
        let rows = state.moves.iter().map(|one| {
            let cells =
                [short(&one.id), &one.slots, short(&one.from), short(&one.to), &one.state, &one.progress()];
            cells.map(Cell::plain).to_vec()
        });
        let titles = ["MOVE", "SLOTS", "FROM SHARD", "TO SHARD", "STATE", "PROGRESS"];
        print(&titles, &rows.collect::<Vec<_>>());
    }
    if !state.pinned.is_empty() {
        dunlin_print::say!("\npinned, the planner does not move them: slots {}", state.pinned);
    }
    let waits = waits::of(state);
    dunlin_print::say!();
    match waits.is_empty() {
        true => dunlin_print::say!("{}", table::paint(Tone::Good, "Nothing waits.")),
        false => {
            for (place, wait) in waits.iter().enumerate() {
                let mark = table::paint(if wait.is_grave { Tone::Bad } else { Tone::Attention }, "▸");
                dunlin_print::say!("{mark} {}", wait.what);
                // Several shards may need the same: the advice stands below the last of them.
                if waits.get(place + 1).is_none_or(|next| next.remedy != wait.remedy) {
                    dunlin_print::say!("  {}", wait.remedy);
                }
            }
        }
    }
}

fn row_of(state: &ClusterState, shard: &Shard) -> Vec<Cell> {
    let node = |node: &Node| match node.is_online() {
        true => node.address.clone(),
        false => format!("{} (gone)", node.address),
    };
    let primary = state.primary_of(shard);
    let replicas: Vec<&Node> = state.replicas_of(shard).collect();
    let all_online = replicas.iter().all(|replica| replica.is_online()) && replicas.len() >= state.replicas;
    let names: Vec<String> = replicas.into_iter().map(node).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    vec![
        Cell::plain(short(&shard.id)),
        Cell::plain(&shard.epoch),
        Cell::plain(&format!("{} ({})", shard.slots, shard.slot_count())),
        Cell::toned(
            &primary.map_or("unknown".to_owned(), node),
            if primary.is_some_and(Node::is_online) { Tone::Good } else { Tone::Bad },
        ),
        Cell::toned(&names, if all_online { Tone::Good } else { Tone::Attention }),
    ]
}

fn nodes(state: &ClusterState) {
    let rows: Vec<Vec<Cell>> = state
        .nodes
        .iter()
        .map(|node| {
            let or = |text: &str| Cell::plain(if text.is_empty() { "-" } else { text });
            let health = if node.is_online() { Tone::Good } else { Tone::Bad };
            let is_me = if node.id == state.me { "*" } else { "" };
            vec![
                Cell::plain(&format!("{}{is_me}", short(&node.id))),
                Cell::plain(&node.address),
                or(&node.name),
                Cell::toned(&node.health, health),
                Cell::toned(&node.state, if node.state == "active" { Tone::Plain } else { Tone::Attention }),
                Cell::plain(&node.role),
                or(short(&node.shard)),
                or(&node.host),
                or(&node.zone),
                or(&node.version),
            ]
        })
        .collect();
    print(&["NODE", "ADDRESS", "NAME", "HEALTH", "STATE", "ROLE", "SHARD", "HOST", "ZONE", "VERSION"], &rows);
}
