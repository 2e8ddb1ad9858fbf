//! SENTINEL, by the nodes of a cluster of one shard: clients without cluster support find and follow its primary, as
//! they do with redis-sentinel, and no Sentinel runs.
//!
//! The name of the primary is the cluster's. Every node is one of its Sentinels. Discovery is for all users, as CLUSTER SHARDS is.

use std::sync::Arc;

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_resp::{ReplyBuffer, number::parse_integer};

use super::{cluster_wide, endpoints_for, topology};
use crate::{
    cluster::{
        ALIVE_MS,
        route::EndpointRule,
        topology::{Health, Node, Shard, Topology},
    },
    executor::{Handler, ServerContext},
};

/// For every client.
const DISCOVERY: Flags = Flags::NO_SCRIPT.and(Flags::LOADING).and(Flags::STALE);
/// For operators.
const OPERATORS: Flags = DISCOVERY.and(Flags::ADMIN);

const NO_SUCH_MASTER: CommandError = CommandError::text("ERR No such master with that name");

pub(super) const SENTINEL: Command = Command {
    name: "sentinel",
    summary: "Finds the primary of a cluster of one shard, for clients without cluster support.",
    since: "2.8.4",
    group: Group::Cluster,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[
        named("ckquorum", "2.8.4", "Checks whether the nodes can fail over.", &Handler(check_quorum)),
        by_itself("config", "6.2.0", Arity::AtLeast(3), "Changes settings of a Sentinel."),
        by_itself("debug", "7.0.0", Arity::AtLeast(2), "Changes times of a Sentinel."),
        Command { flags: OPERATORS, ..named("failover", "2.8.4", "Forces a failover.", &Handler(fail_over)) },
        by_itself("flushconfig", "2.8.4", Arity::Exactly(2), "Writes a Sentinel's file."),
        named(
            "get-master-addr-by-name",
            "2.8.4",
            "Returns the address and the port of the primary.",
            &Handler(address),
        ),
        row("help", "2.8.4", Arity::Exactly(2), "Shows the help.", &Handler(help)),
        by_itself("info-cache", "3.2.0", Arity::AtLeast(3), "Shows INFO of the nodes."),
        Command {
            args: &[
                Argument::string("ip"),
                Argument::integer("port"),
                Argument::integer("current-epoch"),
                Argument::string("runid"),
            ],
            ..row(
                "is-master-down-by-addr",
                "2.8.4",
                Arity::Exactly(6),
                "Says whether the primary at an address is down, as far as this node knows.",
                &Handler(is_down),
            )
        },
        named("master", "2.8.4", "Describes the primary.", &Handler(master)),
        row("masters", "2.8.4", Arity::Exactly(2), "Describes the primary, in a list.", &Handler(masters)),
        by_itself("monitor", "2.8.4", Arity::Exactly(6), "Has a Sentinel monitor a primary."),
        row("myid", "6.2.0", Arity::Exactly(2), "Returns the node's identifier.", &Handler(my_id)),
        by_itself("pending-scripts", "2.8.4", Arity::Exactly(2), "Lists scripts of a Sentinel."),
        by_itself("remove", "2.8.4", Arity::Exactly(3), "Has a Sentinel forget a primary."),
        named("replicas", "5.0.0", "Describes the replicas of the primary.", &Handler(replicas)),
        by_itself("reset", "2.8.4", Arity::Exactly(3), "Has a Sentinel forget what it knows."),
        named("sentinels", "2.8.4", "Describes the other nodes as Sentinels.", &Handler(sentinels)),
        by_itself("set", "2.8.4", Arity::AtLeast(5), "Changes how a primary is monitored."),
        by_itself("simulate-failure", "3.2.0", Arity::AtLeast(3), "Has a Sentinel crash."),
        Command {
            deprecated: Some(("5.0.0", "SENTINEL REPLICAS")),
            ..named("slaves", "2.8.0", "Describes the replicas of the primary.", &Handler(replicas))
        },
    ],
    ..Command::DEFAULT
};

const fn row(
    name: &'static str,
    since: &'static str,
    arity: Arity,
    summary: &'static str,
    handler: &'static Handler,
) -> Command {
    Command {
        name,
        since,
        arity,
        summary,
        flags: DISCOVERY,
        group: Group::Cluster,
        complexity: "O(n) for n nodes",
        run: Run::Host(handler),
        tips: &["nondeterministic_output"],
        ..Command::DEFAULT
    }
}

/// A subcommand about the primary of a name.
const fn named(
    name: &'static str,
    since: &'static str,
    summary: &'static str,
    handler: &'static Handler,
) -> Command {
    const MASTER: &[Argument] = &[Argument::string("master-name")];
    Command { args: MASTER, ..row(name, since, Arity::Exactly(3), summary, handler) }
}

