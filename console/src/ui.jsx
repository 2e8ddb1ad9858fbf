// The parts that pages are made of.
import { useCallback, useEffect, useId, useRef, useState } from "preact/hooks";
import { clock } from "./format.js";
import { line, show, wholeCharacters } from "./resp.js";
import { explain, lacks } from "./rights.js";
import { dismiss, isConnected, toast, useSession } from "./session.js";

const ICONS = {
  overview: "M3 13h4l3 7 4-16 3 9h4",
  keys: "M15 7a4 4 0 1 1-3.5 5.9L9 15.5V18H6.500v2.500H3v-3.500l6-6A4 4 0 0 1 15 7Zm1.500 3h.01",
  terminal: "M4 5h16v14H4zM7.500 9l3 3-3 3M13 15h4",
  slow: "M12 7v5l3 2M12 3a9 9 0 1 0 9 9",
  clients: "M8.500 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM3 20c0-3.500 2-5.500 5.500-5.500S14 16.500 14 20M16 11.500a2.500 2.500 0 1 0-1-4.800M15.500 14.600c3.400-.3 5.500 1.900 5.500 5.400",
  pubsub: "M12 12h.01M8.500 15.500a5 5 0 0 1 0-7M15.500 8.500a5 5 0 0 1 0 7M5.600 18.400a9 9 0 0 1 0-12.800M18.400 5.600a9 9 0 0 1 0 12.800",
  config: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.500v5M9 14.500v5",
  replication: "M6 4v16M18 4v16M6 12h12M14.500 8.500 18 12l-3.500 3.500",
  cluster: "M12 8.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5ZM5.500 20a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5ZM18.500 20a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5ZM10.800 8.200 6.700 15.300M13.200 8.200l4.100 7.100M8 17.500h8",
  users: "M12 3 5 6v5c0 4.500 3 8 7 10 4-2 7-5.500 7-10V6l-7-3ZM9 12l2 2 4-4",
  out: "M14 4H5v16h9M10 12h11M17.500 8.500 21 12l-3.500 3.500",
  dark: "M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8Z",
  light: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2.500v2M12 19.500v2M2.500 12h2M19.500 12h2M5.300 5.300l1.400 1.400M17.300 17.300l1.400 1.400M18.700 5.300l-1.400 1.400M6.700 17.300l-1.400 1.400",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
  more: "M5 12h.01M12 12h.01M19 12h.01",
};

export function Icon({ name }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={ICONS[name]} />
    </svg>
  );
}

/** Loads something, and again every `every` milliseconds. What is refused for good is not asked for again. */
export function useLoad(load, dependencies, every = 0) {
  const [state, setState] = useState({ value: null, error: null, loading: true });
  const turn = useRef(0);
  const again = useCallback(async () => {
    const mine = ++turn.current;
    try {
      const value = await load();
      if (mine === turn.current) setState({ value, error: null, loading: false });
    } catch (error) {
      // A lost connection is said once, above the page, which keeps its last figures.
      if (mine === turn.current) setState((before) => ({ ...before, error: isConnected() ? error : before.error, loading: false }));
    }
  }, dependencies);
  useEffect(() => {
    let timer;
    let ended = false;
    const loop = async () => {
      if (!document.hidden) await again();
      if (every && !ended) timer = setTimeout(loop, every);
    };
    loop();
    return () => {
      ended = true;
      turn.current++;
      clearTimeout(timer);
    };
  }, [again, every]);
  return { ...state, again };
}

export function Problem({ error }) {
  if (!error) return null;
  const refused = explain(error);
  return (
    <p class={refused ? "refused" : "problem"} role="alert">
      {refused ?? error.message}
    </p>
  );
}

export function Page({ title, children, actions }) {
  return (
    <>
      <header class="page-head">
        <h1>{title}</h1>
        <div class="actions">{actions}</div>
      </header>
      {children}
    </>
  );
}

export function Card({ title, children, actions, class: extra = "", head = true, ...rest }) {
  return (
    <section class={`card ${extra}`} aria-label={title} {...rest}>
      {title && head && (
        <div class="card-head">
          <h2>{title}</h2>
          <div class="actions">{actions}</div>
        </div>
      )}
      {children}
    </section>
  );
}

export function Tile({ name, value, note, tone = "" }) {
  return (
    <div class={`tile ${tone}`}>
      <dt>{name}</dt>
      <dd>
        {value}
        {note && <small>{note}</small>}
      </dd>
    </div>
  );
}

/**
 * A table whose columns can be sorted; on a phone each row is a card. A column: { name, of: row => value,
 * cell: row => node, number, hide: without a name for people who see it }. `rows` is null until they are known.
 */
