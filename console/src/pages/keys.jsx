// The keyspace: a tree by prefix, filtered and scanned to its end by itself, in a cluster on all nodes.
import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { count, plural, size, ttl, ttlWords } from "../format.js";
import { KeyView } from "../key/view.jsx";
import { NewKey } from "../key/new.jsx";
import { exportKeys } from "../key/export.js";
import { Place, Scan, Tree, isCluster, primaries, prefixed, sortedKeys, unlink } from "../keyspace.js";
import { show } from "../resp.js";
import { lacks } from "../rights.js";
import { leave, setParams, useRoute } from "../route.js";
import { databases, fail, select, toast, useSession } from "../session.js";
import { Ask, Bytes, Card, Field, Page, Problem, Run, useLoad } from "../ui.jsx";

/** Rows of a folder that are drawn at once. */
const ROWS = 200;
/** Of so few keys all folders are open. */
const FEW = 20;
const TYPES = ["string", "hash", "list", "set", "zset", "stream", "ReJSON-RL"];

/** The scan that the filters ask for; it goes on until all keys were seen. */
function useScan(pattern, type, database) {
  const [, draw] = useReducer((n) => n + 1, 0);
  const [again, setAgain] = useState(0);
  const scan = useRef(null);
  useEffect(() => {
    scan.current = new Scan({ pattern, type }, draw);
    draw();
    return () => scan.current.stop();
  }, [pattern, type, database, again]);
  return [scan.current, () => setAgain((n) => n + 1)];
}

/** The tree of what a scan has found so far, after the filters that the console applies. */
function useTree(scan, { expiry, least, separator }) {
  const kept = useRef({});
  const sign = `${expiry} ${least} ${separator}`;
  if (kept.current.scan !== scan || kept.current.sign !== sign) kept.current = { scan, sign, tree: new Tree(separator), read: 0 };
  const { tree } = kept.current;
  const bytes = Number(least) * 1024;
  for (; scan && kept.current.read < scan.entries.length; kept.current.read++) {
    const entry = scan.entries[kept.current.read];
    if (entry.isGone || (expiry && (expiry === "yes") !== entry.ttl >= 0) || (least && !(entry.bytes >= bytes))) continue;
    tree.add(entry);
  }
  return [tree.root, () => (kept.current = {})];
}