/// A subcommand that configures a Sentinel, which there is none of.
const fn by_itself(name: &'static str, since: &'static str, arity: Arity, summary: &'static str) -> Command {
    Command { flags: OPERATORS, ..row(name, since, arity, summary, &Handler(refuse)) }
}

type Context<'a, 'b, 'k> = &'a mut ServerContext<'b, 'k>;

fn refuse(context: Context<'_, '_, '_>, args: &mut Args<'_>, _: &mut ReplyBuffer) -> CommandResult {
    topology(context)?;
    let subcommand = super::subcommand(args);
    Err(CommandError::owned(format!(
        "ERR SENTINEL {subcommand} is not for hands: the nodes know their cluster from etcd (docs/cluster.md)"
    )))
}

fn help(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    topology(context)?;
    super::super::help(context, args, reply)
}

/// The cluster as a Sentinel sees it.
struct Watched<'a> {
    topology: &'a Topology,
    name: &'a str,
    endpoints: EndpointRule,
}

impl<'a> Watched<'a> {
    /// The one shard; `None` while the cluster is not founded. An error if there are several.
    fn shard(&self) -> Result<Option<&'a Shard>, CommandError> {
        match self.topology.shards() {
            [] => Ok(None),
            [shard] => Ok(Some(shard)),
            shards => Err(CommandError::owned(format!(
                "ERR the cluster '{}' has {} shards, and no one primary: use a client with cluster support",
                self.name,
                shards.len()
            ))),
        }
    }

    /// The shard with that name.
    fn named(&self, name: &[u8]) -> Result<&'a Shard, CommandError> {
        if name != self.name.as_bytes() {
            return Err(NO_SUCH_MASTER);
        }
        self.shard()?.ok_or(NO_SUCH_MASTER)
    }

    fn node(&self, place: usize) -> &'a Node {
        &self.topology.nodes()[place]
    }

    fn host(&self, node: &'a Node) -> &'a str {
        self.endpoints.of(node).host.filter(|host| *host != "?").unwrap_or(&node.addresses.ip)
    }

    fn port(&self, node: &Node) -> String {
        self.endpoints.port(node).to_string()
    }

    /// The places of the nodes that answer, without this one.
    fn other_sentinels(&self) -> impl Iterator<Item = &'a Node> {
        let me = self.topology.my_place();
        let nodes = self.topology.nodes().iter().enumerate();
        nodes.filter(move |(place, node)| *place != me && node.health == Health::Online).map(|(_, node)| node)
    }

    /// The fields that all three kinds of entries begin with.
    fn fields(&self, name: String, node: &'a Node, kind: &str) -> Vec<(&'static str, String)> {
        let is_down = node.health == Health::Failed;
        let flags = if is_down { format!("s_down,{kind},disconnected") } else { kind.to_owned() };
        let flags =
            if is_down && kind == "master" { flags.replace("s_down,", "s_down,o_down,") } else { flags };
        let mut fields = vec![
            ("name", name),
            ("ip", self.host(node).to_owned()),
            ("port", self.port(node)),
            ("runid", node.id.clone()),
            ("flags", flags),
            ("link-pending-commands", "0".to_owned()),
            ("link-refcount", "1".to_owned()),
            ("last-ping-sent", "0".to_owned()),
            ("last-ok-ping-reply", "0".to_owned()),
            ("last-ping-reply", "0".to_owned()),
        ];
        if is_down {
            fields.push(("s-down-time", ALIVE_MS.to_string()));
        }
        fields.push(("down-after-milliseconds", ALIVE_MS.to_string()));
        fields
    }

    fn master(&self, shard: &'a Shard) -> Vec<(&'static str, String)> {
        let mut fields = self.fields(self.name.to_owned(), self.node(shard.primary), "master");
        fields.extend([
            ("info-refresh", "0".to_owned()),
            ("role-reported", "master".to_owned()),
            ("role-reported-time", "0".to_owned()),
            ("config-epoch", shard.epoch.to_string()),
            ("num-slaves", shard.replicas.len().to_string()),
            ("num-other-sentinels", self.other_sentinels().count().to_string()),
            ("quorum", "1".to_owned()),
            ("failover-timeout", ALIVE_MS.to_string()),
            ("parallel-syncs", shard.replicas.len().max(1).to_string()),
        ]);
        fields
    }

    fn replica(&self, shard: &'a Shard, place: usize) -> Vec<(&'static str, String)> {
        let (node, primary) = (self.node(place), self.node(shard.primary));
        let name = format!("{}:{}", self.host(node), self.port(node));
        let is_up = node.health == Health::Online && primary.health == Health::Online;
        let mut fields = self.fields(name, node, "slave");
        fields.extend([
            ("info-refresh", "0".to_owned()),
            ("role-reported", "slave".to_owned()),
            ("role-reported-time", "0".to_owned()),
            ("master-link-down-time", "0".to_owned()),
            ("master-link-status", if is_up { "ok" } else { "err" }.to_owned()),
            ("master-host", self.host(primary).to_owned()),
            ("master-port", self.port(primary)),
            ("slave-priority", "100".to_owned()),
            ("slave-repl-offset", node.offset.to_string()),
            ("replica-announced", "1".to_owned()),
        ]);
        fields
    }

    fn sentinel(&self, node: &'a Node) -> Vec<(&'static str, String)> {
        let mut fields = self.fields(node.id.clone(), node, "sentinel");
        fields.extend([
            ("last-hello-message", "0".to_owned()),
            ("voted-leader", "?".to_owned()),
            ("voted-leader-epoch", "0".to_owned()),
        ]);
        fields
    }
}

