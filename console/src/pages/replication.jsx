import { count, date, duration, info, size } from "../format.js";
import { text } from "../resp.js";
import { act, ask } from "../session.js";
import { Card, Page, Problem, Run, Table, useLoad } from "../ui.jsx";

export function Replication() {
  const state = useLoad(async () => info(text(await ask("INFO", "server", "persistence", "replication", "stats"))), [], 2000);
  const about = state.value;
  const all = (rows) => (
    <dl class="pairs">
      {rows.map(([name, value, tone]) => (
        <>
          <dt>{name}</dt>
          <dd class={tone ?? ""}>{value}</dd>
        </>
      ))}
    </dl>
  );
  const replicas = Object.entries(about ?? {})
    .filter(([name]) => /^slave\d+$/.test(name))
    .map(([, text]) => Object.fromEntries(text.split(",").map((pair) => pair.split("="))));
  const ok = (value) => [value === "ok" ? "yes" : "no", value === "ok" ? "" : "bad"];
  return (
    <Page
      title="Persistence and replication"
      actions={
        <>
          <Run args={["BGSAVE"]} onRun={() => act("A snapshot is being written", "BGSAVE").then(state.again)}>
            Save a snapshot
          </Run>
          {about?.aof_enabled === "1" && <Run args={["BGREWRITEAOF"]} onRun={() => act("The log is being rewritten", "BGREWRITEAOF").then(state.again)}>
            Rewrite the log
          </Run>}
        </>
      }
    >
      <Problem error={state.error} />
      {about && (
        <div class="two">
          <Card title="Snapshots">
            {all([
              ["Under way", about.rdb_bgsave_in_progress === "1" ? `for ${duration(about.rdb_current_bgsave_time_sec)}` : "no"],
              ["Last saved", date(Number(about.rdb_last_save_time) * 1000)],
              ["Last one succeeded", ...ok(about.rdb_last_bgsave_status)],
              ["It took", about.rdb_last_bgsave_time_sec === "-1" ? "–" : duration(about.rdb_last_bgsave_time_sec)],
              ["Changes since", count(about.rdb_changes_since_last_save)],
              ["Saved since the start", count(about.rdb_saves)],
            ])}
          </Card>
          <Card title="Append-only log">
            {about.aof_enabled === "1"
              ? all([
                  ["Can be written", ...ok(about.aof_last_write_status)],
                  ["Size", size(about.aof_current_size)],
                  ["After the last rewrite", size(about.aof_base_size)],
                  ["Not on disk yet", size(about.aof_buffer_length)],
                  ["Rewrite under way", about.aof_rewrite_in_progress === "1" ? `for ${duration(about.aof_current_rewrite_time_sec)}` : "no"],
                  ["Last rewrite succeeded", ...ok(about.aof_last_bgrewrite_status)],
                  ["Late syncs", count(about.aof_delayed_fsync)],
                ])
              : <p class="empty">The log is off (appendonly no).</p>}
          </Card>
          <Card title={about.role === "master" ? "This is a primary" : "This is a replica"}>
            {about.role === "slave" &&
              all([
                ["Primary", `${about.master_host}:${about.master_port}`],
                ["Link", about.master_link_status, about.master_link_status === "up" ? "" : "bad"],
                ["Heard of", about.master_last_io_seconds_ago === "-1" ? "–" : `${about.master_last_io_seconds_ago} s ago`],
                ["Resynchronising", about.master_sync_in_progress === "1" ? "yes" : "no"],
                ["Applied", count(about.slave_repl_offset)],
              ])}
            {all([
              ["Offset", count(about.master_repl_offset)],
              ["History", <code class="wrap">{about.master_replid}</code>],
              ["Backlog", about.repl_backlog_active === "1" ? `${size(about.repl_backlog_histlen)} of ${size(about.repl_backlog_size)}` : "none"],
              ["Full resynchronisations", count(about.sync_full)],
              ["Partial ones", `${count(about.sync_partial_ok)}, ${count(about.sync_partial_err)} refused`],
            ])}
          </Card>
          <Card title="Replicas">
            <Table
              caption="Replicas"
              rows={replicas}
              empty="No replica is connected."
              columns={[
                { name: "Address", of: (one) => `${one.ip}:${one.port}` },
                { name: "State", of: (one) => one.state },
                { name: "Behind", number: true, of: (one) => Number(about.master_repl_offset) - Number(one.offset), cell: (one) => size(Number(about.master_repl_offset) - Number(one.offset)) },
                { name: "Silent", number: true, of: (one) => Number(one.lag), cell: (one) => `${one.lag} s` },
              ]}
            />
          </Card>
        </div>
      )}
    </Page>
  );
}