export function Keys() {
  const session = useSession();
  const { params } = useRoute();
  const { pattern = "*", type = "", expiry = "", least = "", separator = ":", key: chosen = null } = params;
  const [typed, setTyped] = useState(pattern);
  const [opened, setOpened] = useState(0);
  const [removing, setRemoving] = useState(null);
  const [adding, setAdding] = useState(false);
  const [marked, setMarked] = useState(null);
  const number = useLoad(databases, []);
  const wanted = Number(params.db ?? session.database);
  useEffect(() => {
    select(wanted);
  }, [wanted]);
  useEffect(() => setTyped(pattern), [pattern]);
  const [scan, again] = useScan(pattern, type, session.database);
  const [root, forget] = useTree(scan, { expiry, least, separator });
  const search = useRef(null);
  const tree = useRef(null);

  const open = (key) =>
    leave(() => {
      setOpened((n) => n + 1);
      setParams({ key }, true);
    });
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
  const drop = (is) => {
    for (const entry of scan?.entries ?? []) if (is(entry)) entry.isGone = true;
    forget();
  };
  const isFiltered = type || expiry || least || pattern !== "*";

  return (
    <Page
      title="Keys"
      actions={
        <>
          {number.value > 1 && (
            <Field
              label="Database"
              class="inline"
              type="select"
              value={String(session.database)}
              onInput={(value) => leave(() => setParams({ db: value, key: "" }, true))}
              list={Array.from({ length: number.value }, (_, at) => [String(at), `db${at}`])}
            />
          )}
          <button type="button" class="main" onClick={() => setAdding(true)}>
            New key
          </button>
        </>
      }
    >
      <div class={`split ${chosen !== null ? "has-detail" : ""}`}>
        <Card title="Browse" class="browse" head={false}>
          <form
            ref={search}
            class="filters"
            role="search"
            onSubmit={(event) => {
              event.preventDefault();
              if (typed === pattern) again();
              setParams({ pattern: typed === "*" ? "" : typed });
            }}
          >
            <Field label="Pattern" value={typed} onInput={setTyped} placeholder="user:*" />
            <Field label="Type" type="select" value={type} onInput={(type) => setParams({ type })} list={[["", "all"], ...TYPES.map((name) => [name, name])]} />
            <Field label="Expiry" type="select" value={expiry} onInput={(expiry) => setParams({ expiry })} list={[["", "any"], ["yes", "with"], ["no", "without"]]} />
            <Field label="KiB, at least" type="number" min="0" value={least} onInput={(least) => setParams({ least })} />
            <Field label="Separator" value={separator} onInput={(separator) => setParams({ separator: separator === ":" ? "" : separator })} maxLength={3} />
            <button type="submit" class="main">
              Scan
            </button>
          </form>
          {scan && <Progress scan={scan} root={root} isFiltered={isFiltered} onStop={() => scan.stop()} onAgain={again} onMark={marked ? null : () => setMarked(new Set())} />}
          {marked && <Marked marked={marked} onChange={setMarked} onGone={drop} />}
          <div class="tree" ref={tree} onKeyDown={(event) => walk(event, tree.current)}>
            <Folder folder={root} isFew={scan?.isDone && root.count <= FEW} chosen={chosen} marked={marked} onMark={setMarked} onChoose={open} onRemove={setRemoving} />
          </div>
          {scan?.isDone && root.count === 0 && <p class="empty">No key matches.</p>}
        </Card>
        {chosen !== null && (
          <KeyView
            key={`${session.database} ${chosen} ${opened}`}
            name={chosen}
            onClose={() => leave(() => setParams({ key: "" }, true))}
            onReload={() => leave(() => setOpened((n) => n + 1))}
            onGone={() => {
              drop((entry) => entry.key === chosen);
              setParams({ key: "" });
            }}
            onRenamed={(to) => {
              drop((entry) => entry.key === chosen);
              again();
              setParams({ key: to });
            }}
          />
        )}
      </div>
      {removing !== null && (
        <RemovePrefix
          prefix={removing}
          onEnd={(isChanged) => {
            setRemoving(null);
            if (isChanged) again();
          }}
        />
      )}
      {adding && (
        <NewKey
          onEnd={(key) => {
            setAdding(false);
            if (key === null) return;
            again();
            open(key);
          }}
        />
      )}
    </Page>
  );
}

function Progress({ scan, root, isFiltered, onStop, onAgain, onMark }) {
  const { isNode } = useSession();
  const isRunning = !scan.isStopped;
  const found = root.count === 0 && isRunning ? "None so far" : plural(root.count, isFiltered ? "matching key" : "key");
  return (
    <div class="scan">
      <Problem error={scan.error} />
      {isNode && !isCluster() && !isRunning && (
        <p class="refused" role="alert">
          These are the keys of one node of the cluster: your user lacks {lacks("CLUSTER", "SLOTS") ?? "+cluster|myid"}, which names the others.
        </p>
      )}
      {scan.isBlind && (
        <p class="refused" role="alert">
          Your user may not see all these keys (a right ~PATTERN is missing): types, sizes and expiries of the others were not asked for.
        </p>
      )}
      <p class="quiet" role="status">
        {found}
        {!scan.isBlind && `, ${size(root.bytes)}`}
        {isRunning && ` so far: ${Math.floor(scan.share * 100)}% of ${count(scan.total)} scanned`}
        {scan.isDone && isFiltered && ` of ${count(scan.total)}`}
        {scan.isFull && ` – a browser holds no more: narrow the pattern`}
        {scan.isStopped && !scan.isDone && !scan.isFull && !scan.error && " – stopped before the end"}
        {isCluster() && ` on ${plural(primaries().length, "node")}`}
        {". "}
        {isRunning ? (
          <button type="button" class="small" onClick={onStop}>
            Stop
          </button>
        ) : (
          <button type="button" class="small" onClick={onAgain}>
            Scan again
          </button>
        )}
        {onMark && root.count > 0 && (
          <button type="button" class="small" onClick={onMark}>
            Select several
          </button>
        )}
      </p>
      {isRunning && <progress max="1" value={scan.share} aria-label="How much is scanned" />}
    </div>
  );
}

