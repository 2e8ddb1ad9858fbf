import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { count, size, ttl } from "../format.js";
import { bytes, list, object, show, unescape } from "../resp.js";
import { act, ask, askAll, run, select, toast, useSession } from "../session.js";
import { Ask, Bytes, Card, Field, Page, Problem, Run, useLoad } from "../ui.jsx";

/** Keys that one look takes in, and rows of a folder that are drawn at once. */
const SCAN_MAX = 5000;
const ROWS = 200;
const TYPES = ["string", "hash", "list", "set", "zset", "stream"];

/** Scans on from a cursor, until enough keys were found or all were seen. */
async function scan(cursor, { pattern, type }) {
  const found = [];
  do {
    const args = ["SCAN", cursor, "MATCH", bytes(pattern), "COUNT", 1000];
    const [next, keys] = await ask(...args, ...(type ? ["TYPE", type] : []));
    cursor = next;
    const answers = await askAll(
      keys.flatMap((key) => [["TYPE", key], ["PTTL", key], ["MEMORY", "USAGE", key]]),
    );
    keys.forEach((key, at) => {
      const [kind, left, used] = answers.slice(3 * at, 3 * at + 3);
      if (kind === "none") return;
      const good = (value, other) => (value instanceof Error ? other : value);
      found.push({ key, type: good(kind, "?"), ttl: good(left, -1), bytes: good(used, 0) });
    });
  } while (cursor !== "0" && found.length < SCAN_MAX);
  return { cursor, found };
}

/** Folders of keys by the parts of their names. */
function tree(keys, separator) {
  const root = { name: "", path: "", folders: new Map(), keys: [], count: 0, bytes: 0 };
  for (const entry of keys) {
    const parts = separator ? entry.key.split(separator) : [entry.key];
    let folder = root;
    root.count++;
    root.bytes += entry.bytes;
    for (const part of parts.slice(0, -1)) {
      const path = folder.path + part + separator;
      if (!folder.folders.has(part)) {
        folder.folders.set(part, { name: part, path, folders: new Map(), keys: [], count: 0, bytes: 0 });
      }
      folder = folder.folders.get(part);
      folder.count++;
      folder.bytes += entry.bytes;
    }
    folder.keys.push(entry);
  }
  return root;
}

/** A pattern that matches what begins with a text, whatever is in it. */
function prefixed(prefix) {
  return prefix.replace(/[*?[\]\\]/g, "\\$&") + "*";
}

