import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Chart } from "../chart.jsx";
import { clock, count, date, duration, info, latency, percent, size } from "../format.js";
import { show } from "../resp.js";
import { ask, askAll, run } from "../session.js";
import { Card, Page, Problem, Tile, useLoad } from "../ui.jsx";

const FIELDS = [
  "commands", "errors", "p50", "p99", "worst", "worst_command", "clients", "used_kb", "resident_kb", "processor", "idle",
  "hits", "misses", "input_kb", "output_kb", "evicted", "expired", "sync_worst", "replica_lag_kb",
];
const SPANS = [
  ["5 min", 300],
  ["1 h", 3600],
  ["1 day", 86400],
  ["30 days", 30 * 86400],
];
const POINTS = 600;

/** Samples of a stretch of time; kept up to date while it ends now. */
function useSamples(span) {
  const [data, setData] = useState({ step: 1, rows: [], events: [], error: null });
  const rows = useRef([]);
  useEffect(() => {
    let ended = false;
    let timer;
    let first = true;
    rows.current = [];
    const load = async () => {
      const now = Math.floor(Date.now() / 1000);
      const [from, to] = span.live ? [now - span.seconds, now] : [span.from, span.to];
      const short = span.live && span.seconds <= POINTS;
      const since = short && !first && rows.current.length ? rows.current.at(-1)[0] + 1 : from;
      const [range, events] = await askAll([
        ["RECORDER", "RANGE", since, to, "POINTS", POINTS, "FIELDS", ...FIELDS],
        ["RECORDER", "EVENTS", from, to, "COUNT", 200],
      ]);
      if (ended) return;
      if (range instanceof Error) {
        setData((before) => ({ ...before, error: range }));
      } else {
        const [step, samples] = range;
        const kept = short ? rows.current.filter((row) => row[0] >= from && row[0] < since) : [];
        rows.current = [...kept, ...samples];
        first = false;
        const known = events instanceof Error ? [] : events;
        setData({
          step,
          rows: rows.current,
          events: known.map(([at, kind, text]) => ({ at, kind: show(kind), text: show(text) })),
          error: null,
        });
      }
    };
    const loop = async () => {
      try {
        if (!document.hidden) await load();
      } catch (error) {
        if (!ended) setData((before) => ({ ...before, error }));
      }
      const pause = span.live ? (span.seconds <= POINTS ? 1000 : span.seconds <= 86400 ? 10000 : 60000) : 0;
      if (pause && !ended) timer = setTimeout(loop, pause);
    };
    loop();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [span]);
  return data;
}

function column(rows, name, change = (value) => value) {
  const at = FIELDS.indexOf(name) + 1;
  return rows.map((row) => change(row[at]));
}

export function Overview() {
  const [span, setSpan] = useState({ live: true, seconds: 300 });
  const [why, setWhy] = useState(null);
  const { step, rows, events, error } = useSamples(span);
  const live = useLoad(async () => info(await ask("INFO", "everything")), [], 2000);
  const [from, to] = span.live ? [Date.now() / 1000 - span.seconds, Date.now() / 1000] : [span.from, span.to];

  const explain = async (at) => {
    setWhy({ at, lines: null });
    try {
      const lines = await run("RECORDER", "WHY", ...(at ? ["AT", at] : []));
      setWhy({ at, lines: lines.map(show) });
    } catch (problem) {
      setWhy({ at, lines: [problem.message] });
    }
  };
  const brush = (start, end) => {
    if (end - start >= 5) setSpan({ live: false, from: start, to: end });
  };

  const charts = useMemo(() => {
    const times = rows.map((row) => row[0]);
    const rate = (value) => value / step;
    return {
      times,
      load: [{ name: "commands", color: "--a", fill: true, values: column(rows, "commands", rate) }],
      latency: [
        { name: "longest", color: "--bad", values: column(rows, "worst", (value) => value / 10) },
        { name: "99%", color: "--c", values: column(rows, "p99", (value) => value / 10) },
        { name: "median", color: "--a", values: column(rows, "p50", (value) => value / 10) },
      ],
      memory: [
        { name: "resident", color: "--c", values: column(rows, "resident_kb", (value) => value * 1024) },
        { name: "used", color: "--a", fill: true, values: column(rows, "used_kb", (value) => value * 1024) },
      ],
      processor: [
        { name: "server", color: "--a", fill: true, values: column(rows, "processor", (value) => value / 1000) },
        { name: "machine idle", color: "--quiet", values: column(rows, "idle", (value) => value / 1000) },
      ],
      network: [
        { name: "out", color: "--a", fill: true, values: column(rows, "output_kb", (value) => (value * 1024) / step) },
        { name: "in", color: "--c", values: column(rows, "input_kb", (value) => (value * 1024) / step) },
      ],
      clients: [{ name: "clients", color: "--a", fill: true, values: column(rows, "clients") }],
    };
  }, [rows, step]);
  const shared = { times: charts.times, events, onSelect: brush, onPick: explain };

  return (
    <Page
      title="Overview"
      actions={
        <>
          <div class="choice" role="group" aria-label="Time shown">
            {SPANS.map(([name, seconds]) => (
              <button
                key={name}
                type="button"
                aria-pressed={span.live && span.seconds === seconds}
                onClick={() => setSpan({ live: true, seconds })}
              >
                {name}
              </button>
            ))}
          </div>
          <button type="button" class="main" onClick={() => explain(null)} title="RECORDER WHY">
            Why?
          </button>
        </>
      }
    >
      <Problem error={error ?? live.error} />
      <Tiles info={live.value} rows={rows} step={step} />
      {!span.live && (
        <p class="note">
          {date(from * 1000)} to {date(to * 1000)}{" "}
          <button type="button" onClick={() => setSpan({ live: true, seconds: 300 })}>
            Back to now
          </button>
        </p>
      )}
      {why && (
        <Card
          title={why.at ? `What went on around ${date(why.at * 1000)}` : "What went on in the last minute"}
          class="why"
          actions={
            <button type="button" onClick={() => setWhy(null)}>
              Close
            </button>
          }
        >
          <div aria-live="polite">
            {why.lines === null ? <p>…</p> : why.lines.map((text, at) => <p key={at}>{text}</p>)}
          </div>
        </Card>
      )}
      <div class="charts">
        <Card>
          <Chart title="Commands a second" series={charts.load} format={count} {...shared} />
        </Card>
        <Card>
          <Chart title="Latency of commands" series={charts.latency} format={latency} log {...shared} />
        </Card>
        <Card>
          <Chart title="Memory" series={charts.memory} format={size} {...shared} />
        </Card>
        <Card>
          <Chart title="Processor (1 is one core)" series={charts.processor} format={(value) => value.toFixed(2)} {...shared} />
        </Card>
        <Card>
          <Chart title="Network, bytes a second" series={charts.network} format={size} {...shared} />
        </Card>
        <Card>
          <Chart title="Clients" series={charts.clients} format={count} {...shared} />
        </Card>
      </div>
      <p class="hint">Drag over a plot to look closer; click a moment to ask what went on.</p>
      <div class="two">
        <MemoryByKind info={live.value} />
        <Card title="Events">
          <ol class="events" tabIndex={0}>
            {events.slice(0, 60).map((event, at) => (
              <li key={at}>
                <button type="button" class="plain" onClick={() => explain(Math.floor(event.at / 1000))}>
                  <time>{span.live && span.seconds <= 3600 ? clock(event.at) : date(event.at)}</time>
                  <span class={`tag ${event.kind}`}>{event.kind}</span>
                  <span>{event.text}</span>
                </button>
              </li>
            ))}
            {events.length === 0 && <li class="empty">No events in this time.</li>}
          </ol>
        </Card>
      </div>
    </Page>
  );
}

function Tiles({ info, rows, step }) {
  const last = rows.at(-1);
  const of = (name) => last?.[FIELDS.indexOf(name) + 1];
  const hits = rows.slice(-60).reduce((sum, row) => sum + row[FIELDS.indexOf("hits") + 1], 0);
  const misses = rows.slice(-60).reduce((sum, row) => sum + row[FIELDS.indexOf("misses") + 1], 0);
  const keys = Object.entries(info ?? {})
    .filter(([name]) => /^db\d+$/.test(name))
    .reduce((sum, [, value]) => sum + Number(/keys=(\d+)/.exec(value)?.[1] ?? 0), 0);
  const limit = Number(info?.maxmemory ?? 0);
  const used = Number(info?.used_memory ?? 0);
  return (
    <dl class="tiles">
      <Tile name="Commands a second" value={last ? count(of("commands") / step) : "–"} />
      <Tile name="Latency, 99%" value={last ? latency(of("p99") / 10) : "–"} note={last ? `longest ${latency(of("worst") / 10)}` : ""} />
      <Tile
        name="Memory"
        value={info ? size(used) : "–"}
        note={limit ? `of ${size(limit)}` : "no limit"}
        tone={limit && used > limit * 0.9 ? "bad" : ""}
      />
      <Tile name="Keys" value={info ? count(keys) : "–"} />
      <Tile name="Clients" value={info ? count(info.connected_clients) : "–"} note={info && Number(info.blocked_clients) ? `${info.blocked_clients} blocked` : ""} />
      <Tile name="Reads that hit" value={hits + misses ? percent(hits / (hits + misses)) : "–"} />
      <Tile name="Role" value={info ? (info.role === "master" ? "primary" : "replica") : "–"} note={info?.role === "slave" ? `link ${info.master_link_status}` : info ? `${info.connected_slaves} replicas` : ""} tone={info?.master_link_status === "down" ? "bad" : ""} />
      <Tile name="Up for" value={info ? duration(info.uptime_in_seconds) : "–"} note={info ? `version ${info.dunlin_version}` : ""} />
    </dl>
  );
}

function MemoryByKind({ info }) {
  if (!info) return <Card title="Memory by kind" />;
  const number = (name) => Number(info[name] ?? 0);
  const overhead = number("used_memory_overhead");
  const buffers = number("mem_clients_normal");
  const scripts = number("used_memory_scripts") + number("used_memory_vm_total");
  const start = number("used_memory_startup");
  const kinds = [
    ["Keys and values", number("used_memory_dataset"), "--a"],
    ["Tables", Math.max(0, overhead - buffers - scripts - start), "--c"],
    ["Clients' buffers", buffers, "--d"],
    ["Scripts", scripts, "--e"],
    ["Fixed", start, "--quiet"],
  ];
  const all = Math.max(1, kinds.reduce((sum, [, bytes]) => sum + bytes, 0));
  return (
    <Card title="Memory by kind">
      <div class="stack" aria-hidden="true">
        {kinds.map(([name, bytes, color]) => (
          <span key={name} style={{ width: `${(bytes / all) * 100}%`, background: `var(${color})` }} />
        ))}
      </div>
      <ul class="legend">
        {kinds.map(([name, bytes, color]) => (
          <li key={name}>
            <i style={{ background: `var(${color})` }} aria-hidden="true" />
            {name}
            <b>{size(bytes)}</b>
            <small>{percent(bytes / all)}</small>
          </li>
        ))}
      </ul>
      <p class="quiet">
        Resident {size(info.used_memory_rss)}, peak {size(info.used_memory_peak)}, machine {size(info.total_system_memory)}.
      </p>
    </Card>
  );
}
