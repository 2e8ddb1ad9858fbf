import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { RMap, RSet, Refused, list, object, pairs, show, words } from "../resp.js";
import { ask, run } from "../session.js";
import { Card, Doc, Page, useLoad } from "../ui.jsx";

/** Commands that would take the console's own connection over, and where they belong. */
const ELSEWHERE = {
  SUBSCRIBE: "Pub/Sub", PSUBSCRIBE: "Pub/Sub", SSUBSCRIBE: "Pub/Sub", MONITOR: "Pub/Sub", SYNC: "", PSYNC: "", HELLO: "", QUIT: "",
  RESET: "", REPLCONF: "",
};
const past = [];
const shown = [];

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

export function Terminal() {
  const [text, setText] = useState("");
  const [, draw] = useState(0);
  const [back, setBack] = useState(-1);
  const [at, setAt] = useState(0);
  const known = useLoad(loadDocs, []);
  const input = useRef(null);
  const end = useRef(null);
  const typed = text.trimStart().toUpperCase();

  const completions = useMemo(() => {
    if (!known.value || !typed) return [];
    const exact = known.value.has(typed.trimEnd()) && text.endsWith(" ");
    const all = [...known.value.keys()].filter((name) => name.startsWith(typed) && name !== typed.trimEnd());
    return exact && !all.length ? [] : all.sort().slice(0, 8);
  }, [typed, known.value]);
  const help = useMemo(() => {
    if (!known.value || !typed) return null;
    const [one, two] = typed.split(/\s+/);
    const name = known.value.has(`${one} ${two}`) ? `${one} ${two}` : known.value.has(one) ? one : completions[at];
    const about = name && known.value.get(name);
    return about ? { name, ...object(about) } : null;
  }, [typed, known.value, at]);

  const enter = async (event) => {
    event.preventDefault();
    const command = text.trim();
    if (!command) return;
    past.push(command);
    setText("");
    setBack(-1);
    const entry = { command, at: Date.now(), answer: undefined };
    shown.push(entry);
    if (shown.length > 100) shown.shift();
    draw((count) => count + 1);
    try {
      const args = words(command);
      const name = show(args[0]).toUpperCase();
      if (name in ELSEWHERE) {
        const page = ELSEWHERE[name];
        throw new Error(page ? `${name} takes its connection over: use the page ${page}` : `${name} would end the console's own connection`);
      }
      entry.answer = await run(...args);
    } catch (error) {
      entry.answer = error;
    }
    draw((count) => count + 1);
    requestAnimationFrame(() => end.current?.scrollIntoView({ block: "nearest" }));
  };
  const key = (event) => {
    if (event.key === "Tab" && completions.length) {
      event.preventDefault();
      setText(completions[at] + " ");
      setAt(0);
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.altKey && completions.length) {
      event.preventDefault();
      setAt((at + (event.key === "ArrowDown" ? 1 : completions.length - 1)) % completions.length);
    } else if (event.key === "ArrowUp" && past.length) {
      event.preventDefault();
      const next = Math.min(past.length - 1, back + 1);
      setBack(next);
      setText(past[past.length - 1 - next]);
    } else if (event.key === "ArrowDown") {
      const next = back - 1;
      setBack(Math.max(-1, next));
      setText(next < 0 ? "" : past[past.length - 1 - next]);
    }
  };

  return (
    <Page
      title="Commands"
      actions={
        <button
          type="button"
          onClick={() => {
            shown.length = 0;
            draw((count) => count + 1);
          }}
        >
          Clear
        </button>
      }
    >
      <div class="two terminal">
        <Card>
          <div class="screen" role="log" aria-label="Answers" tabIndex={0}>
            {shown.map((entry) => (
              <div key={entry} class="entry">
                <div class="typed">
                  <span class="prompt" aria-hidden="true">
                    ›
                  </span>
                  <code>{entry.command}</code>
                </div>
                {entry.answer === undefined ? <span class="quiet">…</span> : <Answer value={entry.answer} />}
              </div>
            ))}
            {shown.length === 0 && <p class="empty">Type a command. Tab completes, the arrow keys go through what was typed.</p>}
            <div ref={end} />
          </div>
          <form class="type" onSubmit={enter}>
            <span class="prompt" aria-hidden="true">
              ›
            </span>
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
              onInput={(event) => {
                setText(event.currentTarget.value);
                setAt(0);
              }}
              onKeyDown={key}
            />
            <button type="submit" class="main">
              Run
            </button>
          </form>
          {completions.length > 0 && (
            <ul class="completions" aria-label="Commands that begin so">
              {completions.map((name, place) => (
                <li key={name}>
                  <button
                    type="button"
                    aria-current={place === at}
                    onClick={() => {
                      setText(name + " ");
                      input.current.focus();
                    }}
                  >
                    {name}
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
    </Page>
  );
}

/** An answer as a tree: arrays, maps and sets can be folded. */
export function Answer({ value, depth = 0 }) {
  if (value instanceof Error) return <span class={`value error ${value instanceof Refused ? "" : "own"}`}>{value.message}</span>;
  if (value === null) return <span class="value null">(nil)</span>;
  if (typeof value === "boolean") return <span class="value number">{value ? "(true)" : "(false)"}</span>;
  if (typeof value === "number" || typeof value === "bigint") return <span class="value number">{String(value)}</span>;
  if (typeof value === "string") return <span class="value text">{show(value)}</span>;
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
        {items.slice(0, 1000).map((item, at) => (
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
        {items.length > 1000 && <li class="quiet">and {items.length - 1000} more</li>}
      </ol>
    </details>
  );
}
