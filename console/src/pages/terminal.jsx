// A terminal on a connection of its own. What it does to that connection concerns no other page.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { plural, size } from "../format.js";
import { askNode, isCluster, learnNodes, prefixed, primaries, redirection } from "../keyspace.js";
import { RMap, RSet, Refused, bytes, line, list, object, pairs, show, wholeCharacters, words } from "../resp.js";
import { explain } from "../rights.js";
import { ask, conceal, noted, pagesDatabase, terminal, useSession } from "../session.js";
import { Ask, Card, Doc, Page, copy, download, useLoad } from "../ui.jsx";
import { loadDirectives } from "./config.jsx";

/** Commands that never end on a connection, and where they belong. */
const ELSEWHERE = { SUBSCRIBE: "Pub/Sub", PSUBSCRIBE: "Pub/Sub", SSUBSCRIBE: "Pub/Sub", MONITOR: "Pub/Sub", SYNC: "", PSYNC: "", REPLCONF: "" };
/** Commands after which something is gone, or the server. */
const GRAVE = /^(FLUSHALL|FLUSHDB|SHUTDOWN|SWAPDB|FAILOVER|REPLICAOF|SLAVEOF|DEBUG (SEGFAULT|PANIC|RESTART|CRASH-AND-RECOVER)|SCRIPT FLUSH|FUNCTION FLUSH|ACL (DELUSER|LOAD)|CLUSTER (RESET|FLUSHSLOTS|DELSLOTS|FORGET|DRAIN)|XGROUP DESTROY|CONFIG RESETSTAT)\b/;
const SHOWN_MAX = 100;
const PAST_MAX = 200;

const shown = [];
let past = null;

/** Earlier commands, which the browser keeps: of those with passwords nothing. */
function history() {
  past ??= (() => {
    try {
      return JSON.parse(localStorage.getItem("history") ?? "[]").filter((one) => typeof one === "string");
    } catch {
      return [];
    }
  })();
  return past;
}

function remember(command, args) {
  const hasSecret = conceal(args).some((word, at) => word !== String(args[at]));
  if (hasSecret || history().at(-1) === command) return;
  past = [...history(), command].slice(-PAST_MAX);
  localStorage.setItem("history", JSON.stringify(past));
}

/** COMMAND DOCS, once. */
let docs;
function loadDocs() {
  docs ??= ask("COMMAND", "DOCS").then((answer) => {
    const out = new Map();
    for (const [name, about] of pairs(answer)) {
      const upper = show(name).toUpperCase();
      out.set(upper, about);
      for (const [inner, innerAbout] of pairs(object(about).subcommands)) {
        out.set(show(inner).toUpperCase().replace("|", " "), innerAbout);
      }
    }
    return out;
  });
  docs.catch(() => (docs = null));
  return docs;
}

/** The arguments of a command as a line. */
function syntax(args) {
  return list(args)
    .map((arg) => {
      const one = object(arg);
      const token = one.token ? show(one.token) : "";
      const type = show(one.type);
      const inner = one.arguments;
      let text =
        type === "oneof"
          ? list(inner).map((choice) => syntax([choice])).join(" | ")
          : type === "block"
            ? syntax(inner)
            : type === "pure-token"
              ? ""
              : show(one.display_text ?? one.name);
      text = [token, text].filter(Boolean).join(" ");
      const flags = list(one.flags).map(show);
      if (flags.includes("multiple")) text = `${text} [${text} …]`;
      return flags.includes("optional") ? `[${text}]` : type === "oneof" ? `<${text}>` : text;
    })
    .join(" ");
}

/** The tokens of a command's arguments, and whether it takes keys. */
function wordsOf(args, out = { tokens: new Set(), hasKeys: false }) {
  for (const arg of list(args)) {
    const one = object(arg);
    if (one.token) out.tokens.add(show(one.token));
    if (show(one.type) === "key") out.hasKeys = true;
    wordsOf(one.arguments, out);
  }
  return out;
}

