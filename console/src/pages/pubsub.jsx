import { useEffect, useRef, useState } from "preact/hooks";
import { clock, count, plural } from "../format.js";
import { bytes, list, number, show } from "../resp.js";
import { act, another, ask, fail, toast } from "../session.js";
import { Card, Field, Page, Problem, Run, Table, useLoad } from "../ui.jsx";

/** Lines that are kept, and how long MONITOR runs before it ends by itself. */
const LINES_MAX = 500;
const MONITOR_S = 60;

/** Lines that come, at most so many a second; the others are counted. */
function useLines(perSecond) {
  const [state, setState] = useState({ lines: [], seen: 0, left: 0 });
  const pending = useRef({ lines: [], seen: 0, left: 0, second: 0, room: 0 });
  useEffect(() => {
    const timer = setInterval(() => {
      const { lines, seen, left } = pending.current;
      if (!seen) return;
      Object.assign(pending.current, { lines: [], seen: 0, left: 0 });
      setState((before) => ({
        lines: [...lines.reverse(), ...before.lines].slice(0, LINES_MAX),
        seen: before.seen + seen,
        left: before.left + left,
      }));
    }, 200);
    return () => clearInterval(timer);
  }, []);
  const add = (line) => {
    const now = pending.current;
    const second = Math.floor(Date.now() / 1000);
    if (second !== now.second) Object.assign(now, { second, room: perSecond });
    now.seen++;
    if (now.room-- > 0) now.lines.push({ at: Date.now(), ...line });
    else now.left++;
  };
  const clear = () => setState({ lines: [], seen: 0, left: 0 });
  return { ...state, add, clear };
}

export function Pubsub() {
  return (
    <Page title="Pub/Sub and MONITOR">
      <div class="two">
        <Listen />
        <div>
          <Publish />
          <Channels />
        </div>
      </div>
      <Monitor />
    </Page>
  );
}

function Listen() {
  const [channel, setChannel] = useState("*");
  const [heard, setHeard] = useState([]);
  const connection = useRef(null);
  const lines = useLines(100);
  useEffect(() => () => connection.current?.close(), []);
  const listen = async (event) => {
    event.preventDefault();
    try {
      if (!connection.current || connection.current.closed) {
        connection.current = await another();
        connection.current.onpush = (items) => {
          const kind = show(items[0]);
          if (kind.endsWith("subscribe")) setHeard((before) => [...new Set([...before, `${kind.toUpperCase()} ${show(items[1])}`])]);
          if (kind.endsWith("message")) lines.add({ channel: show(items.at(-2)), text: show(items.at(-1)) });
        };
        connection.current.onclose = () => setHeard([]);
        // The only answers that come are refusals.
        connection.current.stream = (answer) => answer instanceof Error && fail(answer);
      }
      const command = /[*?[]/.test(channel) ? "PSUBSCRIBE" : "SUBSCRIBE";
      await connection.current.tell([command, bytes(channel)]);
    } catch (error) {
      fail(error);
    }
  };
  const stop = () => {
    connection.current?.close();
    setHeard([]);
  };
  return (
    <Card title="Listen" actions={<button type="button" onClick={lines.clear}>Clear</button>}>
      <form class="add" onSubmit={listen}>
        <Field label="Channel or pattern" value={channel} onInput={setChannel} />
        <button type="submit" class="main" title={`${/[*?[]/.test(channel) ? "PSUBSCRIBE" : "SUBSCRIBE"} ${channel}`}>
          Subscribe
        </button>
        <button type="button" onClick={stop} disabled={heard.length === 0}>
          Stop
        </button>
      </form>
      <p class="quiet">
        {heard.length ? heard.join(", ") : "Not listening."} {lines.seen > 0 && plural(lines.seen, "message")}
        {lines.left > 0 && `, ${count(lines.left)} not shown: at most 100 a second are`}
      </p>
      <div class="lines" role="log" aria-label="Messages" tabIndex={0}>
        <ol>
          {lines.lines.map((line) => (
            <li key={line}>
            <time>{clock(line.at)}</time> <b>{line.channel}</b> <span class="mono">{line.text}</span>
          </li>
        ))}
        </ol>
      </div>
    </Card>
  );
}

function Publish() {
  const [channel, setChannel] = useState("");
  const [text, setText] = useState("");
  return (
    <Card title="Publish">
      <form
        class="add"
        onSubmit={async (event) => {
          event.preventDefault();
          await act((got) => `Published to ${plural(number(got), "subscriber")}`, "PUBLISH", bytes(channel), bytes(text));
        }}
      >
        <Field label="To channel" value={channel} onInput={setChannel} required />
        <Field label="Message" value={text} onInput={setText} />
        <button type="submit" class="main">
          Publish
        </button>
      </form>
    </Card>
  );
}

function Channels() {
  const channels = useLoad(
    async () => {
      const names = list(await ask("PUBSUB", "CHANNELS")).slice(0, 200);
      const counts = names.length ? list(await ask("PUBSUB", "NUMSUB", ...names)) : [];
      return names.map((name) => ({ name: show(name), count: counts[counts.indexOf(name) + 1] }));
    },
    [],
    3000,
  );
  return (
    <Card title="Channels">
      <Problem error={channels.error} />
      <Table
        caption="Channels with subscribers"
        rows={channels.value}
        empty="No channel has subscribers."
        columns={[
          { name: "Channel", of: (row) => row.name },
          { name: "Subscribers", number: true, of: (row) => Number(row.count) },
        ]}
      />
    </Card>
  );
}

function Monitor() {
  const [until, setUntil] = useState(null);
  const [perSecond, setPerSecond] = useState("50");
  const connection = useRef(null);
  const lines = useLines(Number(perSecond) || 1);
  const stop = () => {
    connection.current?.close();
    connection.current = null;
    setUntil(null);
  };
  useEffect(() => stop, []);
  useEffect(() => {
    if (!until) return undefined;
    const timer = setTimeout(stop, Math.max(0, until - Date.now()));
    return () => clearTimeout(timer);
  }, [until]);
  const start = async () => {
    try {
      const made = await another();
      await made.run(["MONITOR"]);
      made.stream = (text) => lines.add({ text: show(text).replace(/^\d+\.\d+ /, "") });
      made.onclose = () => setUntil(null);
      connection.current = made;
      setUntil(Date.now() + MONITOR_S * 1000);
    } catch (error) {
      fail(error);
    }
  };
  return (
    <Card
      title="MONITOR"
      actions={
        <>
          <Field label="Lines a second" class="inline" type="number" min="1" max="1000" value={perSecond} onInput={setPerSecond} />
          <button type="button" onClick={lines.clear}>
            Clear
          </button>
          {until ? (
            <button type="button" onClick={stop}>
              Stop
            </button>
          ) : (
            <Run args={["MONITOR"]} tone="main" onRun={start}>
              Start
            </Run>
          )}
        </>
      }
    >
      <p class="quiet">
        {until ? `Runs until ${clock(until)}.` : `Every command of every client, for ${MONITOR_S} seconds. It slows a busy server down.`}{" "}
        {lines.seen > 0 && plural(lines.seen, "command")}
        {lines.left > 0 && `, ${count(lines.left)} not shown`}
      </p>
      <div class="lines" role="log" aria-label="Commands of all clients" tabIndex={0}>
        <ol>
          {lines.lines.map((line) => (
            <li key={line}>
            <time>{clock(line.at)}</time> <span class="mono">{line.text}</span>
          </li>
        ))}
        </ol>
      </div>
    </Card>
  );
}
