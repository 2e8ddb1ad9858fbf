// The parts that pages are made of.
import { useCallback, useEffect, useId, useRef, useState } from "preact/hooks";
import { line, show } from "./resp.js";
import { useSession } from "./session.js";

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
  theme: "M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8Z",
  more: "M5 12h.01M12 12h.01M19 12h.01",
};

export function Icon({ name }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={ICONS[name]} />
    </svg>
  );
}

/** Loads something, and again every `every` milliseconds. */
export function useLoad(load, dependencies, every = 0) {
  const [state, setState] = useState({ value: null, error: null, loading: true });
  const turn = useRef(0);
  const again = useCallback(async () => {
    const mine = ++turn.current;
    try {
      const value = await load();
      if (mine === turn.current) setState({ value, error: null, loading: false });
    } catch (error) {
      if (mine === turn.current) setState((before) => ({ ...before, error, loading: false }));
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
  return (
    <p class="problem" role="alert">
      {error.message}
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

export function Card({ title, children, actions, class: extra = "" }) {
  return (
    <section class={`card ${extra}`} aria-label={title}>
      {title && (
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

/** A table whose columns can be sorted. A column: { name, of: row => value, cell: row => node, number }. */
export function Table({ columns, rows, sort = null, caption, empty = "Nothing here.", rowKey }) {
  const [order, setOrder] = useState(sort);
  let shown = rows;
  if (order) {
    const column = columns.find((column) => column.name === order.name);
    const sign = order.down ? -1 : 1;
    shown = [...rows].sort((one, other) => {
      const [a, b] = [column.of(one), column.of(other)];
      return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
    });
  }
  const turn = (name) => setOrder(order?.name === name ? { name, down: !order.down } : { name, down: true });
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label={caption}>
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
                  column.name
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row, at) => (
            <tr key={rowKey ? rowKey(row) : at}>
              {columns.map((column) => (
                <td key={column.name} data-name={column.name} class={column.number ? "number" : ""}>
                  {column.cell ? column.cell(row) : column.of(row)}
                </td>
              ))}
            </tr>
          ))}
          {shown.length === 0 && (
            <tr>
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
  const shared = { id, value, onInput: (event) => onInput(event.currentTarget.value), ...rest };
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
      {hint && <small>{hint}</small>}
    </div>
  );
}

/** A button that runs a command, which it shows when it is pointed at. */
export function Run({ args, children, onRun, tone = "", disabled }) {
  return (
    <button type="button" class={tone} disabled={disabled} title={line(args)} onClick={onRun}>
      {children}
    </button>
  );
}

/** A dialog that asks before something is done, and shows the command that does it. */
export function Ask({ title, children, args, yes, onYes, onNo, tone = "bad" }) {
  const dialog = useRef(null);
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  return (
    <dialog ref={dialog} onCancel={onNo} onClose={onNo} aria-label={title}>
      <h2>{title}</h2>
      {children}
      {args && <code class="command">{line(args)}</code>}
      <div class="actions end">
        <button type="button" onClick={onNo}>
          Cancel
        </button>
        <button type="button" class={tone} onClick={onYes}>
          {yes}
        </button>
      </div>
    </dialog>
  );
}

/** Bytes as text, or with escapes where they are none. */
export function Bytes({ value, max = 200 }) {
  const text = show(value);
  const cut = text.length > max ? text.slice(0, max) + "…" : text;
  return <span class="mono">{cut}</span>;
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
        <ol>
          {session.commands.map((command) => (
            <li key={command}>
              <time>{new Date(command.at).toLocaleTimeString("en-GB")}</time> <Ran command={command} />
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
          {toast.text}
        </div>
      ))}
    </div>
  );
}