export function Keys() {
  const session = useSession();
  const [pattern, setPattern] = useState("*");
  const [type, setType] = useState("");
  const [expiry, setExpiry] = useState("");
  const [least, setLeast] = useState("");
  const [separator, setSeparator] = useState(":");
  const [state, setState] = useState({ cursor: "0", keys: [], seen: false, busy: false, error: null });
  const [chosen, setChosen] = useState(null);
  const [removing, setRemoving] = useState(null);
  const [adding, setAdding] = useState(false);
  const total = useLoad(() => ask("DBSIZE"), [session.database, state.keys]);
  const databases = useLoad(async () => Number(object(await ask("CONFIG", "GET", "databases")).databases), []);
  const search = useRef(null);
  const turn = useRef(0);

  const look = async (more) => {
    const mine = ++turn.current;
    setState((before) => ({ ...before, busy: true, error: null, keys: more ? before.keys : [] }));
    try {
      const { cursor, found } = await scan(more ? state.cursor : "0", { pattern: pattern || "*", type });
      if (mine !== turn.current) return;
      setState((before) => {
        const known = new Set(more ? before.keys.map((entry) => entry.key) : []);
        const fresh = found.filter((entry) => !known.has(entry.key) && known.add(entry.key));
        const keys = [...(more ? before.keys : []), ...fresh];
        return { cursor, keys, seen: cursor === "0", busy: false, error: null };
      });
    } catch (error) {
      setState((before) => ({ ...before, busy: false, error }));
    }
  };
  useEffect(() => {
    look(false);
  }, [session.database, type]);
  useEffect(() => {
    const focus = (event) => {
      if (event.key === "/" && !/INPUT|TEXTAREA|SELECT/.test(event.target.tagName)) {
        event.preventDefault();
        search.current.querySelector("input").focus();
      }
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);

  const shown = state.keys.filter(
    (entry) =>
      (expiry === "" || (expiry === "yes") === entry.ttl >= 0) &&
      (!least || entry.bytes >= Number(least) * 1024),
  );
  const root = useMemo(() => tree(shown, separator), [state.keys, expiry, least, separator]);

  return (
    <Page
      title="Keys"
      actions={
        <>
          {databases.value > 1 && (
            <Field
              label="Database"
              class="inline"
              type="select"
              value={String(session.database)}
              onInput={(value) => {
                setChosen(null);
                select(Number(value));
              }}
              list={Array.from({ length: databases.value }, (_, number) => [String(number), `db${number}`])}
            />
          )}
          <button type="button" class="main" onClick={() => setAdding(true)}>
            New key
          </button>
        </>
      }
    >
      <div class={`split ${chosen ? "has-detail" : ""}`}>
        <Card title="Browse" class="browse">
          <form
            ref={search}
            class="filters"
            role="search"
            onSubmit={(event) => {
              event.preventDefault();
              look(false);
            }}
          >
            <Field label="Pattern" value={pattern} onInput={setPattern} placeholder="user:*" />
            <Field label="Type" type="select" value={type} onInput={setType} list={[["", "all"], ...TYPES.map((name) => [name, name])]} />
            <Field label="Expiry" type="select" value={expiry} onInput={setExpiry} list={[["", "any"], ["yes", "with"], ["no", "without"]]} />
            <Field label="KiB, at least" type="number" min="0" value={least} onInput={setLeast} />
            <Field label="Separator" value={separator} onInput={setSeparator} maxLength={3} />
            <button type="submit" class="main">
              Scan
            </button>
          </form>
          <Problem error={state.error} />
          <p class="quiet" aria-live="polite">
            {state.busy ? "Scanning… " : ""}
            {count(shown.length)} keys, {size(root.bytes)}
            {total.value !== null && `, of ${count(total.value)} in db${session.database}`}
            {!state.seen && !state.busy && state.keys.length > 0 && (
              <>
                {" "}
                <button type="button" onClick={() => look(true)}>
                  Scan on
                </button>
              </>
            )}
          </p>
          <ul class="tree" role="tree" aria-label="Keys by prefix">
            <Folder folder={root} open chosen={chosen} onChoose={setChosen} onRemove={setRemoving} />
          </ul>
          {!state.busy && shown.length === 0 && <p class="empty">No key matches.</p>}
        </Card>
        {chosen && (
          <KeyView
            key={chosen}
            name={chosen}
            onClose={() => setChosen(null)}
            onGone={() => {
              setState((before) => ({ ...before, keys: before.keys.filter((entry) => entry.key !== chosen) }));
              setChosen(null);
            }}
            onRenamed={(to) => {
              setState((before) => ({
                ...before,
                keys: before.keys.map((entry) => (entry.key === chosen ? { ...entry, key: to } : entry)),
              }));
              setChosen(to);
            }}
          />
        )}
      </div>
      {removing !== null && (
        <RemovePrefix
          prefix={removing}
          onEnd={(changed) => {
            setRemoving(null);
            if (changed) look(false);
          }}
        />
      )}
      {adding && (
        <NewKey
          onEnd={(key) => {
            setAdding(false);
            if (key) {
              look(false);
              setChosen(key);
            }
          }}
        />
      )}
    </Page>
  );
}

function Folder({ folder, open: isOpen = false, chosen, onChoose, onRemove }) {
  const [open, setOpen] = useState(isOpen);
  const [rows, setRows] = useState(ROWS);
  const folders = open ? [...folder.folders.values()].sort((one, other) => other.count - one.count) : [];
  const isRoot = folder.path === "";
  const inner = open && (
    <>
      {folders.slice(0, rows).map((child) => (
        <Folder key={child.path} folder={child} chosen={chosen} onChoose={onChoose} onRemove={onRemove} />
      ))}
      {folder.keys.slice(0, rows).map((entry) => (
        <li key={entry.key} role="treeitem" aria-selected={chosen === entry.key}>
          <button type="button" class="plain leaf" onClick={() => onChoose(entry.key)} aria-current={chosen === entry.key}>
            <span class={`type ${entry.type}`}>{entry.type}</span>
            <Bytes value={entry.key.slice(folder.path.length) || entry.key} />
            {entry.ttl >= 0 && <small title="time to live">{ttl(entry.ttl)}</small>}
            <small class="number">{size(entry.bytes)}</small>
          </button>
        </li>
      ))}
      {Math.max(folder.keys.length, folders.length) > rows && (
        <li>
          <button type="button" onClick={() => setRows(rows + 1000)}>
            Show more
          </button>
        </li>
      )}
    </>
  );
  if (isRoot) return inner;
  return (
    <li role="treeitem" aria-expanded={open}>
      <div class="folder">
        <button type="button" class="plain" onClick={() => setOpen(!open)}>
          <span class="arrow" aria-hidden="true">
            {open ? "▾" : "▸"}
          </span>
          <Bytes value={folder.path.slice(0)} />
          <small class="number">
            {count(folder.count)} · {size(folder.bytes)}
          </small>
        </button>
        <button type="button" class="small" aria-label={`Delete keys that begin with ${show(folder.path)}`} onClick={() => onRemove(folder.path)}>
          Delete…
        </button>
      </div>
      {open && <ul role="group">{inner}</ul>}
    </li>
  );
}

/** Counts the keys with a prefix, asks, and unlinks them. */
function RemovePrefix({ prefix, onEnd }) {
  const [keys, setKeys] = useState([]);
  const [stage, setStage] = useState("counting");
  useEffect(() => {
    let ended = false;
    (async () => {
      let cursor = "0";
      const found = new Set();
      do {
        const [next, some] = await ask("SCAN", cursor, "MATCH", prefixed(prefix), "COUNT", 2000);
        cursor = next;
        some.forEach((key) => found.add(key));
        if (!ended) setKeys([...found]);
      } while (cursor !== "0" && !ended);
      if (!ended) setStage("asking");
    })().catch((error) => toast(error.message, "bad"));
    return () => (ended = true);
  }, []);
  const remove = async () => {
    setStage("deleting");
    let gone = 0;
    for (let at = 0; at < keys.length; at += 500) {
      try {
        gone += await run("UNLINK", ...keys.slice(at, at + 500));
      } catch (error) {
        toast(error.message, "bad");
        break;
      }
    }
    toast(`${count(gone)} keys deleted`);
    onEnd(true);
  };
  return (
    <Ask
      title={`Delete all keys that begin with ${show(prefix)}?`}
      yes={stage === "asking" ? `Delete ${count(keys.length)} keys` : stage === "counting" ? "Counting…" : "Deleting…"}
      onYes={() => stage === "asking" && remove()}
      onNo={() => onEnd(false)}
      args={["UNLINK", ...keys.slice(0, 3), ...(keys.length > 3 ? ["…"] : [])]}
    >
      <p aria-live="polite">{count(keys.length)} keys found.</p>
    </Ask>
  );
}

function NewKey({ onEnd }) {
  const [name, setName] = useState("");
  const [type, setType] = useState("string");
  const first = {
    string: (key) => ["SET", key, "", "NX"],
    hash: (key) => ["HSET", key, "field", "value"],
    list: (key) => ["RPUSH", key, "item"],
    set: (key) => ["SADD", key, "member"],
    zset: (key) => ["ZADD", key, "0", "member"],
    stream: (key) => ["XADD", key, "*", "field", "value"],
  };
  const key = unescape(name);
  const args = first[type](key);
  const make = async () => {
    if (await ask("EXISTS", key)) return toast("There is a key of that name.", "bad");
    const answer = await act(`Key ${name} made`, ...args);
    if (!(answer instanceof Error)) onEnd(key);
  };
  return (
    <Ask title="New key" yes="Make it" tone="main" args={args} onYes={() => name && make()} onNo={() => onEnd(null)}>
      <Field label="Name" value={name} onInput={setName} autofocus />
      <Field label="Type" type="select" value={type} onInput={setType} list={TYPES.map((name) => [name, name])} />
    </Ask>
  );
}

function KeyView({ name, onClose, onGone, onRenamed }) {
  const [removing, setRemoving] = useState(false);
  const [renaming, setRenaming] = useState(null);
  const [expiring, setExpiring] = useState(null);
  const head = useLoad(async () => {
    const [type, left, encoding, used, idle] = await askAll([
      ["TYPE", name],
      ["PTTL", name],
      ["OBJECT", "ENCODING", name],
      ["MEMORY", "USAGE", name],
      ["OBJECT", "IDLETIME", name],
    ]);
    if (type instanceof Error) throw type;
    const good = (value) => (value instanceof Error ? null : value);
    return { type, ttl: good(left), encoding: good(encoding), bytes: good(used), idle: good(idle) };
  }, [name]);
  const again = head.again;
  const { value } = head;
  const Editor = EDITORS[value?.type];
  return (
    <Card
      class="detail"
      title={show(name)}
      actions={
        <>
          <button type="button" onClick={() => setRenaming(show(name))}>
            Rename
          </button>
          <button type="button" class="bad" onClick={() => setRemoving(true)}>
            Delete
          </button>
          <button type="button" onClick={onClose} aria-label="Close the key">
            ×
          </button>
        </>
      }
    >
      <Problem error={head.error} />
      {value && (
        <p class="facts">
          <span class={`type ${value.type}`}>{value.type}</span>
          {value.encoding && <span>{value.encoding}</span>}
          <span>{size(value.bytes)}</span>
          {value.idle !== null && <span>idle {value.idle} s</span>}
          <button type="button" class="small" onClick={() => setExpiring(value.ttl >= 0 ? String(Math.ceil(value.ttl / 1000)) : "3600")}>
            {value.ttl === null ? "expiry" : ttl(value.ttl)}
          </button>
        </p>
      )}
      {value?.type === "none" && <p class="empty">The key is gone.</p>}
      {Editor && <Editor name={name} onChange={again} />}
      {value && !Editor && value.type !== "none" && <p class="empty">There is no editor for this type.</p>}
      {removing && (
        <Ask
          title={`Delete ${show(name)}?`}
          yes="Delete"
          args={["UNLINK", name]}
          onNo={() => setRemoving(false)}
          onYes={async () => {
            const answer = await act("Deleted", "UNLINK", name);
            setRemoving(false);
            if (!(answer instanceof Error)) onGone();
          }}
        />
      )}
      {renaming !== null && (
        <Ask
          title="Rename"
          yes="Rename"
          tone="main"
          args={["RENAMENX", name, unescape(renaming)]}
          onNo={() => setRenaming(null)}
          onYes={async () => {
            const answer = await act("Renamed", "RENAMENX", name, unescape(renaming));
            setRenaming(null);
            if (answer === 0) toast("There is a key of that name.", "bad");
            else if (!(answer instanceof Error)) onRenamed(unescape(renaming));
          }}
        >
          <Field label="New name" value={renaming} onInput={setRenaming} />
        </Ask>
      )}
      {expiring !== null && (
        <Ask
          title="Time to live"
          yes="Set"
          tone="main"
          args={expiring === "" ? ["PERSIST", name] : ["EXPIRE", name, expiring]}
          onNo={() => setExpiring(null)}
          onYes={async () => {
            await (expiring === "" ? act("The key stays", "PERSIST", name) : act("Expiry set", "EXPIRE", name, expiring));
            setExpiring(null);
            again();
          }}
        >
          <Field label="Seconds" type="number" value={expiring} onInput={setExpiring} hint="Empty for no expiry." />
        </Ask>
      )}
    </Card>
  );
}

const PIECE = 65536;

function StringEditor({ name, onChange }) {
  const [at, setAt] = useState(0);
  const [text, setText] = useState(null);
  const piece = useLoad(async () => {
    const [length, value] = await askAll([
      ["STRLEN", name],
      ["GETRANGE", name, at, at + PIECE - 1],
    ]);
    if (length instanceof Error) throw length;
    return { length, value };
  }, [name, at]);
  useEffect(() => {
    if (piece.value) setText(show(piece.value.value));
  }, [piece.value]);
  if (!piece.value || text === null) return <Problem error={piece.error} />;
  const { length, value } = piece.value;
  const isWhole = length <= PIECE;
  const next = show(value) === text ? value : unescapeIfNeeded(value, text);
  // A piece is written over; what becomes longer or shorter changes the whole.
  const args = isWhole ? ["SET", name, next, "KEEPTTL"] : ["SETRANGE", name, at, next];
  const fits = isWhole || next.length === value.length;
  const save = async () => {
    await act("Saved", ...args);
    await piece.again();
    onChange();
  };
  return (
    <>
      {!isWhole && (
        <p class="pieces">
          Bytes {count(at)} to {count(Math.min(length, at + PIECE))} of {count(length)}
          <button type="button" disabled={at === 0} onClick={() => setAt(Math.max(0, at - PIECE))}>
            Before
          </button>
          <button type="button" disabled={at + PIECE >= length} onClick={() => setAt(at + PIECE)}>
            Next
          </button>
        </p>
      )}
      <Field label="Value" type="area" rows={12} class="mono" value={text} onInput={setText} hint={fits ? "" : "A piece keeps its length."} />
      <div class="actions end">
        <Run args={args} tone="main" disabled={next === value || !fits} onRun={save}>
          Save
        </Run>
      </div>
    </>
  );
}

/** The bytes of a shown value that somebody has edited: escapes mean bytes only where the value was shown with escapes. */
function unescapeIfNeeded(before, text) {
  return show(before) === decodePlain(before) ? bytes(text) : unescape(text);
}
function decodePlain(value) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(value, (char) => char.charCodeAt(0)));
  } catch {
    return null;
  }
}