export function Table({ columns, rows, sort = null, caption, empty = "Nothing here.", rowKey }) {
  const [order, setOrder] = useState(sort);
  let shown = rows ?? [];
  if (order) {
    const column = columns.find((column) => column.name === order.name);
    const sign = order.down ? -1 : 1;
    if (column) {
      shown = [...shown].sort((one, other) => {
        const [a, b] = [column.of(one), column.of(other)];
        return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
      });
    }
  }
  const turn = (name) => setOrder(order?.name === name ? { name, down: !order.down } : { name, down: true });
  return (
    <div class="table-box cards" tabIndex={0} role="region" aria-label={`Table: ${caption}`}>
      <table>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th
                key={column.name}
                scope="col"
                class={column.number ? "number" : ""}
                aria-sort={order?.name === column.name ? (order.down ? "descending" : "ascending") : undefined}
              >
                {column.of ? (
                  <button type="button" class="plain" onClick={() => turn(column.name)}>
                    {column.name}
                    <span aria-hidden="true">
                      {order?.name === column.name ? (order.down ? " ↓" : " ↑") : ""}
                    </span>
                  </button>
                ) : (
                  <span class={column.hide ? "hidden" : ""}>{column.name}</span>
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row, at) => (
            <tr key={rowKey ? rowKey(row) : at}>
              {columns.map((column) => (
                <td key={column.name} data-name={column.hide ? undefined : column.name} class={`${column.number ? "number" : ""} ${column.hide ? "row-actions" : ""}`}>
                  {column.hide ? column.cell(row) : <div class="cell">{column.cell ? column.cell(row) : column.of(row)}</div>}
                </td>
              ))}
            </tr>
          ))}
          {rows && shown.length === 0 && (
            <tr class="none">
              <td colSpan={columns.length} class="empty">
                {empty}
              </td>
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

export function Field({ label, value, onInput, type = "text", hint, list, ...rest }) {
  const id = useId();
  const shared = { id, value, onInput: (event) => onInput(event.currentTarget.value), "aria-describedby": hint ? `${id}-hint` : undefined, ...rest };
  return (
    <div class={`field ${rest.class ?? ""}`}>
      <label for={id}>{label}</label>
      {type === "area" ? <textarea {...shared} spellcheck={false} /> : null}
      {type === "select" ? (
        <select {...shared} onChange={shared.onInput}>
          {list.map(([key, text]) => (
            <option key={key} value={key}>
              {text}
            </option>
          ))}
        </select>
      ) : null}
      {type !== "area" && type !== "select" ? (
        <input type={type} autocomplete="off" autocapitalize="off" spellcheck={false} {...shared} />
      ) : null}
      {hint && <small id={`${id}-hint`}>{hint}</small>}
    </div>
  );
}

/** A choice of few things, all of which are seen. */
export function Choice({ label, value, options, onChoose }) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(([key, text]) => (
        <button key={key} type="button" aria-pressed={value === key} onClick={() => onChoose(key)}>
          {text}
        </button>
      ))}
    </div>
  );
}

/** A button that runs a command, which it shows when it is pointed at; grey, if the user may not run it. */
export function Run({ args, children, onRun, tone = "", disabled, ...rest }) {
  const right = lacks(...args);
  return (
    <button type="button" class={tone} disabled={disabled || Boolean(right)} title={right ? `Your user lacks ${right}` : line(args)} onClick={onRun} {...rest}>
      {children}
    </button>
  );
}

/**
 * A dialog that asks before something is done, and shows the command that does it, and where. Escape and Cancel leave it as
 * it was; Enter in a field does what the dialog is for.
 */
export function Ask({ title, children, args, yes, onYes, onNo, tone = "bad", disabled = false, onKeys = false }) {
  const session = useSession();
  const dialog = useRef(null);
  const titleId = useId();
  useEffect(() => {
    const before = document.activeElement;
    dialog.current.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby={titleId} onCancel={(event) => { event.preventDefault(); onNo(); }}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!disabled) onYes();
        }}
      >
        <h2 id={titleId}>{title}</h2>
        {children}
        {args && (
          <p class="where">
            {onKeys && (
              <>
                In <b>database {session.database}</b>{" "}
              </>
            )}
            on {location.host}, as {session.user}:
          </p>
        )}
        {args && <code class="command">{line(args)}</code>}
        <div class="actions end">
          <button type="button" onClick={onNo}>
            Cancel
          </button>
          <button type="submit" class={tone} disabled={disabled}>
            {yes}
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** Bytes as text, or with escapes where they are none. */
export function Bytes({ value, max = 200 }) {
  // Eight bytes a character and more are cut before they are decoded.
  const isCut = typeof value === "string" && value.length > 4 * max;
  const text = show(isCut ? wholeCharacters(value, 4 * max) : value);
  const cut = isCut || text.length > max ? text.slice(0, max) + "…" : text;
  return <span class="mono">{cut}</span>;
}

/** Writes something to the clipboard. Browsers have none for pages without TLS, other than by selecting. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    if (!isDone) return toast("The browser does not allow copying", "bad");
  }
  return toast("Copied");
}

/** Gives a file to the user. */
export function download(name, content) {
  const url = URL.createObjectURL(new Blob([content]));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** A text in which `words` are code. */
export function Doc({ text }) {
  return text.split("`").map((part, at) => (at % 2 ? <code key={at}>{part}</code> : part));
}

/** The command that was run last, at the foot of every page. */
export function CommandStrip() {
  const session = useSession();
  const [open, setOpen] = useState(false);
  const last = session.commands[0];
  return (
    <aside class="strip" aria-label="Commands that were run">
      <button type="button" class="plain" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span class="prompt" aria-hidden="true">
          ›
        </span>
        {last ? <Ran command={last} /> : <span class="quiet">Each action is a command; it is shown here.</span>}
      </button>
      {open && (
        <ol tabIndex={0} aria-label="All of them">
          {session.commands.map((command) => (
            <li key={command}>
              <time>{clock(command.at)}</time> <Ran command={command} />
            </li>
          ))}
        </ol>
      )}
    </aside>
  );
}

function Ran({ command }) {
  return (
    <>
      <code>{command.text.length > 300 ? command.text.slice(0, 300) + "…" : command.text}</code>
      <span class={`state ${command.state}`}>
        {command.state === "failed" ? command.error : command.took === undefined ? "" : `${command.took.toFixed(0)} ms`}
      </span>
    </>
  );
}

export function Toasts() {
  const session = useSession();
  return (
    <div class="toasts" role="status" aria-live="polite">
      {session.toasts.map((toast) => (
        <div key={toast.id} class={`toast ${toast.kind}`}>
          <span>{toast.text}</span>
          <button type="button" class="plain" aria-label="Dismiss" onClick={() => dismiss(toast)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
