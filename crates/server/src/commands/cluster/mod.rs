//! CLUSTER, CLUSTERSCAN, ASKING, READONLY and READWRITE.
//!
//! A server that is not a node of a cluster refuses them as redis-server does with `cluster-enabled no`, after their
//! arity has been checked. Client libraries ask for some of them to learn just that. READONLY and READWRITE are for
//! clients that take redirections, too (`CLIENT CAPA redirect`), as in Valkey.
//!
//! Slots are not assigned by hand: the commands for that are refused with a line that says so.

pub(super) mod cluster_wide;
mod describe;
mod migrate;
mod nodes;
mod recover;
mod sentinel;
mod status;

use std::sync::Arc;

use dunlin_engine::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    commands::slots::{self, NO_CLUSTER},
    keyspace::slot,
};
use dunlin_resp::ReplyBuffer;

use crate::{
    cluster::{endpoints, route::EndpointRule, topology::Topology},
    executor::{Handler, ServerContext},
    session::ClientFlags,
};

pub(super) const COMMANDS: &[Command] =
    &[ASKING, CLUSTER, CLUSTERSCAN, READONLY, READWRITE, sentinel::SENTINEL];

/// Flags of the subcommands that change the cluster.
const CHANGE: Flags = Flags::ADMIN.and(Flags::STALE).and(Flags::NO_ASYNC_LOADING);
/// Flags of those that administrators read with.
const INSPECTION: Flags = Flags::ADMIN.and(Flags::STALE);
/// Flags of the commands that choose where a connection may read.
const CONNECTION: Flags = Flags::FAST.and(Flags::CONNECTION);

const ASKING: Command = Command {
    name: "asking",
    summary: "Lets the next command reach a slot that is being imported. No client needs it: a slot changes hands at once.",
    since: "3.0.0",
    group: Group::Cluster,
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(asking)),
    flags: CONNECTION,
    ..Command::DEFAULT
};

const READONLY: Command = Command {
    name: "readonly",
    summary: "Has a replica answer reads of this client, which is redirected otherwise.",
    since: "3.0.0",
    group: Group::Cluster,
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(|context, args, reply| set_reads_replicas(context, args, reply, true))),
    flags: CONNECTION.and(Flags::LOADING).and(Flags::STALE),
    ..Command::DEFAULT
};

const READWRITE: Command = Command {
    name: "readwrite",
    summary: "Ends what READONLY began.",
    since: "3.0.0",
    group: Group::Cluster,
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(|context, args, reply| set_reads_replicas(context, args, reply, false))),
    flags: CONNECTION.and(Flags::LOADING).and(Flags::STALE),
    ..Command::DEFAULT
};

const CLUSTERSCAN: Command = Command {
    name: "clusterscan",
    summary: "Iterates over the keys of all nodes, one run of slots after the other. Its cursor says which node is next.",
    since: "9.1.0",
    group: Group::Cluster,
    complexity: "O(COUNT) a call; O(n) for n keys from the first call to the last",
    arity: Arity::AtLeast(2),
    run: Run::Keyspace(slots::scan),
    flags: Flags::KEYSPACE.and(Flags::READ_ONLY),
    keys: &[KeySpec::at(1).not_key()],
    args: &[
        Argument::string("cursor"),
        Argument::pattern("match-pattern").after("MATCH").optional(),
        Argument::integer("count").after("COUNT").optional(),
        Argument::string("type").after("TYPE").optional(),
        Argument::integer("slot").after("SLOT").optional(),
    ],
    tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
    ..Command::DEFAULT
};

