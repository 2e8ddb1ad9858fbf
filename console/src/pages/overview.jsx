// What the server is like: figures of now, plots of any time of the last 30 days, and what happened.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Chart } from "../chart.jsx";
import { clock, count, date, duration, info, latency, percent, plural, rate, size } from "../format.js";
import { list, number, show, text } from "../resp.js";
import { lacks } from "../rights.js";
import { setParams, useRoute } from "../route.js";
import { askAll, run } from "../session.js";
import { Card, Choice, Field, Page, Problem, Run, Tile, useLoad } from "../ui.jsx";

const FIELDS = [
  "seconds", "commands", "calls", "errors", "denied", "rejected", "p50", "p99", "worst", "clients", "blocked", "used_kb",
  "resident_kb", "processor", "idle", "hits", "misses", "input_kb", "output_kb", "evicted", "expired", "replicas", "replica_lag_kb",
];
const SPANS = [
  ["300", "5 min"],
  ["3600", "1 h"],
  ["86400", "1 day"],
  ["604800", "7 days"],
  ["2592000", "30 days"],
];
const POINTS = 600;
/** Seconds that the tiles speak of. */
const RECENT_S = 60;

const place = (name) => FIELDS.indexOf(name) + 1;

/** Samples of a stretch of time; kept up to date while it ends now. */
function useSamples({ isLive, seconds, from, to }) {
  const [data, setData] = useState({ step: 1, rows: [], events: [], from: 0, to: 1, error: null });
  const rows = useRef([]);
  useEffect(() => {
    let ended = false;
    let timer;
    let isFirst = true;
    rows.current = [];
    const isShort = isLive && seconds <= POINTS;
    const load = async () => {
      const now = Math.floor(Date.now() / 1000);
      const [begin, end] = isLive ? [now - seconds, now] : [from, to];
      const since = isShort && !isFirst && rows.current.length ? rows.current.at(-1)[0] + 1 : begin;
      const [range, events] = await askAll([
        ["RECORDER", "RANGE", since, end, "POINTS", POINTS, "FIELDS", ...FIELDS],
        ["RECORDER", "EVENTS", begin, end, "COUNT", 200],
      ]);
      if (ended) return;
      if (range instanceof Error) return setData((before) => ({ ...before, rows: [], error: range }));
      const [step, samples] = list(range);
      const kept = isShort ? rows.current.filter((row) => row[0] >= begin && row[0] < since) : [];
      rows.current = [...kept, ...list(samples)];
      isFirst = false;
      const known = events instanceof Error ? [] : list(events);
      setData({
        step: Math.max(1, number(step)),
        rows: rows.current,
        from: begin,
        to: end,
        events: known.map(([at, kind, text]) => ({ at: number(at), kind: show(kind), text: show(text) })),
        error: null,
      });
    };
    const loop = async () => {
      try {
        if (!document.hidden) await load();
      } catch {
        // The page says above that the connection is gone, and the figures stay.
      }
      const pause = isLive ? (isShort ? 1000 : seconds <= 86400 ? 10000 : 60000) : 0;
      if (pause && !ended) timer = setTimeout(loop, pause);
    };
    loop();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [isLive, seconds, from, to]);
  return data;
}

/** Rows with an empty one in each gap, so that no line is drawn through a time without samples. */
function withGaps(rows, step) {
  const out = [];
  const blank = FIELDS.map(() => null);
  for (const row of rows) {
    const before = out.at(-1);
    if (before && row[0] - before[0] > Math.max(3, 2 * step)) out.push([before[0] + step, ...blank]);
    out.push(row);
  }
  return out;
}

const COLORS = { a: "--a", b: "--b", c: "--c", d: "--d", bad: "--bad" };

/** The plots: a title, how values are written, and series of names, colours and what they are of a row. */
const PLOTS = [
  { title: "Requests a second", format: rate, series: [["requests", "a", ({ commands, seconds }) => commands / seconds, true], ["called by scripts", "c", ({ calls, seconds }) => calls / seconds]] },
  { title: "Latency of requests", format: latency, log: true, series: [["longest", "bad", ({ worst }) => worst / 10], ["99%", "c", ({ p99 }) => p99 / 10], ["median", "a", ({ p50 }) => p50 / 10]] },
  { title: "Memory", format: size, unit: "bytes", series: [["resident", "c", (row) => row.resident_kb * 1024], ["used", "a", (row) => row.used_kb * 1024, true]] },
  { title: "Processor", format: (value) => value.toFixed(2), series: [["server, in cores", "a", ({ processor }) => processor / 1000, true], ["machine, 1 is all of it", "c", ({ idle }) => 1 - idle / 1000]] },
  { title: "Network, bytes a second", format: size, unit: "bytes", series: [["out", "a", (row) => (row.output_kb * 1024) / row.seconds, true], ["in", "c", (row) => (row.input_kb * 1024) / row.seconds]] },
  { title: "Clients", format: count, unit: "whole", series: [["connected", "a", ({ clients }) => clients, true], ["blocked", "c", ({ blocked }) => blocked]] },
  { title: "Reads that found their key", format: percent, most: 1, series: [["share", "a", ({ hits, misses }) => (hits + misses ? hits / (hits + misses) : null), true]] },
  { title: "Errors a second", format: rate, series: [["errors", "bad", ({ errors, seconds }) => errors / seconds, true], ["denied", "c", ({ denied, seconds }) => denied / seconds], ["connections refused", "d", ({ rejected, seconds }) => rejected / seconds]] },
  { title: "Keys that went, a second", format: rate, series: [["expired", "a", ({ expired, seconds }) => expired / seconds, true], ["evicted", "bad", ({ evicted, seconds }) => evicted / seconds]] },
  { title: "Replica lag", format: size, unit: "bytes", series: [["the slowest replica", "a", (row) => (row.replicas ? row.replica_lag_kb * 1024 : null), true]] },
];

function plotsOf(rows, step) {
  const filled = withGaps(rows, step);
  const named = filled.map((row) => (row[1] === null ? null : Object.fromEntries(FIELDS.map((name, at) => [name, name === "seconds" ? Math.max(1, row[at + 1]) : row[at + 1]]))));
  const times = filled.map((row) => row[0]);
  const plots = PLOTS.map((plot) => ({
    ...plot,
    series: plot.series.map(([name, color, of, fill]) => ({ name, color: COLORS[color], fill, values: named.map((row) => (row ? of(row) : null)) })),
  }));
  return { times, plots };
}

export function Overview() {
  const { params } = useRoute();
  const isLive = !params.from;
  const seconds = Number(params.span) || 300;
  const span = { isLive, seconds, from: Number(params.from) || 0, to: Number(params.to) || 0 };
  const [why, setWhy] = useState(null);
  const [asks, setAsks] = useState(false);
  const { step, rows, events, from, to, error } = useSamples(span);
  const live = useLoad(async () => {
    const now = Math.floor(Date.now() / 1000);
    const [about, range] = await askAll([["INFO", "everything"], ["RECORDER", "RANGE", now - RECENT_S, now, "POINTS", RECENT_S + 1, "FIELDS", ...FIELDS]]);
    if (about instanceof Error && range instanceof Error) throw about;
    return { info: about instanceof Error ? null : info(text(about)), recent: range instanceof Error ? [] : list(list(range)[1]), error: about instanceof Error ? about : null };
  }, [], 2000);
  const { times, plots } = useMemo(() => plotsOf(rows, step), [rows, step]);

  const explain = async (at) => {
    setWhy({ at, lines: null });
    try {
      const lines = await run("RECORDER", "WHY", ...(at ? ["AT", at] : []));
      setWhy({ at, lines: list(lines).map(show) });
    } catch (problem) {
      setWhy({ at, error: problem });
    }
  };
  const look = (begin, end) => {
    if (end - begin >= 5) setParams({ from: begin, to: end, span: "" }, true);
  };
  const shared = { times, from, to, events, onSelect: look, onPick: explain };

  return (
    <Page
      title="Overview"
      actions={
        <>
          <Choice label="Time shown" value={isLive ? String(seconds) : ""} options={SPANS} onChoose={(span) => setParams({ span: span === "300" ? "" : span, from: "", to: "" }, true)} />
          <button type="button" aria-expanded={asks} onClick={() => setAsks(!asks)}>
            Other…
          </button>
          <Run args={["RECORDER", "WHY"]} tone="main" onRun={() => explain(null)}>
            Why?
          </Run>
        </>
      }
    >
      <Problem error={error ?? live.error ?? live.value?.error} />
      {asks && <Stretch from={from} to={to} onChoose={look} />}
      <Tiles live={live.value} />
      {!isLive && (
        <p class="note">
          {date(span.from * 1000)} to {date(span.to * 1000)}{" "}
          <button type="button" onClick={() => setParams({ from: "", to: "" }, true)}>
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
            <Problem error={why.error} />
            {!why.error && (why.lines === null ? <p>…</p> : why.lines.map((text, at) => <p key={at}>{text}</p>))}
          </div>
        </Card>
      )}
      {!error && (
        <>
          <div class="charts">
            {plots.map((plot) => (
              <Card key={plot.title}>
                <Chart {...plot} {...shared} />
              </Card>
            ))}
          </div>
          <p class="hint">Drag over a plot to look closer; click a moment to ask what went on.</p>
        </>
      )}
      <div class="two">
        <MemoryByKind info={live.value?.info} />
        {!lacks("RECORDER", "EVENTS") && (
          <Card title="Events">
            <ol class="events" tabIndex={0} aria-label="Events">
              {events.slice(0, 60).map((event, at) => (
                <li key={at}>
                  <button type="button" class="plain" onClick={() => explain(Math.floor(event.at / 1000))}>
                    <time>{isLive && seconds <= 3600 ? clock(event.at) : date(event.at)}</time>
                    <span class={`tag ${event.kind}`}>{event.kind}</span>
                    <span>{event.text}</span>
                  </button>
                </li>
              ))}
              {events.length === 0 && <li class="empty">No events in this time.</li>}
            </ol>
          </Card>
        )}
      </div>
    </Page>
  );
}

/** Asks for a stretch of time. */
function Stretch({ from, to, onChoose }) {
  const [typed, setTyped] = useState([from, to].map((second) => date(second * 1000).replace(" ", "T")));
  const seconds = typed.map((text) => Date.parse(`${text}Z`) / 1000);
  const set = (at) => (text) => setTyped(typed.map((old, other) => (other === at ? text : old)));
  return (
    <form
      class="add stretch"
      onSubmit={(event) => {
        event.preventDefault();
        onChoose(Math.floor(seconds[0]), Math.ceil(seconds[1]));
      }}
    >
      <Field label="From, UTC" type="datetime-local" step="1" value={typed[0]} onInput={set(0)} />
      <Field label="To, UTC" type="datetime-local" step="1" value={typed[1]} onInput={set(1)} />
      <button type="submit" disabled={!(seconds[1] - seconds[0] >= 5)}>
        Show
      </button>
    </form>
  );
}

/** Figures of now, whatever time the plots show. */
function Tiles({ live }) {
  const about = live?.info;
  const recent = live?.recent ?? [];
  const last = recent.slice(-5);
  const sum = (rows, name) => rows.reduce((sum, row) => sum + Number(row[place(name)]), 0);
  const most = (rows, name) => Math.max(...rows.map((row) => row[place(name)]));
  const [hits, misses] = [sum(recent, "hits"), sum(recent, "misses")];
  const keys = Object.entries(about ?? {})
    .filter(([name]) => /^db\d+$/.test(name))
    .reduce((sum, [, value]) => sum + Number(/keys=(\d+)/.exec(value)?.[1] ?? 0), 0);
  const limit = Number(about?.maxmemory ?? 0);
  const used = Number(about?.used_memory ?? 0);
  const calls = last.length ? sum(last, "calls") / Math.max(1, sum(last, "seconds")) : 0;
  return (
    <dl class="tiles">
      <Tile name="Requests a second" value={last.length ? rate(sum(last, "commands") / Math.max(1, sum(last, "seconds"))) : "–"} note={calls ? `and ${rate(calls)} by scripts` : ""} />
      <Tile name="Latency, 99%" value={recent.length ? latency(most(recent, "p99") / 10) : "–"} note={recent.length ? `longest ${latency(most(recent, "worst") / 10)}` : ""} />
      <Tile name="Memory" value={about ? size(used) : "–"} note={about ? (limit ? `of ${size(limit)}` : "no limit") : ""} tone={limit && used > limit * 0.9 ? "bad" : ""} />
      <Tile name="Keys" value={about ? count(keys) : "–"} />
      <Tile name="Clients" value={about ? count(about.connected_clients) : "–"} note={Number(about?.blocked_clients) ? `${about.blocked_clients} blocked` : ""} />
      <Tile name="Reads that hit" value={hits + misses ? percent(hits / (hits + misses)) : "–"} note={recent.length ? "last minute" : ""} />
      <Tile
        name="Role"
        value={about ? (about.role === "master" ? "primary" : "replica") : "–"}
        note={about ? (about.role === "slave" ? `link ${about.master_link_status}` : plural(about.connected_slaves, "replica")) : ""}
        tone={about?.master_link_status === "down" ? "bad" : ""}
      />
      <Tile name="Up for" value={about ? duration(about.uptime_in_seconds) : "–"} note={about ? `version ${about.dunlin_version}` : ""} />
    </dl>
  );
}

function MemoryByKind({ info: about }) {
  if (!about) return null;
  const number = (name) => Number(about[name] ?? 0);
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
        Resident {size(about.used_memory_rss)}, peak {size(about.used_memory_peak)}, machine {size(about.total_system_memory)}.
      </p>
    </Card>
  );
}