/** A row of a collection: parts that can be edited, and buttons. */
function Rows({ columns, rows, onSave, onRemove, label }) {
  const [edited, setEdited] = useState(null);
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.name} scope="col">
                {column.name}
              </th>
            ))}
            <th scope="col">
              <span class="hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={row[0] + ":" + at}>
              {columns.map((column, part) => (
                <td key={column.name}>
                  {edited?.at === at && column.edit ? (
                    <input
                      class="mono"
                      aria-label={column.name}
                      value={edited.text}
                      autofocus
                      onInput={(event) => setEdited({ at, text: event.currentTarget.value })}
                      onKeyDown={(event) => {
                        if (event.key === "Escape") setEdited(null);
                        if (event.key === "Enter") {
                          onSave(row, unescapeIfNeeded(String(row[part]), edited.text));
                          setEdited(null);
                        }
                      }}
                    />
                  ) : (
                    <Bytes value={row[part]} max={400} />
                  )}
                </td>
              ))}
              <td class="number">
                {onSave &&
                  (edited?.at === at ? (
                    <button
                      type="button"
                      class="small main"
                      onClick={() => {
                        const part = columns.findIndex((column) => column.edit);
                        onSave(row, unescapeIfNeeded(String(row[part]), edited.text));
                        setEdited(null);
                      }}
                    >
                      Save
                    </button>
                  ) : (
                    <button
                      type="button"
                      class="small"
                      aria-label={`Edit ${show(String(row[0]))}`}
                      onClick={() => setEdited({ at, text: show(String(row[columns.findIndex((column) => column.edit)])) })}
                    >
                      Edit
                    </button>
                  ))}
                {onRemove && (
                  <button type="button" class="small bad" aria-label={`Remove ${show(String(row[0]))}`} onClick={() => onRemove(row)}>
                    Remove
                  </button>
                )}
              </td>
            </tr>
          ))}
          {rows.length === 0 && (
            <tr>
              <td class="empty" colSpan={columns.length + 1}>
                Nothing here.
              </td>
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

/** Fields and a button that adds something. */
function Add({ labels, args, onAdd, said = "Added" }) {
  const [values, setValues] = useState(labels.map(() => ""));
  const command = args(values.map(unescape));
  return (
    <form
      class="add"
      onSubmit={async (event) => {
        event.preventDefault();
        const answer = await act(said, ...command);
        if (!(answer instanceof Error)) setValues(labels.map(() => ""));
        onAdd();
      }}
    >
      {labels.map((label, at) => (
        <Field
          key={label}
          label={label}
          value={values[at]}
          onInput={(value) => setValues(values.map((old, other) => (other === at ? value : old)))}
        />
      ))}
      <button type="submit" class="main" title={command.map(String).map(show).join(" ")}>
        Add
      </button>
    </form>
  );
}

/** Elements of a scanned collection, a page at a time. */
function useScanned(command, name, pattern, take) {
  const [state, setState] = useState({ cursor: "0", rows: [], error: null, done: false });
  const load = async (more) => {
    try {
      let cursor = more ? state.cursor : "0";
      const rows = more ? [...state.rows] : [];
      const from = rows.length;
      do {
        const [next, found] = await ask(command, name, cursor, "MATCH", bytes(pattern || "*"), "COUNT", 200);
        cursor = next;
        rows.push(...take(list(found)));
      } while (cursor !== "0" && rows.length - from < 200);
      setState({ cursor, rows, error: null, done: cursor === "0" });
    } catch (error) {
      setState((before) => ({ ...before, error }));
    }
  };
  useEffect(() => {
    load(false);
  }, [name, pattern]);
  return { ...state, more: () => load(true), again: () => load(false) };
}

function inPairs(flat) {
  const out = [];
  for (let at = 0; at + 1 < flat.length; at += 2) out.push([flat[at], flat[at + 1]]);
  return out;
}

function More({ scanned }) {
  return (
    <>
      <Problem error={scanned.error} />
      {!scanned.done && !scanned.error && (
        <button type="button" onClick={scanned.more}>
          Show more
        </button>
      )}
    </>
  );
}

function HashEditor({ name, onChange }) {
  const [pattern, setPattern] = useState("");
  const scanned = useScanned("HSCAN", name, pattern, inPairs);
  const then = () => {
    scanned.again();
    onChange();
  };
  return (
    <>
      <Field label="Fields that match" value={pattern} onInput={setPattern} placeholder="*" />
      <Rows
        label="Fields"
        columns={[{ name: "Field" }, { name: "Value", edit: true }]}
        rows={scanned.rows}
        onSave={async ([field], value) => {
          await act("Saved", "HSET", name, field, value);
          then();
        }}
        onRemove={async ([field]) => {
          await act("Removed", "HDEL", name, field);
          then();
        }}
      />
      <More scanned={scanned} />
      <Add labels={["Field", "Value"]} args={([field, value]) => ["HSET", name, field, value]} onAdd={then} />
    </>
  );
}

function SetEditor({ name, onChange }) {
  const [pattern, setPattern] = useState("");
  const scanned = useScanned("SSCAN", name, pattern, (items) => items.map((item) => [item]));
  const then = () => {
    scanned.again();
    onChange();
  };
  return (
    <>
      <Field label="Members that match" value={pattern} onInput={setPattern} placeholder="*" />
      <Rows
        label="Members"
        columns={[{ name: "Member" }]}
        rows={scanned.rows}
        onRemove={async ([member]) => {
          await act("Removed", "SREM", name, member);
          then();
        }}
      />
      <More scanned={scanned} />
      <Add labels={["Member"]} args={([member]) => ["SADD", name, member]} onAdd={then} />
    </>
  );
}

const PAGE = 100;

function Pager({ at, length, onMove }) {
  return (
    <p class="pieces">
      {count(length === 0 ? 0 : at + 1)} to {count(Math.min(length, at + PAGE))} of {count(length)}
      <button type="button" disabled={at === 0} onClick={() => onMove(Math.max(0, at - PAGE))}>
        Before
      </button>
      <button type="button" disabled={at + PAGE >= length} onClick={() => onMove(at + PAGE)}>
        Next
      </button>
    </p>
  );
}

function ListEditor({ name, onChange }) {
  const [at, setAt] = useState(0);
  const page = useLoad(async () => ({ length: await ask("LLEN", name), items: await ask("LRANGE", name, at, at + PAGE - 1) }), [name, at]);
  const then = () => {
    page.again();
    onChange();
  };
  if (!page.value) return <Problem error={page.error} />;
  // An item is removed by its place: it gets a name that nothing else has, which is then removed.
  const remove = async ([index]) => {
    const mark = `dunlin-console-removed-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
    const answer = await act("Removed", "LSET", name, index, mark);
    if (!(answer instanceof Error)) await act("Removed", "LREM", name, 1, mark);
    then();
  };
  return (
    <>
      <Pager at={at} length={page.value.length} onMove={setAt} />
      <Rows
        label="Items"
        columns={[{ name: "Index" }, { name: "Item", edit: true }]}
        rows={page.value.items.map((item, place) => [String(at + place), item])}
        onSave={async ([index], value) => {
          await act("Saved", "LSET", name, index, value);
          then();
        }}
        onRemove={remove}
      />
      <Add labels={["Item at the end"]} args={([item]) => ["RPUSH", name, item]} onAdd={then} />
    </>
  );
}

function ZsetEditor({ name, onChange }) {
  const [at, setAt] = useState(0);
  const page = useLoad(
    async () => ({
      length: await ask("ZCARD", name),
      items: await ask("ZRANGE", name, at, at + PAGE - 1, "WITHSCORES"),
    }),
    [name, at],
  );
  const then = () => {
    page.again();
    onChange();
  };
  if (!page.value) return <Problem error={page.error} />;
  return (
    <>
      <Pager at={at} length={page.value.length} onMove={setAt} />
      <Rows
        label="Members by score"
        columns={[{ name: "Member" }, { name: "Score", edit: true }]}
        rows={page.value.items.map(([member, score]) => [member, String(score)])}
        onSave={async ([member], score) => {
          await act("Saved", "ZADD", name, score, member);
          then();
        }}
        onRemove={async ([member]) => {
          await act("Removed", "ZREM", name, member);
          then();
        }}
      />
      <Add labels={["Score", "Member"]} args={([score, member]) => ["ZADD", name, score, member]} onAdd={then} />
    </>
  );
}

function StreamEditor({ name, onChange }) {
  const [from, setFrom] = useState("+");
  const page = useLoad(async () => {
    const [about, entries, groups] = await askAll([
      ["XINFO", "STREAM", name],
      ["XREVRANGE", name, from, "-", "COUNT", PAGE],
      ["XINFO", "GROUPS", name],
    ]);
    if (entries instanceof Error) throw entries;
    return { about: about instanceof Error ? {} : object(about), entries, groups: groups instanceof Error ? [] : groups.map(object) };
  }, [name, from]);
  const then = () => {
    page.again();
    onChange();
  };
  if (!page.value) return <Problem error={page.error} />;
  const { about, entries, groups } = page.value;
  const last = entries.at(-1)?.[0];
  return (
    <>
      <p class="facts">
        <span>{count(about.length)} entries</span>
        <span>last {show(about["last-generated-id"])}</span>
        <span>{count(groups.length)} groups</span>
      </p>
      <Rows
        label="Entries, the newest first"
        columns={[{ name: "Id" }, { name: "Fields" }]}
        rows={entries.map(([id, fields]) => [id, inPairs(fields).map(([field, value]) => `${field}: ${value}`).join("\n")])}
        onRemove={async ([id]) => {
          await act("Removed", "XDEL", name, id);
          then();
        }}
      />
      <p class="pieces">
        <button type="button" disabled={from === "+"} onClick={() => setFrom("+")}>
          Newest
        </button>
        <button type="button" disabled={entries.length < PAGE} onClick={() => setFrom("(" + last)}>
          Older
        </button>
      </p>
      <Add labels={["Field", "Value"]} args={([field, value]) => ["XADD", name, "*", field, value]} onAdd={then} />
      <h3>Groups</h3>
      {groups.map((group) => (
        <Group key={group.name} stream={name} group={group} onChange={then} />
      ))}
      {groups.length === 0 && <p class="empty">No groups.</p>}
      <Add labels={["New group", "Starts after id"]} args={([group, id]) => ["XGROUP", "CREATE", name, group, id || "$"]} onAdd={then} said="Group made" />
    </>
  );
}

function Group({ stream, group, onChange }) {
  const consumers = useLoad(async () => (await ask("XINFO", "CONSUMERS", stream, group.name)).map(object), [stream, group.name]);
  const [removing, setRemoving] = useState(false);
  return (
    <details class="group">
      <summary>
        <Bytes value={group.name} />{" "}
        <small>
          {count(group.pending)} pending, lag {group.lag === null ? "unknown" : count(group.lag)}, last {show(group["last-delivered-id"])}
        </small>
      </summary>
      <Rows
        label={`Consumers of ${show(group.name)}`}
        columns={[{ name: "Consumer" }, { name: "Pending" }, { name: "Idle, ms" }]}
        rows={(consumers.value ?? []).map((one) => [one.name, String(one.pending), String(one.idle)])}
      />
      <button type="button" class="small bad" onClick={() => setRemoving(true)}>
        Remove the group
      </button>
      {removing && (
        <Ask
          title={`Remove the group ${show(group.name)}?`}
          yes="Remove"
          args={["XGROUP", "DESTROY", stream, group.name]}
          onNo={() => setRemoving(false)}
          onYes={async () => {
            await act("Group removed", "XGROUP", "DESTROY", stream, group.name);
            setRemoving(false);
            onChange();
          }}
        />
      )}
    </details>
  );
}

const EDITORS = {
  string: StringEditor,
  hash: HashEditor,
  list: ListEditor,
  set: SetEditor,
  zset: ZsetEditor,
  stream: StreamEditor,
};