fn write(fields: &[(&'static str, String)], reply: &mut ReplyBuffer) {
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

/// Answers with what a node knows of its cluster.
fn with<R>(
    context: Context<'_, '_, '_>,
    answer: impl FnOnce(&Watched<'_>) -> Result<R, CommandError>,
) -> Result<R, CommandError> {
    let topology: Arc<Topology> = topology(context)?;
    let endpoints = endpoints_for(context);
    answer(&Watched { topology: &topology, name: context.shared.cluster.name(), endpoints })
}

fn address(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let name = args.word();
    with(context, |watched| {
        let shard = match watched.named(name) {
            Ok(shard) => shard,
            Err(error) if error == NO_SUCH_MASTER => {
                reply.null_array();
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let primary = watched.node(shard.primary);
        reply.array(2);
        reply.bulk(watched.host(primary).as_bytes());
        reply.bulk(watched.port(primary).as_bytes());
        Ok(())
    })
}

fn master(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let name = args.word();
    with(context, |watched| {
        write(&watched.master(watched.named(name)?), reply);
        Ok(())
    })
}

fn masters(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    with(context, |watched| {
        let shard = watched.shard()?;
        reply.array(shard.iter().count());
        shard.iter().for_each(|shard| write(&watched.master(shard), reply));
        Ok(())
    })
}

fn replicas(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let name = args.word();
    with(context, |watched| {
        let shard = watched.named(name)?;
        reply.array(shard.replicas.len());
        shard.replicas.iter().for_each(|place| write(&watched.replica(shard, *place), reply));
        Ok(())
    })
}

fn sentinels(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let name = args.word();
    with(context, |watched| {
        watched.named(name)?;
        reply.array(watched.other_sentinels().count());
        watched.other_sentinels().for_each(|node| write(&watched.sentinel(node), reply));
        Ok(())
    })
}

fn check_quorum(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let name = args.word();
    let trouble = context.shared.cluster.trouble();
    with(context, |watched| {
        watched.named(name)?;
        let usable = watched.other_sentinels().count() + 1;
        if !trouble.is_empty() {
            return Err(CommandError::owned(format!(
                "NOQUORUM {usable} usable Sentinels. No failover is authorized: {trouble}"
            )));
        }
        reply.simple(&format!(
            "OK {usable} usable Sentinels. Quorum and failover authorization can be reached"
        ));
        Ok(())
    })
}

fn is_down(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let host = args.word();
    let port = parse_integer(args.word()).ok_or(CommandError::NotInteger)?;
    parse_integer(args.word()).ok_or(CommandError::NotInteger)?;
    with(context, |watched| {
        let primary = watched.shard()?.map(|shard| watched.node(shard.primary));
        let is_it = |node: &&Node| {
            let known = [&node.addresses.ip, &node.addresses.hostname];
            known.iter().any(|known| known.as_bytes() == host)
                && [node.addresses.port, node.addresses.tls_port].map(i64::from).contains(&port)
        };
        let is_down = primary.filter(is_it).is_some_and(|node| node.health == Health::Failed);
        reply.array(3);
        reply.integer(is_down.into());
        reply.bulk(b"*");
        reply.integer(0);
        Ok(())
    })
}

fn my_id(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.bulk(topology(context)?.me().id.as_bytes());
    Ok(())
}

fn fail_over(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let name = args.word();
    cluster_wide::answer(context, reply, |context| {
        with(context, |watched| watched.named(name).map(drop))?;
        let order = context.shared.cluster.shard.fail_over();
        order.ok_or(CommandError::text("NOGOODSLAVE No suitable replica to promote"))
    })
}
