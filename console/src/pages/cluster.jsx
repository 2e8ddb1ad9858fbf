// A map of the cluster: slots as a band, shards, nodes by zone, moves under way, as the node that was asked knows them.
import { count, plural, size } from "../format.js";
import { RMap, show } from "../resp.js";
import { ask } from "../session.js";
import { Card, Page, Problem, Table, Tile, useLoad } from "../ui.jsx";

const SLOTS = 16384;
const TONES = ["a", "b", "c", "d", "e"];

/** A reply of RESP3 as plain values: maps become objects, bytes text. */
const plain = (value) => {
  if (value instanceof RMap) return Object.fromEntries(value.entries.map(([key, one]) => [show(key), plain(one)]));
  if (Array.isArray(value)) return value.map(plain);
  return typeof value === "string" ? show(value) : value;
};
const short = (id) => id.slice(0, 8);

/** "0-99,200" as [[0, 99], [200, 200]]. */
const runs = (text) =>
  text
    .split(",")
    .filter(Boolean)
    .map((run) => run.split("-").map(Number))
    .map(([first, last = first]) => [first, last]);
const slotCount = (text) => runs(text).reduce((sum, [first, last]) => sum + last + 1 - first, 0);

async function load() {
  let status;
  try {
    status = plain(await ask("CLUSTER", "STATUS"));
  } catch (error) {
    if (/cluster support disabled/.test(error.message)) return { isAlone: true };
    throw error;
  }
  // The first slot decides about a shard's colour, so that all nodes show the same.
  const shards = status.shards
    .map((shard) => ({ ...shard, runs: runs(shard.slots), count: slotCount(shard.slots) }))
    .sort((one, other) => (one.runs[0]?.[0] ?? SLOTS) - (other.runs[0]?.[0] ?? SLOTS))
    .map((shard, at) => ({ ...shard, name: at + 1, tone: TONES[at % TONES.length] }));
  const of = new Map(shards.map((shard) => [shard.id, shard]));
  const nodes = status.nodes.map((node) => ({ ...node, of: of.get(node.shard), online: node.health === "online" }));
  const lags = await lagsHere(status);
  return { ...status, shards, nodes, of, lags };
}

/** How far the replicas of this node are behind, by their addresses. */
async function lagsHere(status) {
  const me = status.nodes.find((node) => node.id === status.node);
  if (me?.role !== "primary") return new Map();
  const text = await ask("INFO", "replication");
  const end = Number(/^master_repl_offset:(\d+)/m.exec(text)?.[1]);
  const replicas = [...text.matchAll(/^slave\d+:ip=([^,]+),port=(\d+),state=(\w+),offset=(\d+)/gm)];
  return new Map(replicas.map(([, ip, port, state, offset]) => [`${ip}:${port}`, state === "online" ? end - Number(offset) : null]));
}

export function Cluster() {
  const state = useLoad(load, [], 1000);
  const cluster = state.value;
  return (
    <Page title="Cluster">
      <Problem error={state.error} />
      {cluster?.isAlone && (
        <Card>
          <p class="empty">
            This server is no node of a cluster. <code>dunlin server --cluster-join etcd://HOST:2379/NAME</code> makes it one.
          </p>
        </Card>
      )}
      {cluster && !cluster.isAlone && <ClusterMap cluster={cluster} />}
    </Page>
  );
}

function ClusterMap({ cluster }) {
  const { shards, nodes, moves } = cluster;
  const gone = nodes.filter((node) => !node.online);
  const unserved = SLOTS - shards.reduce((sum, shard) => sum + shard.count, 0);
  return (
    <>
      {cluster.trouble && (
        <p class="problem" role="alert">
          This node does not follow etcd, and what is shown may be old: {cluster.trouble}
        </p>
      )}
      <dl class="tiles">
        <Tile name="Cluster" value={cluster.name} note={`${cluster.durability}, ${plural(Number(cluster.replicas), "replica")} wanted`} />
        <Tile name="Shards" value={count(shards.length)} note={unserved ? `${plural(unserved, "slot")} without one` : "all slots have one"} tone={unserved ? "bad" : ""} />
        <Tile name="Nodes" value={count(nodes.length)} note={gone.length ? `${count(gone.length)} gone` : "all are there"} tone={gone.length ? "bad" : ""} />
        <Tile name="Moves" value={count(moves.length)} note={moves.length ? plural(moves.reduce((sum, one) => sum + slotCount(one.slots), 0), "slot") : "nothing moves"} />
      </dl>
      <Card title="Slots">
        <Band cluster={cluster} />
        <ul class="legend">
          {shards.map((shard) => (
            <li key={shard.id}>
              <i class={`swatch tone-${shard.tone}`} /> Shard {shard.name} <code>{short(shard.id)}</code>
              <span class="quiet"> {plural(shard.count, "slot")}</span>
            </li>
          ))}
        </ul>
      </Card>
      {moves.length > 0 && <Moves cluster={cluster} />}
      <Card title="Nodes by zone">
        <Zones cluster={cluster} />
      </Card>
      <Card title="All nodes">
        <Table
          caption="Nodes"
          rows={nodes}
          rowKey={(node) => node.id}
          sort={{ name: "Shard", down: false }}
          columns={[
            { name: "Node", of: (node) => node.id, cell: (node) => <code>{short(node.id)}</code> },
            { name: "Address", of: (node) => node.address },
            { name: "Shard", number: true, of: (node) => node.of?.name ?? 0, cell: (node) => node.of?.name ?? "–" },
            { name: "Role", of: (node) => node.role },
            { name: "Data", of: (node) => node.sync, cell: (node) => dataOf(node) || "–" },
            { name: "Behind", number: true, of: (node) => cluster.lags.get(node.address) ?? -1, cell: (node) => size(cluster.lags.get(node.address)) },
            { name: "Health", of: (node) => node.health, cell: (node) => <span class={node.online ? "" : "bad"}>{node.online ? "there" : "gone"}</span> },
            { name: "State", of: (node) => node.state },
            { name: "Machine", of: (node) => node.host },
            { name: "Zone", of: (node) => node.zone, cell: (node) => node.zone || "–" },
            { name: "Version", of: (node) => node.version },
          ]}
        />
        <p class="quiet note">How far replicas are behind is known to their primary: connect to it to see that.</p>
      </Card>
    </>
  );
}