/** Arrow keys in the tree: up and down over rows, right opens, left closes or goes to the folder. */
function walk(event, tree) {
  const rows = [...tree.querySelectorAll("[data-row]")];
  const at = rows.indexOf(event.target);
  if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
  const row = rows[at];
  const isOpen = row.getAttribute("aria-expanded");
  const to = {
    ArrowDown: () => rows[at + 1],
    ArrowUp: () => rows[at - 1],
    Home: () => rows[0],
    End: () => rows.at(-1),
    ArrowRight: () => (isOpen === "false" ? row.click() : isOpen === "true" ? rows[at + 1] : null),
    ArrowLeft: () => (isOpen === "true" ? row.click() : row.closest("ul")?.parentElement?.querySelector("[data-row]")),
  }[event.key];
  if (!to) return;
  event.preventDefault();
  to()?.focus();
}

function Folder({ folder, isFew, chosen, marked, onMark, onChoose, onRemove }) {
  const [isOpen, setOpen] = useState(null);
  const [rows, setRows] = useState(ROWS);
  const isRoot = folder.path === "";
  const open = isRoot || (isOpen ?? isFew);
  const folders = open ? [...folder.folders.values()].sort((one, other) => (one.name < other.name ? -1 : 1)) : [];
  const keys = open ? sortedKeys(folder) : [];
  const mark = (entry) => {
    const next = new Set(marked);
    if (!next.delete(entry)) next.add(entry);
    onMark(next);
  };
  const inner = open && (
    <ul>
      {folders.slice(0, rows).map((child) => (
        <Folder key={child.path} folder={child} isFew={isFew} chosen={chosen} marked={marked} onMark={onMark} onChoose={onChoose} onRemove={onRemove} />
      ))}
      {keys.slice(0, rows).map((entry) => (
        <li key={entry.key} class="row">
          {marked && <input type="checkbox" checked={marked.has(entry)} onChange={() => mark(entry)} aria-label={`Select ${show(entry.key)}`} />}
          <button type="button" class="plain leaf" data-row onClick={() => onChoose(entry.key)} aria-current={chosen === entry.key}>
            {entry.type && <span class={`type ${entry.type}`}>{entry.type}</span>}
            <Bytes value={entry.key.slice(folder.path.length) || entry.key} />
            {entry.ttl >= 0 && entry.ttl !== null && <small title={ttlWords(entry.ttl)}>{ttl(entry.ttl)}</small>}
            {entry.bytes !== null && <small class="number">{size(entry.bytes)}</small>}
          </button>
        </li>
      ))}
      {Math.max(keys.length, folders.length) > rows && (
        <li>
          <button type="button" data-row onClick={() => setRows(rows + 1000)}>
            Show more of {count(folder.count)}
          </button>
        </li>
      )}
    </ul>
  );
  if (isRoot) return inner;
  return (
    <li>
      <div class="row folder">
        {marked && (
          <button type="button" class="small" aria-label={`Select all below ${show(folder.path)}`} onClick={() => onMark(new Set([...marked, ...below(folder)]))}>
            all
          </button>
        )}
        <button type="button" class="plain" data-row aria-expanded={Boolean(open)} onClick={() => setOpen(!open)}>
          <span class="arrow" aria-hidden="true">
            {open ? "▾" : "▸"}
          </span>
          <Bytes value={folder.path} />
          <small class="number">
            {count(folder.count)}
            {folder.bytes > 0 && ` · ${size(folder.bytes)}`}
          </small>
        </button>
        <button type="button" class="small quiet-button" aria-label={`Delete keys that begin with ${show(folder.path)}`} title="Delete all keys that begin so…" onClick={() => onRemove(folder.path)}>
          Delete…
        </button>
      </div>
      {inner}
    </li>
  );
}

function* below(folder) {
  yield* folder.keys;
  for (const child of folder.folders.values()) yield* below(child);
}

