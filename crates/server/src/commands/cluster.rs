//! Commands of a cluster's nodes and clients, in a server that is none: each is refused as redis-server refuses it with
//! `cluster-enabled no`, after its arity has been checked. Client libraries ask for some of them to learn just that.
//!
//! READONLY and READWRITE are for clients that take redirections, too (`CLIENT CAPA redirect`), as in Valkey.

use dunlin_engine::command::{Args, Arity, Command, CommandError, CommandResult, Flags, Group, Run};
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::{Handler, ServerContext},
    session::ClientFlags,
};

pub(super) const COMMANDS: &[Command] = &[ASKING, CLUSTER, READONLY, READWRITE];

/// Of the subcommands that change the cluster.
const CHANGE: Flags = Flags::ADMIN.and(Flags::STALE).and(Flags::NO_ASYNC_LOADING);
/// Of those that administrators read with.
const INSPECTION: Flags = Flags::ADMIN.and(Flags::STALE);
/// Of the commands that choose where a connection may read.
const CONNECTION: Flags = Flags::FAST.and(Flags::CONNECTION);

const REFUSED: Command =
    Command { group: Group::Cluster, run: Run::Host(&Handler(refuse)), ..Command::DEFAULT };

const ASKING: Command = Command {
    name: "asking",
    summary: "Lets the next command reach a slot that is being imported: refused, there is no cluster.",
    since: "3.0.0",
    arity: Arity::Exactly(1),
    flags: CONNECTION,
    ..REFUSED
};

const READONLY: Command = Command {
    name: "readonly",
    summary: "Has a replica answer reads of a client that takes redirections (`CLIENT CAPA redirect`). Others are refused: there is no cluster.",
    since: "3.0.0",
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(read_only)),
    flags: CONNECTION.and(Flags::LOADING).and(Flags::STALE),
    ..REFUSED
};

const READWRITE: Command = Command {
    name: "readwrite",
    summary: "Ends what READONLY began. Clients that take no redirections are refused: there is no cluster.",
    since: "3.0.0",
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(read_write)),
    flags: CONNECTION.and(Flags::LOADING).and(Flags::STALE),
    ..REFUSED
};

const CLUSTER: Command = Command {
    name: "cluster",
    summary: "Asks and administers the nodes of a cluster: refused, there is no cluster.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[
        row("addslots", "3.0.0", Arity::AtLeast(3), CHANGE, "Gives slots to the node."),
        row("addslotsrange", "7.0.0", Arity::AtLeast(4), CHANGE, "Gives ranges of slots to the node."),
        varying("bumpepoch", "3.0.0", Arity::Exactly(2), CHANGE, "Advances the node's configuration epoch."),
        varying(
            "count-failure-reports",
            "3.0.0",
            Arity::Exactly(3),
            INSPECTION,
            "Counts who reports that a node fails.",
        ),
        row("countkeysinslot", "3.0.0", Arity::Exactly(3), Flags::STALE, "Counts the keys of a slot."),
        row("delslots", "3.0.0", Arity::AtLeast(3), CHANGE, "Takes slots away from the node."),
        row("delslotsrange", "7.0.0", Arity::AtLeast(4), CHANGE, "Takes ranges of slots away from the node."),
        row("failover", "3.0.0", Arity::AtLeast(2), CHANGE, "Makes a replica the primary of its slots."),
        row("flushslots", "3.0.0", Arity::Exactly(2), CHANGE, "Takes all slots away from the node."),
        row("forget", "3.0.0", Arity::Exactly(3), CHANGE, "Removes a node from the node's table."),
        varying("getkeysinslot", "3.0.0", Arity::Exactly(4), Flags::STALE, "Returns keys of a slot."),
        row("help", "5.0.0", Arity::Exactly(2), Flags::LOADING.and(Flags::STALE), "Shows the help."),
        varying("info", "3.0.0", Arity::Exactly(2), Flags::STALE, "Describes the cluster's state."),
        row("keyslot", "3.0.0", Arity::Exactly(3), Flags::STALE, "Returns the slot of a key."),
        varying("links", "7.0.0", Arity::Exactly(2), Flags::STALE, "Lists the connections between nodes."),
        row("meet", "3.0.0", Arity::AtLeast(4), CHANGE, "Introduces another node."),
        row("myid", "3.0.0", Arity::Exactly(2), Flags::STALE, "Returns the node's identifier."),
        varying(
            "myshardid",
            "7.2.0",
            Arity::Exactly(2),
            Flags::LOADING.and(Flags::STALE),
            "Returns the identifier of the node's shard.",
        ),
        varying("nodes", "3.0.0", Arity::Exactly(2), Flags::STALE, "Lists the nodes with their slots."),
        varying("replicas", "5.0.0", Arity::Exactly(3), INSPECTION, "Lists the replicas of a primary."),
        row("replicate", "3.0.0", Arity::Exactly(3), CHANGE, "Makes the node a replica of another one."),
        row(
            "reset",
            "3.0.0",
            Arity::AtLeast(2),
            INSPECTION.and(Flags::NO_SCRIPT),
            "Makes the node forget its cluster.",
        ),
        row("saveconfig", "3.0.0", Arity::Exactly(2), CHANGE, "Writes the node's configuration to its file."),
        row(
            "set-config-epoch",
            "3.0.0",
            Arity::Exactly(3),
            CHANGE,
            "Sets the configuration epoch of a new node.",
        ),
        row("setslot", "3.0.0", Arity::AtLeast(4), CHANGE, "Moves a slot from node to node."),
        varying(
            "shards",
            "7.0.0",
            Arity::Exactly(2),
            Flags::STALE,
            "Lists the shards with their nodes and slots.",
        ),
        Command {
            deprecated: Some(("5.0.0", "CLUSTER REPLICAS")),
            ..varying("slaves", "3.0.0", Arity::Exactly(3), INSPECTION, "Lists the replicas of a primary.")
        },
        Command {
            deprecated: Some(("7.0.0", "CLUSTER SHARDS")),
            ..varying("slots", "3.0.0", Arity::Exactly(2), Flags::STALE, "Lists which node has which slots.")
        },
    ],
    ..Command::DEFAULT
};

/// A subcommand whose reply differs from time to time.
const fn varying(
    name: &'static str,
    since: &'static str,
    arity: Arity,
    flags: Flags,
    summary: &'static str,
) -> Command {
    Command { tips: &["nondeterministic_output"], ..row(name, since, arity, flags, summary) }
}

/// A subcommand.
const fn row(
    name: &'static str,
    since: &'static str,
    arity: Arity,
    flags: Flags,
    summary: &'static str,
) -> Command {
    Command { name, since, arity, flags, summary, ..REFUSED }
}

fn read_only(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    set_reads_replicas(context, args, reply, true)
}

fn read_write(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    set_reads_replicas(context, args, reply, false)
}

fn set_reads_replicas(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    on: bool,
) -> CommandResult {
    if !context.session.flags.has(ClientFlags::CAN_REDIRECT) {
        return refuse(context, args, reply);
    }
    context.session.flags.set(ClientFlags::READS_REPLICAS, on);
    reply.ok();
    Ok(())
}

fn refuse(_: &mut ServerContext<'_, '_>, _: &mut Args<'_>, _: &mut ReplyBuffer) -> CommandResult {
    Err(CommandError::text("ERR This instance has cluster support disabled"))
}