const CLUSTER: Command = Command {
    name: "cluster",
    summary: "Describes the nodes and slots of a cluster.",
    since: "3.0.0",
    group: Group::Cluster,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[
        by_hand("addslots", "3.0.0", Arity::AtLeast(3), CHANGE, "Gives slots to the node."),
        by_hand("addslotsrange", "7.0.0", Arity::AtLeast(4), CHANGE, "Gives ranges of slots to the node."),
        varying(by_hand(
            "bumpepoch",
            "3.0.0",
            Arity::Exactly(2),
            CHANGE,
            "Advances the node's configuration epoch.",
        )),
        row(
            "cancelslotmigrations",
            "9.0.0",
            Arity::Exactly(2),
            CHANGE,
            "Ends the moves of slots from and to the node's shard: they stay where they are.",
            &Handler(migrate::cancel),
        ),
        varying(row(
            "count-failure-reports",
            "3.0.0",
            Arity::Exactly(3),
            INSPECTION,
            "Counts reports that a node fails: always 0, because etcd knows which nodes are there.",
            &Handler(nodes::failure_reports),
        )),
        Command {
            complexity: "O(n) for n keys of a part of the data set",
            args: &[Argument::integer("slot")],
            ..walk(
                "countkeysinslot",
                "3.0.0",
                Arity::Exactly(3),
                "Counts the keys of a slot.",
                Run::Keyspace(slots::count_keys),
            )
        },
        by_hand("delslots", "3.0.0", Arity::AtLeast(3), CHANGE, "Takes slots away from the node."),
        by_hand(
            "delslotsrange",
            "7.0.0",
            Arity::AtLeast(4),
            CHANGE,
            "Takes ranges of slots away from the node.",
        ),
        Command {
            args: &[Argument::string("node-id"), Argument::word("off", "OFF").optional()],
            ..row(
                "drain",
                "7.0.0",
                Arity::AtLeast(3),
                CHANGE,
                "Empties a node, so that it can be taken away, or keeps it.",
                &Handler(status::drain),
            )
        },
        Command {
            args: &[Argument::one_of(
                "options",
                &[Argument::word("force", "FORCE"), Argument::word("takeover", "TAKEOVER")],
            )
            .optional()],
            ..row(
                "failover",
                "3.0.0",
                Arity::AtLeast(2),
                CHANGE,
                "Makes a replica the primary of its slots.",
                &Handler(nodes::failover),
            )
        },
        absent(
            "flushslot",
            "9.0.0",
            Arity::AtLeast(3),
            Flags::WRITE.and(Flags::ADMIN).and(Flags::KEYSPACE).and(Flags::NO_ASYNC_LOADING),
            "Removes all keys of a slot.",
        ),
        by_hand("flushslots", "3.0.0", Arity::Exactly(2), CHANGE, "Takes all slots away from the node."),
        Command {
            args: &[Argument::string("node-id")],
            ..row(
                "forget",
                "3.0.0",
                Arity::Exactly(3),
                CHANGE,
                "Removes a node from the cluster.",
                &Handler(nodes::forget),
            )
        },
        Command {
            complexity: "O(n) for n keys of a part of the data set",
            args: &[Argument::integer("slot"), Argument::integer("count")],
            ..varying(walk(
                "getkeysinslot",
                "3.0.0",
                Arity::Exactly(4),
                "Returns keys of a slot.",
                Run::Keyspace(slots::keys),
            ))
        },
        row(
            "getslotmigrations",
            "9.0.0",
            Arity::Exactly(2),
            CHANGE,
            "Lists moves of slots.",
            &Handler(migrate::list),
        ),
        row(
            "help",
            "5.0.0",
            Arity::Exactly(2),
            Flags::LOADING.and(Flags::STALE),
            "Shows the help.",
            &Handler(help),
        ),
        Command {
            args: &[
                Argument::one_of(
                    "title",
                    &[
                        Argument::word("begin", "BEGIN"),
                        Argument::word("place", "PLACE"),
                        Argument::word("owned", "OWNED"),
                    ],
                ),
                Argument::string("value"),
            ],
            ..row(
                "import",
                "9.0.0",
                Arity::Exactly(4),
                Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::NO_MULTI),
                "Used by nodes: says that keys of slots follow, and asks how far they have come.",
                &Handler(migrate::import),
            )
        },
        varying(row(
            "info",
            "3.0.0",
            Arity::Exactly(2),
            Flags::STALE,
            "Describes the cluster's state.",
            &Handler(describe::info),
        )),
        Command {
            args: &[Argument::string("key")],
            ..row(
                "keyslot",
                "3.0.0",
                Arity::Exactly(3),
                Flags::STALE,
                "Returns the slot of a key.",
                &Handler(key_slot),
            )
        },
        varying(row(
            "links",
            "7.0.0",
            Arity::Exactly(2),
            Flags::STALE,
            "Lists the connections between nodes: none, they meet in etcd.",
            &Handler(nodes::empty_list),
        )),
        Command {
            args: &[
                Argument::string("ip"),
                Argument::integer("port"),
                Argument::integer("cluster-bus-port").optional(),
            ],
            ..row(
                "meet",
                "3.0.0",
                Arity::AtLeast(4),
                CHANGE,
                "Says whether a node is of the cluster. Nodes join by themselves.",
                &Handler(nodes::meet),
            )
        },
        Command {
            args: &[Argument::block(
                "migration",
                &[
                    Argument::block(
                        "range",
                        &[Argument::integer("start-slot"), Argument::integer("end-slot")],
                    )
                    .after("SLOTSRANGE")
                    .multiple(),
                    Argument::string("node-id").after("NODE"),
                ],
            )
            .multiple()],
            ..row(
                "migrateslots",
                "9.0.0",
                Arity::AtLeast(4),
                CHANGE,
                "Moves slots of the node to another shard, while they are used.",
                &Handler(migrate::migrate_slots),
            )
        },
        row(
            "myid",
            "3.0.0",
            Arity::Exactly(2),
            Flags::STALE,
            "Returns the node's identifier.",
            &Handler(nodes::my_id),
        ),
        varying(row(
            "myshardid",
            "7.2.0",
            Arity::Exactly(2),
            Flags::LOADING.and(Flags::STALE),
            "Returns the identifier of the node's shard.",
            &Handler(nodes::my_shard_id),
        )),
        varying(row(
            "nodes",
            "3.0.0",
            Arity::Exactly(2),
            Flags::STALE,
            "Lists the nodes with their slots.",
            &Handler(nodes::list),
        )),
        pins("pin", "Makes the planner leave slots where they are, unless their node is drained."),
        varying(Command {
            args: &[Argument::one_of(
                "decision",
                &[
                    Argument::word("report", "REPORT"),
                    Argument::integer("here-epoch").after("HERE"),
                    Argument::block(
                        "empty",
                        &[
                            Argument::string("shard-id"),
                            Argument::integer("epoch"),
                            Argument::string("successor-shard-id").after("TO").optional(),
                        ],
                    )
                    .after("EMPTY"),
                ],
            )],
            ..row(
                "recover",
                "7.0.0",
                Arity::AtLeast(3),
                CHANGE,
                "Lets the node lead its shard with what it has, after its members are gone, or gives a shard without nodes up.",
                &Handler(recover::recover),
            )
        }),
        Command {
            args: &[
                Argument::one_of(
                    "title",
                    &[Argument::word("message", "MESSAGE"), Argument::word("smessage", "SMESSAGE")],
                ),
                Argument::string("channel"),
                Argument::string("message"),
            ],
            ..row(
                "relay",
                "7.0.0",
                Arity::Exactly(5),
                Flags::ADMIN.and(Flags::STALE).and(Flags::LOADING),
                "Used by nodes: sends a message of another node to the subscribers of this one.",
                &Handler(nodes::relay),
            )
        },
        varying(row(
            "replicas",
            "5.0.0",
            Arity::Exactly(3),
            INSPECTION,
            "Lists the replicas of a primary.",
            &Handler(nodes::replicas),
        )),
        by_hand("replicate", "3.0.0", Arity::Exactly(3), CHANGE, "Makes the node a replica of another one."),
        Command {
            args: &[Argument::one_of(
                "reset-type",
                &[Argument::word("hard", "HARD"), Argument::word("soft", "SOFT")],
            )
            .optional()],
            ..row(
                "reset",
                "3.0.0",
                Arity::AtLeast(2),
                INSPECTION.and(Flags::NO_SCRIPT),
                "Has a node that is drained leave the cluster, and end.",
                &Handler(nodes::reset),
            )
        },
        row(
            "saveconfig",
            "3.0.0",
            Arity::Exactly(2),
            CHANGE,
            "Writes the node's configuration to its file. etcd has it always.",
            &Handler(save_config),
        ),
        by_hand(
            "set-config-epoch",
            "3.0.0",
            Arity::Exactly(3),
            CHANGE,
            "Sets the configuration epoch of a new node.",
        ),
        Command {
            args: &[Argument::integer("count")],
            ..row(
                "setreplicas",
                "7.0.0",
                Arity::Exactly(3),
                CHANGE,
                "Says how many replicas each shard is to have.",
                &Handler(status::set_replicas),
            )
        },
        Command {
            args: &[
                Argument::integer("slot"),
                Argument::one_of(
                    "subcommand",
                    &[
                        Argument::string("importing").after("IMPORTING"),
                        Argument::string("migrating").after("MIGRATING"),
                        Argument::string("node").after("NODE"),
                        Argument::word("stable", "STABLE"),
                    ],
                ),
            ],
            ..row(
                "setslot",
                "3.0.0",
                Arity::AtLeast(4),
                CHANGE,
                "Moves a slot with its keys (MIGRATING), and confirms whose it is.",
                &Handler(migrate::set_slot),
            )
        },
        varying(row(
            "shards",
            "7.0.0",
            Arity::Exactly(2),
            Flags::STALE,
            "Lists the shards with their nodes and slots.",
            &Handler(describe::shards),
        )),
        Command {
            deprecated: Some(("5.0.0", "CLUSTER REPLICAS")),
            ..varying(row(
                "slaves",
                "3.0.0",
                Arity::Exactly(3),
                INSPECTION,
                "Lists the replicas of a primary.",
                &Handler(nodes::replicas),
            ))
        },
        Command {
            complexity: "O(n) for n keys",
            tips: &["nondeterministic_output", "request_policy:all_shards"],
            args: &[Argument::one_of(
                "filter",
                &[
                    Argument::block(
                        "slotsrange",
                        &[Argument::integer("start-slot"), Argument::integer("end-slot")],
                    )
                    .after("SLOTSRANGE"),
                    Argument::block(
                        "orderby",
                        &[
                            Argument::string("metric"),
                            Argument::integer("limit").after("LIMIT").optional(),
                            Argument::one_of(
                                "order",
                                &[Argument::word("asc", "ASC"), Argument::word("desc", "DESC")],
                            )
                            .optional(),
                        ],
                    )
                    .after("ORDERBY"),
                ],
            )],
            flags: Flags::LOADING.and(Flags::STALE),
            ..walk(
                "slot-stats",
                "8.0.0",
                Arity::AtLeast(4),
                "Returns how many keys the node's slots have.",
                Run::Keyspace(slots::statistics),
            )
        },
        Command {
            deprecated: Some(("7.0.0", "CLUSTER SHARDS")),
            ..varying(row(
                "slots",
                "3.0.0",
                Arity::Exactly(2),
                Flags::STALE,
                "Lists which node has which slots.",
                &Handler(describe::slots),
            ))
        },
        varying(row(
            "status",
            "7.0.0",
            Arity::Exactly(2),
            INSPECTION,
            "Describes the cluster for `dunlin cluster`.",
            &Handler(status::status),
        )),
        Command {
            args: &[Argument { multiple: true, ..Argument::string("word") }],
            ..row(
                "tell",
                "7.0.0",
                Arity::AtLeast(8),
                Flags::ADMIN
                    .and(Flags::STALE)
                    .and(Flags::LOADING)
                    .and(Flags::NO_SCRIPT)
                    .and(Flags::NO_MULTI)
                    .and(Flags::ALLOW_BUSY)
                    .and(Flags::UNPAUSED),
                "Used by nodes: a message between the members of a shard.",
                &Handler(nodes::tell),
            )
        },
        pins("unpin", "Lets the planner move pinned slots again, if that balances the shards."),
    ],
    ..Command::DEFAULT
};