/** What can be done with several keys at once. */
function Marked({ marked, onChange, onGone }) {
  const [asks, setAsks] = useState(null);
  const [seconds, setSeconds] = useState("3600");
  const [busy, setBusy] = useState("");
  const entries = [...marked];
  const none = entries.length === 0;
  const keys = entries.slice(0, 3).map((entry) => entry.key);
  const rest = entries.length > 3 ? ["…"] : [];
  const work = async (what) => {
    setBusy("…");
    try {
      toast(await what());
      onChange(new Set());
    } catch (error) {
      fail(error);
    }
    setBusy("");
    setAsks(null);
  };
  return (
    <div class="marked" role="group" aria-label="Selected keys">
      <b>{plural(entries.length, "key")} selected</b>
      <Run args={["UNLINK", ...keys, ...rest]} tone="bad" disabled={none} onRun={() => setAsks("delete")}>
        Delete
      </Run>
      <Run args={["EXPIRE", keys[0] ?? "key", "seconds"]} disabled={none} onRun={() => setAsks("expire")}>
        Expire
      </Run>
      <button type="button" disabled={none} onClick={() => work(() => exportKeys(entries))}>
        Export
      </button>
      <button type="button" onClick={() => onChange(null)}>
        Done
      </button>
      {asks === "delete" && (
        <Ask
          title={`Delete ${plural(entries.length, "key")}?`}
          yes={busy || `Delete ${plural(entries.length, "key")}`}
          disabled={Boolean(busy)}
          onKeys
          args={["UNLINK", ...keys, ...rest]}
          onNo={() => setAsks(null)}
          onYes={() =>
            work(async () => {
              const gone = await unlink(entries);
              onGone((entry) => marked.has(entry));
              return `${plural(gone, "key")} deleted`;
            })
          }
        />
      )}
      {asks === "expire" && (
        <Ask
          title={`When do ${plural(entries.length, "key")} expire?`}
          yes="Set"
          tone="main"
          disabled={Boolean(busy)}
          onKeys
          args={["EXPIRE", keys[0], seconds]}
          onNo={() => setAsks(null)}
          onYes={() =>
            work(async () => {
              let set = 0;
              for (const { key } of entries) set += Number(await new Place(key).run("EXPIRE", key, seconds));
              return `The expiry of ${plural(set, "key")} is set`;
            })
          }
        >
          <Field label="Seconds" type="number" min="1" value={seconds} onInput={setSeconds} autofocus />
        </Ask>
      )}
    </div>
  );
}

/** Counts the keys with a prefix, on all nodes, asks, and unlinks them. */
function RemovePrefix({ prefix, onEnd }) {
  const session = useSession();
  const [, draw] = useReducer((n) => n + 1, 0);
  const [gone, setGone] = useState(null);
  const found = useMemo(() => new Names(prefixed(prefix), draw), []);
  useEffect(() => () => found.stop(), []);
  const { names } = found;
  const remove = async () => {
    setGone(0);
    try {
      toast(`${plural(await unlink(names, setGone), "key")} deleted`);
    } catch (error) {
      fail(error);
      if (error.gone) toast(`${plural(error.gone, "key")} were deleted before`, "bad");
    }
    onEnd(true);
  };
  const isReady = found.isDone || found.isFull;
  const yes = gone !== null ? `Deleting… ${count(gone)}` : isReady ? `Delete ${plural(names.length, "key")}` : "Counting…";
  return (
    <Ask
      title={`Delete all keys of db${session.database} that begin with ${show(prefix)}?`}
      yes={yes}
      disabled={!isReady || gone !== null || names.length === 0}
      onYes={remove}
      onNo={() => onEnd(gone !== null)}
      onKeys
      args={["UNLINK", ...names.slice(0, 3).map((entry) => entry.key), ...(names.length > 3 ? ["…"] : [])]}
    >
      <Problem error={found.error} />
      <p role="status">
        {plural(names.length, "key")} found{found.isDone ? "." : found.isFull ? ": there are more, which stay." : " so far."}
      </p>
    </Ask>
  );
}

/** A scan of names alone. */
class Names extends Scan {
  constructor(pattern, onChange) {
    super({ pattern }, onChange);
  }
  get names() {
    return this.entries;
  }
  async describe(node, keys) {
    for (const key of keys) this.entries.push({ key, node });
  }
}