/** The words that may stand where one is typed: commands, then options, directives and keys. */
async function complete(text, known) {
  const before = text.slice(0, text.length - /\S*$/.exec(text)[0].length);
  const begun = /\S*$/.exec(text)[0];
  const upper = text.trimStart().toUpperCase();
  const names = [...known.keys()].filter((name) => name.startsWith(upper) && name !== upper.trimEnd()).sort();
  if (!before.trim() || (names.length && !known.has(upper.trimEnd()))) return names.slice(0, 8).map((name) => ({ text: name, whole: name + " " }));
  const [one, two] = upper.split(/\s+/);
  const about = known.get(`${one} ${two}`) ?? known.get(one);
  if (!about) return [];
  const whole = (word) => ({ text: word, whole: `${before}${word} ` });
  if (one === "CONFIG" && ["GET", "SET"].includes(two)) {
    const directives = await loadDirectives();
    return directives.map((directive) => directive.name).filter((name) => begun && name.startsWith(begun.toLowerCase())).slice(0, 8).map(whole);
  }
  const { tokens, hasKeys } = wordsOf(object(about).arguments);
  const options = begun ? [...tokens].filter((token) => token.startsWith(begun.toUpperCase()) && token !== begun.toUpperCase()) : [];
  const keys = [];
  if (hasKeys && begun && terminal.database === pagesDatabase()) {
    // A look of one step, through the pages' connection: of a large keyspace some are found.
    for (const node of primaries().slice(0, 3)) {
      const [answer] = await askNode(node, [["SCAN", 0, "MATCH", prefixed(bytes(begun)), "COUNT", 5000]]);
      if (!(answer instanceof Error)) keys.push(...list(list(answer)[1]).map((key) => line([key])));
    }
  }
  return [...names.map((name) => ({ text: name, whole: name + " " })), ...options.map(whole), ...keys.sort().slice(0, 8).map(whole)].slice(0, 10);
}

/** What a command that was answered has done to the terminal's connection. */
function follow(args, answer) {
  const [name, second] = args.map((arg) => show(arg).toUpperCase());
  if (answer instanceof Error) return;
  if (terminal.queued && answer === "QUEUED") return void terminal.queued.push(args);
  if (name === "MULTI") terminal.queued = [];
  if (name === "EXEC" || name === "DISCARD") {
    const queued = terminal.queued ?? [];
    terminal.queued = null;
    if (Array.isArray(answer)) queued.forEach((args, at) => follow(args, answer[at]));
  }
  if (name === "SELECT") terminal.database = Number(args[1]);
  if (name === "AUTH") terminal.user = args.length > 2 ? show(args[1]) : "default";
  if (name === "HELLO") {
    const at = args.findIndex((arg) => show(arg).toUpperCase() === "AUTH");
    if (at > 0) terminal.user = show(args[at + 1]);
  }
  if (name === "RESET") Object.assign(terminal, { database: 0, queued: null, user: "default", isSilent: false });
  if (name === "QUIT") terminal.close();
  if (name === "CLIENT" && second === "REPLY") terminal.isSilent = false;
}

/** Runs a command, on another node if the server says so; the answer. */
async function execute(args, entry) {
  const [name, second, third] = args.map((arg) => show(arg).toUpperCase());
  let connection = await terminal.open(terminal.node);
  const isTurnedOff = name === "CLIENT" && second === "REPLY" && ["OFF", "SKIP"].includes(third);
  if (isTurnedOff || (terminal.isSilent && !(name === "CLIENT" && second === "REPLY" && third === "ON"))) {
    await connection.tell(args);
    if (third === "OFF") terminal.isSilent = true;
    return undefined;
  }
  for (let hops = 0; ; hops++) {
    const [answer] = await connection.pipeline([args]);
    const to = redirection(answer);
    if (!to || hops === 4 || terminal.queued) return answer;
    entry.notes.push(`→ ${answer.message}`);
    connection = await terminal.open(to.node);
    if (to.kind === "ASK") await connection.pipeline([["ASKING"]]);
  }
}