/// A subcommand.
const fn row(
    name: &'static str,
    since: &'static str,
    arity: Arity,
    flags: Flags,
    summary: &'static str,
    handler: &'static Handler,
) -> Command {
    Command {
        name,
        since,
        arity,
        flags,
        summary,
        group: Group::Cluster,
        run: Run::Host(handler),
        ..Command::DEFAULT
    }
}

const SLOT_RANGES: &[Argument] =
    &[Argument::block("range", &[Argument::integer("start-slot"), Argument::integer("end-slot")]).multiple()];

/// A subcommand about slots that the planner leaves where they are.
const fn pins(name: &'static str, summary: &'static str) -> Command {
    Command {
        args: SLOT_RANGES,
        ..row(name, "7.0.0", Arity::AtLeast(4), CHANGE, summary, &Handler(status::change_pins))
    }
}

/// A subcommand that looks at keys.
const fn walk(
    name: &'static str,
    since: &'static str,
    arity: Arity,
    summary: &'static str,
    run: Run,
) -> Command {
    Command { run, ..row(name, since, arity, Flags::STALE, summary, &Handler(by_itself)) }
}

/// A subcommand that elsewhere does by hand what a cluster does by itself here.
const fn by_hand(
    name: &'static str,
    since: &'static str,
    arity: Arity,
    flags: Flags,
    summary: &'static str,
) -> Command {
    row(name, since, arity, flags, summary, &Handler(by_itself))
}