/** All slots from left to right. Moving ones are hatched in the colour of the shard that gets them. */
function Band({ cluster }) {
  const { shards, moves, of } = cluster;
  const x = (slot) => (slot * 1000) / SLOTS;
  const box = ([first, last]) => ({ x: x(first), width: Math.max(x(last + 1) - x(first), 0.4) });
  const words = shards.map((shard) => `shard ${shard.name} has ${plural(shard.count, "slot")}`).join(", ");
  return (
    <>
      <svg class="band" viewBox="0 0 1000 44" preserveAspectRatio="none" role="img" aria-label={`${plural(SLOTS, "slot")}: ${words}`}>
        <defs>
          {TONES.map((tone) => (
            <pattern key={tone} id={`hatch-${tone}`} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
              <rect width="3" height="6" class={`tone-${tone}`} />
            </pattern>
          ))}
        </defs>
        <rect class="unserved" width="1000" height="44" />
        {shards.flatMap((shard) =>
          shard.runs.map((run) => (
            <rect key={`${shard.id}${run[0]}`} {...box(run)} height="44" class={`tone-${shard.tone}`}>
              <title>{`slots ${run.join("–")}: shard ${shard.name}`}</title>
            </rect>
          )),
        )}
        {moves.flatMap((one) =>
          runs(one.slots).map((run) => (
            <rect key={`${one.id}${run[0]}`} {...box(run)} y="24" height="20" class="moving" fill={`url(#hatch-${of.get(one.to)?.tone ?? "a"})`}>
              <title>{`slots ${run.join("–")} go to shard ${of.get(one.to)?.name ?? "?"}`}</title>
            </rect>
          )),
        )}
      </svg>
      <div class="scale" aria-hidden="true">
        {[0, 4096, 8192, 12288, 16383].map((slot) => (
          <span key={slot}>{slot}</span>
        ))}
      </div>
    </>
  );
}

function Moves({ cluster }) {
  const name = (id) => cluster.of.get(id)?.name ?? "?";
  return (
    <Card title="Moves of slots">
      <ul class="moves">
        {cluster.moves.map((one) => (
          <li key={one.id}>
            <div class="what">
              <span>
                <i class={`swatch tone-${cluster.of.get(one.from)?.tone}`} /> Shard {name(one.from)} → <i class={`swatch tone-${cluster.of.get(one.to)?.tone}`} /> Shard {name(one.to)}
              </span>
              <span class="quiet">
                {plural(slotCount(one.slots), "slot")}, {one.state}, {size(one["sent-bytes"])} sent
                {one["behind-bytes"] > 0 && `, ${size(one["behind-bytes"])} behind`}
              </span>
            </div>
            <progress max="1000" value={one.walked} aria-label={`Move ${short(one.id)}`} />
            {one.waits && <p class="quiet">It waits {one.waits}</p>}
          </li>
        ))}
      </ul>
    </Card>
  );
}

/** A column for each zone, a row for each shard: at a glance, whether copies stand apart. */
function Zones({ cluster }) {
  const { shards, nodes } = cluster;
  const zones = [...new Set(nodes.map((node) => node.zone))].sort();
  const rows = [...shards, ...(nodes.some((node) => !node.of) ? [null] : [])];
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label="Table: nodes by zone">
      <table class="zones">
        <caption class="hidden">Nodes by zone</caption>
        <thead>
          <tr>
            <th scope="col">Shard</th>
            {zones.map((zone) => (
              <th key={zone} scope="col">
                {zone || "no zone"}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((shard) => (
            <tr key={shard?.id ?? "free"}>
              <th scope="row">
                {shard ? (
                  <>
                    <i class={`swatch tone-${shard.tone}`} /> Shard {shard.name} <small>epoch {shard.epoch}</small>
                  </>
                ) : (
                  "Without a shard"
                )}
              </th>
              {zones.map((zone) => (
                <td key={zone}>
                  {nodes
                    .filter((node) => node.zone === zone && (node.of?.id ?? null) === (shard?.id ?? null))
                    .map((node) => (
                      <NodeChip key={node.id} node={node} isMe={node.id === cluster.node} />
                    ))}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** What a node has of its shard's data. */
const dataOf = (node) => ({ "in-sync": "in sync", learner: node.online ? "catching up" : "not in sync" })[node.sync] ?? "";

function NodeChip({ node, isMe }) {
  const words = [
    node.role === "none" ? "free" : node.role,
    node.sync === "learner" && dataOf(node),
    node.state !== "active" && node.state,
    !node.online && "gone",
    isMe && "this node",
  ].filter(Boolean);
  return (
    <div class={`node ${node.role} ${node.online ? "" : "gone"} ${node.of ? `edge-${node.of.tone}` : ""}`} title={`${node.id} on ${node.host}`}>
      <span>{node.name || node.address}</span>
      <small>{words.join(", ")}</small>
    </div>
  );
}