export function Terminal() {
  const session = useSession();
  const [text, setText] = useState("");
  const [, draw] = useState(0);
  const [back, setBack] = useState(-1);
  const [at, setAt] = useState(0);
  const [grave, setGrave] = useState(null);
  const [found, setFound] = useState([]);
  const known = useLoad(loadDocs, []);
  const input = useRef(null);
  const end = useRef(null);
  const typed = text.trimStart().toUpperCase();
  const redraw = () => draw((count) => count + 1);
  useEffect(() => void learnNodes().then(redraw), []);

  useEffect(() => {
    setAt(0);
    if (!known.value || !typed) return setFound([]);
    let isOld = false;
    const timer = setTimeout(
      () => complete(text, known.value).then((found) => isOld || setFound(found), () => isOld || setFound([])),
      /\s/.test(typed) ? 150 : 0,
    );
    return () => {
      isOld = true;
      clearTimeout(timer);
    };
  }, [text, known.value]);
  const help = useMemo(() => {
    if (!known.value || !typed) return null;
    const [one, two] = typed.split(/\s+/);
    const name = known.value.has(`${one} ${two}`) ? `${one} ${two}` : known.value.has(one) ? one : found[at]?.text;
    const about = name && known.value.get(name);
    return about ? { name, ...object(about) } : null;
  }, [typed, known.value, at, found]);

  const enter = (event) => {
    event.preventDefault();
    const command = text.trim();
    if (!command) return;
    let args;
    try {
      args = words(command);
    } catch (error) {
      shown.push({ command, notes: [], prompt: prompt(), answer: error });
      return redraw();
    }
    if (GRAVE.test(args.map(show).join(" ").toUpperCase())) return setGrave(args);
    return start(args, command);
  };
  const start = async (args, command) => {
    setGrave(null);
    setText("");
    setBack(-1);
    remember(command, args);
    const entry = { command: line(conceal(args)), at: Date.now(), answer: undefined, notes: [], prompt: prompt(), isRunning: true };
    shown.push(entry);
    if (shown.length > SHOWN_MAX) shown.shift();
    redraw();
    try {
      const name = show(args[0]).toUpperCase();
      if (name in ELSEWHERE) {
        throw new Error(ELSEWHERE[name] ? `${name} never ends: use the page ${ELSEWHERE[name]}` : `${name} is for servers`);
      }
      entry.answer = await noted(args, () => execute(args, entry));
      follow(args, entry.answer);
      if (entry.answer === undefined) entry.notes.push("(no reply: CLIENT REPLY)");
    } catch (error) {
      entry.answer = error;
    }
    entry.isRunning = false;
    redraw();
    requestAnimationFrame(() => end.current?.scrollIntoView({ block: "nearest" }));
  };
  const take = (one) => {
    setText(one.whole);
    setAt(0);
    input.current.focus();
  };
  const key = (event) => {
    const earlier = history();
    if (event.key === "Tab" && !event.shiftKey && found.length) {
      event.preventDefault();
      take(found[at]);
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.altKey && found.length) {
      event.preventDefault();
      setAt((at + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length);
    } else if (event.key === "ArrowUp" && earlier.length) {
      event.preventDefault();
      const next = Math.min(earlier.length - 1, back + 1);
      setBack(next);
      setText(earlier[earlier.length - 1 - next]);
    } else if (event.key === "ArrowDown" && back >= 0) {
      const next = back - 1;
      setBack(next);
      setText(next < 0 ? "" : earlier[earlier.length - 1 - next]);
    } else if (event.key === "Escape") {
      setFound([]);
    }
  };
  const prompt = () => [terminal.node, terminal.user && terminal.user !== session.user ? terminal.user : "", `db${terminal.database}`, terminal.queued ? "MULTI" : ""].filter(Boolean).join(" ");
  const last = shown.at(-1);

  return (
    <Page
      title="Commands"
      actions={
        <>
          <button
            type="button"
            title="Ends the terminal's connection, with what runs, waits or is queued on it"
            onClick={() => {
              terminal.close();
              redraw();
            }}
          >
            {last?.isRunning ? "Stop" : "New connection"}
          </button>
          <button
            type="button"
            onClick={() => {
              shown.length = 0;
              redraw();
            }}
          >
            Clear
          </button>
        </>
      }
    >
      <div class="two terminal">
        <Card>
          <div class="screen" role="log" aria-label="Answers" tabIndex={0}>
            {shown.map((entry) => (
              <Entry key={entry} entry={entry} answer={entry.answer} isRunning={entry.isRunning} />
            ))}
            {shown.length === 0 && (
              <p class="empty">
                Type a command. Tab completes, the arrow keys go through what was typed. The terminal has a connection of its own: SELECT or MULTI here changes no other page.
                {isCluster() && " Redirections to other nodes are followed."}
              </p>
            )}
            <div ref={end} />
          </div>
          <form class="type" onSubmit={enter}>
            <span class="prompt">{prompt()} ›</span>
            <input
              ref={input}
              class="mono"
              aria-label="Command"
              aria-describedby="command-help"
              autocomplete="off"
              autocapitalize="off"
              spellcheck={false}
              value={text}
              autofocus
              onInput={(event) => setText(event.currentTarget.value)}
              onKeyDown={key}
            />
            <button type="submit" class="main">
              Run
            </button>
          </form>
          {found.length > 0 && (
            <ul class="completions" aria-label="What may follow">
              {found.map((one, place) => (
                <li key={one.text}>
                  <button type="button" aria-current={place === at} onClick={() => take(one)}>
                    {one.text}
                  </button>
                </li>
              ))}
            </ul>
          )}
        </Card>
        <Card title={help?.name ?? "Documentation"} class="help">
          <div id="command-help">
            {help ? (
              <>
                <code class="command">
                  {help.name} {syntax(help.arguments)}
                </code>
                <p>
                  <Doc text={show(help.summary)} />
                </p>
                <dl class="pairs">
                  <dt>Since</dt>
                  <dd>{show(help.since)}</dd>
                  <dt>Time</dt>
                  <dd>{show(help.complexity)}</dd>
                  <dt>Group</dt>
                  <dd>{show(help.group)}</dd>
                </dl>
              </>
            ) : (
              <p class="quiet">What is known of a command stands here while it is typed.</p>
            )}
          </div>
        </Card>
      </div>
      {grave && (
        <Ask title="Run this?" yes="Run" args={conceal(grave)} onNo={() => setGrave(null)} onYes={() => start(grave, text.trim())}>
          <p>It cannot be undone. The terminal is in database {terminal.database}{terminal.node ? ` on ${terminal.node}` : ""}.</p>
        </Ask>
      )}
    </Page>
  );
}

/** A command and its answer. Large ones are drawn once, not at each key that is typed. */
function Entry({ entry, answer, isRunning }) {
  return useMemo(
    () => (
      <div class="entry">
        <div class="typed">
          <span class="prompt">{entry.prompt} ›</span>
          <code>{entry.command}</code>
        </div>
        {entry.notes.map((note) => (
          <p key={note} class="quiet">
            {note}
          </p>
        ))}
        {answer === undefined ? isRunning && <span class="quiet">…</span> : <Answer value={answer} />}
      </div>
    ),
    [entry, answer, isRunning],
  );
}

/** Bytes of a string that are shown at first: a browser takes long to draw many. */
const CUT = 65536;

function Text({ value }) {
  const [max, setMax] = useState(CUT);
  if (value.length <= CUT) return <span class="value text">{show(value)}</span>;
  const pieces = [];
  for (let at = 0; at < Math.min(max, value.length); ) {
    const piece = wholeCharacters(value.slice(at, at + CUT + 4), Math.min(CUT, value.length - at));
    pieces.push(piece);
    at += piece.length;
  }
  return (
    <div class="value text">
      {pieces.map((piece, at) => (
        <div key={at} class="piece">
          {show(piece)}
        </div>
      ))}
      <p class="pieces">
        {max < value.length && (
          <>
            {size(CUT * Math.round(max / CUT))} of {size(value.length)} are shown.
            <button type="button" class="small" onClick={() => setMax(Infinity)}>
              Show all
            </button>
          </>
        )}
        <button type="button" class="small" onClick={() => copy(show(value))}>
          Copy
        </button>
        <button type="button" class="small" onClick={() => download("reply.bin", Uint8Array.from(value, (char) => char.charCodeAt(0)))}>
          Save as a file
        </button>
      </p>
    </div>
  );
}

const ITEMS = 200;

/** An answer as a tree: arrays, maps and sets can be folded. */
export function Answer({ value, depth = 0 }) {
  const [max, setMax] = useState(ITEMS);
  if (value instanceof Error) {
    const right = explain(value);
    return (
      <span class={`value error ${value instanceof Refused ? "" : "own"}`}>
        {value.message}
        {right && <small> {right}</small>}
      </span>
    );
  }
  if (value === null) return <span class="value null">(nil)</span>;
  if (typeof value === "boolean") return <span class="value number">{value ? "(true)" : "(false)"}</span>;
  if (typeof value === "number" || typeof value === "bigint") return <span class="value number">{String(value)}</span>;
  if (typeof value === "string") return <Text value={value} />;
  const isMap = value instanceof RMap;
  const items = isMap ? value.entries : list(value);
  const name = isMap ? "map" : value instanceof RSet ? "set" : "array";
  if (items.length === 0) return <span class="value null">(empty {name})</span>;
  return (
    <details class="value" open={depth < 2}>
      <summary>
        {name} of {items.length}
      </summary>
      <ol>
        {items.slice(0, max).map((item, at) => (
          <li key={at}>
            {isMap ? (
              <>
                <Answer value={item[0]} depth={depth + 1} /> <span class="quiet">→</span> <Answer value={item[1]} depth={depth + 1} />
              </>
            ) : (
              <Answer value={item} depth={depth + 1} />
            )}
          </li>
        ))}
        {items.length > max && (
          <li>
            <button type="button" class="small" onClick={() => setMax(10 * max)}>
              {plural(items.length - max, "more", "more")}
            </button>
          </li>
        )}
      </ol>
    </details>
  );
}