/// A subcommand that is still to come.
const fn absent(
    name: &'static str,
    since: &'static str,
    arity: Arity,
    flags: Flags,
    summary: &'static str,
) -> Command {
    row(name, since, arity, flags, summary, &Handler(not_available))
}

/// A subcommand whose reply differs from time to time.
const fn varying(command: Command) -> Command {
    Command { tips: &["nondeterministic_output"], ..command }
}

/// The cluster as the worker knows it, or the refusal of a server that is not a node of one.
fn topology(context: &ServerContext<'_, '_>) -> Result<Arc<Topology>, CommandError> {
    context.executor.topology.topology().cloned().ok_or(NO_CLUSTER)
}

/// How the client is sent to other nodes.
fn endpoints_for(context: &ServerContext<'_, '_>) -> EndpointRule {
    endpoints(context.executor.config.config(), context.session.client.is_tls)
}

/// The word that names the subcommand, for refusals.
fn subcommand(args: &Args<'_>) -> String {
    String::from_utf8_lossy(args.words()[1]).to_uppercase()
}

fn by_itself(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, _: &mut ReplyBuffer) -> CommandResult {
    topology(context)?;
    let subcommand = subcommand(args);
    let instead = match subcommand.as_str() {
        "REPLICATE" => "CLUSTER SETREPLICAS says how many replicas each shard has",
        "ADDSLOTS" | "ADDSLOTSRANGE" | "DELSLOTS" | "DELSLOTSRANGE" | "FLUSHSLOTS" => {
            "CLUSTER MIGRATESLOTS moves slots, CLUSTER DRAIN empties a node"
        }
        _ => "the cluster arranges nodes and slots by itself",
    };
    Err(CommandError::owned(format!(
        "ERR CLUSTER {subcommand} is not for hands: {instead} (docs/cluster.md)"
    )))
}

fn not_available(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    _: &mut ReplyBuffer,
) -> CommandResult {
    topology(context)?;
    Err(CommandError::owned(format!("ERR CLUSTER {} is not available in this version", subcommand(args))))
}

fn help(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    topology(context)?;
    super::help(context, args, reply)
}

fn save_config(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    topology(context)?;
    reply.ok();
    Ok(())
}

fn key_slot(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    topology(context)?;
    reply.integer(slot(args.word()).into());
    Ok(())
}

fn asking(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    topology(context)?;
    reply.ok();
    Ok(())
}

fn set_reads_replicas(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    on: bool,
) -> CommandResult {
    let takes_redirections = context.session.flags.has(ClientFlags::CAN_REDIRECT);
    if !takes_redirections && !context.shared.cluster.is_on() {
        return Err(NO_CLUSTER);
    }
    context.session.flags.set(ClientFlags::READS_REPLICAS, on);
    reply.ok();
    Ok(())
}
