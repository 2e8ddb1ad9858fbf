import { useState } from "preact/hooks";
import { clock, count, date, latency, size } from "../format.js";
import { line, list, object, pairs, show } from "../resp.js";
import { act, ask } from "../session.js";
import { Card, Choice, Field, Page, Problem, Run, Table, useLoad } from "../ui.jsx";

const KINDS = [
  ["slow", "slow"],
  ["large-request", "large requests"],
  ["large-reply", "large replies"],
];

const isToday = (second) => date(second * 1000).slice(0, 10) === date(Date.now()).slice(0, 10);

export function Slow() {
  const [kind, setKind] = useState("slow");
  const log = useLoad(async () => list(await ask("COMMANDLOG", "GET", 128, kind)), [kind], 3000);
  const rows = log.value?.map(([id, time, value, args, peer, name]) => ({ id, time, value, args, peer, name }));
  const lines = (args) => line(list(args));
  const amount = (value) => (kind === "slow" ? latency(value) : size(value));
  return (
    <Page title="Slow log and hot keys">
      <Card
        title="Command log"
        actions={
          <>
            <Choice label="Which log" value={kind} options={KINDS} onChoose={setKind} />
            <Run args={["COMMANDLOG", "RESET", kind]} onRun={() => act("Emptied", "COMMANDLOG", "RESET", kind).then(log.again)}>
              Empty
            </Run>
          </>
        }
      >
        <Problem error={log.error} />
        {rows && <Table
          caption="Entries of the log"
          rows={rows}
          rowKey={(row) => row.id}
          sort={{ name: "When", down: true }}
          empty="The log is empty."
          columns={[
            { name: "When", of: (row) => row.id, cell: (row) => <time title={date(row.time * 1000)}>{isToday(row.time) ? clock(row.time * 1000) : date(row.time * 1000)}</time> },
            { name: kind === "slow" ? "Took" : "Size", number: true, of: (row) => row.value, cell: (row) => <b>{amount(row.value)}</b> },
            { name: "Command", of: (row) => lines(row.args), cell: (row) => <code class="wrap">{lines(row.args)}</code> },
            { name: "Client", of: (row) => show(row.peer), cell: (row) => <>{show(row.peer)} {row.name && <small>{show(row.name)}</small>}</> },
          ]}
        />}
      </Card>
      <HotKeys />
    </Page>
  );
}

function HotKeys() {
  const [seconds, setSeconds] = useState("10");
  const session = useLoad(async () => {
    const answer = await ask("HOTKEYS", "GET");
    return answer === null ? null : object(Array.isArray(answer) && answer.length === 1 ? answer[0] : answer);
  }, [], 2000);
  const start = ["HOTKEYS", "START", "METRICS", 2, "CPU", "NET", "COUNT", 20, ...(Number(seconds) ? ["DURATION", seconds] : [])];
  const found = session.value;
  const runs = found && Number(found["tracking-active"]) === 1;
  const ranks = (part, format) => {
    const name = Object.keys(found ?? {}).find((key) => key.startsWith(part));
    return pairs(found?.[name]).map(([key, value]) => ({ key: show(key), value: Number(value), text: format(Number(value)) }));
  };
  return (
    <Card
      title="Hot keys"
      actions={
        runs ? (
          <Run args={["HOTKEYS", "STOP"]} onRun={() => act("Stopped", "HOTKEYS", "STOP").then(session.again)}>
            Stop
          </Run>
        ) : (
          <>
            <Field label="Seconds" class="inline" type="number" min="0" value={seconds} onInput={setSeconds} />
            {found && (
              <Run args={["HOTKEYS", "RESET"]} onRun={() => act("Forgotten", "HOTKEYS", "RESET").then(session.again)}>
                Forget
              </Run>
            )}
            <Run args={start} tone="main" onRun={() => act("Collecting", ...start).then(session.again)}>
              Collect
            </Run>
          </>
        )
      }
    >
      <Problem error={session.error} />
      {!session.error && <p class="quiet">
        {found ? (runs ? "Workers are counting keys; each command is timed meanwhile." : "The session has ended; this is what it found.") : "Nothing is counted until a session begins."}
      </p>}
      {found && (
        <div class="two">
          <Ranks title="By processor time" rows={ranks("by-cpu", (us) => latency(us))} />
          <Ranks title="By network bytes" rows={ranks("by-net", size)} />
        </div>
      )}
    </Card>
  );
}

function Ranks({ title, rows }) {
  const most = Math.max(1, ...rows.map((row) => row.value));
  return (
    <div>
      <h3>{title}</h3>
      <ol class="ranks">
        {rows.map((row) => (
          <li key={row.key}>
            <span class="bar" style={{ width: `${(row.value / most) * 100}%` }} aria-hidden="true" />
            <span class="mono">{row.key}</span>
            <b>{row.text}</b>
          </li>
        ))}
        {rows.length === 0 && <li class="empty">None yet.</li>}
      </ol>
    </div>
  );
}
