// The editors of strings, hashes, lists, sets and sorted sets. Each edit compares with what was shown (../keyspace.js).
import { useEffect, useRef, useState } from "preact/hooks";
import { count, plural, ttl } from "../format.js";
import { bytes, list, number, pairs, show, text as string } from "../resp.js";
import { useUnsaved } from "../route.js";
import { fail, toast } from "../session.js";
import { Ask, Field, Problem, copy, download, useLoad } from "../ui.jsx";
import { formOf } from "../value.js";
import { ValueField } from "./field.jsx";
import { Add, Rows, quote, useEdits } from "./rows.jsx";

/** Bytes of a long string that are edited at a time. */
const PIECE = 65536;

export function StringEditor({ place, onChange }) {
  const name = place.key;
  const [at, setAt] = useState(0);
  const [version, setVersion] = useState(0);
  const piece = useLoad(async () => {
    const [length, value] = await place.all([["STRLEN", name], ["GETRANGE", name, at, at + PIECE - 1]]);
    return { at, length: number(length), value: string(value) };
  }, [name, at]);
  const [next, setNext] = useState(undefined);
  const reload = async () => {
    await piece.again();
    setNext(undefined);
    setVersion((n) => n + 1);
    onChange();
  };
  const { change, note } = useEdits(place, reload);
  const loaded = piece.value?.at === at ? piece.value : null;
  const isChanged = loaded !== null && next !== undefined && next !== loaded.value;
  useUnsaved(`the value of ${show(name)}`, isChanged);
  if (!loaded) return <Problem error={piece.error} />;
  const { length, value } = loaded;
  const isWhole = length <= PIECE;
  const fits = isWhole || !next || next.length === value.length;
  const args = (to) => (isWhole ? ["SET", name, to, "KEEPTTL"] : ["SETRANGE", name, at, to]);
  const save = () =>
    isChanged &&
    next !== null &&
    fits &&
    change("Saved", {
      reads: [["STRLEN", name], ["GETRANGE", name, at, at + PIECE - 1]],
      differs: ([size, now]) => {
        if (now === value && (isWhole ? size === length : true)) return null;
        return `Since it was shown, another client has changed the value: it is now ${quote(now)}, ${plural(size, "byte")}.`;
      },
      writes: [args(next)],
    });
  const move = (to) => {
    setNext(undefined);
    setAt(to);
  };
  return (
    <>
      {note}
      {!isWhole && (
        <p class="pieces">
          Bytes {count(at)} to {count(Math.min(length, at + PIECE))} of {count(length)}
          <button type="button" disabled={at === 0 || isChanged} onClick={() => move(Math.max(0, at - PIECE))}>
            Before
          </button>
          <button type="button" disabled={at + PIECE >= length || isChanged} onClick={() => move(at + PIECE)}>
            Next
          </button>
        </p>
      )}
      <ValueField key={`${at} ${version}`} label="Value" value={value} rows={8} onChange={setNext} onSubmit={save} />
      {!fits && <p class="refused">A piece of a long value keeps its length: {count(value.length)} bytes, and these are {count(next.length)}.</p>}
      <div class="actions end">
        {formOf(value) === "text" && (
          <button type="button" onClick={() => copy(show(value))}>
            Copy
          </button>
        )}
        <button type="button" onClick={async () => download("value.bin", Uint8Array.from(string(await place.ask("GET", name)), (char) => char.charCodeAt(0)))}>
          Save as a file
        </button>
        <button type="button" class="main" title={isChanged && next !== null ? args("…").join(" ") : undefined} disabled={!isChanged || next === null || !fits} onClick={save}>
          Save
        </button>
      </div>
    </>
  );
}

const DEBOUNCE_MS = 300;
/** Elements that a filter shows before it waits for "Show more". */
const FOUND = 200;

/**
 * Elements of a scanned collection. A pattern is followed when the typing has stopped, and a scan that is no longer wanted
 * ends; it goes on until enough was found.
 */
function useScanned(place, command, sizes, pattern, take) {
  const [state, setState] = useState({ cursor: "0", rows: [], error: null, isDone: false, isRunning: true, visited: 0, total: 0 });
  const turn = useRef(0);
  const load = async (isMore) => {
    const mine = ++turn.current;
    const begun = isMore ? state : { cursor: "0", rows: [], visited: 0 };
    let { cursor, visited } = begun;
    const rows = [...begun.rows];
    const known = new Set(rows.map((row) => row.id));
    const set = (fields) => mine === turn.current && setState((before) => ({ ...before, cursor, rows: [...rows], visited, error: null, ...fields }));
    try {
      const total = number(await place.ask(sizes, place.key));
      do {
        const answer = await place.ask(command, place.key, cursor, "MATCH", bytes(pattern || "*"), "COUNT", pattern ? 2000 : FOUND);
        if (mine !== turn.current) return;
        const [next, found] = list(answer);
        cursor = String(next);
        const some = take(list(found)).filter((row) => !known.has(row.id) && known.add(row.id));
        rows.push(...some);
        visited += pattern ? 2000 : some.length;
        set({ isDone: cursor === "0", isRunning: true, total });
      } while (cursor !== "0" && rows.length - begun.rows.length < FOUND);
      set({ isDone: cursor === "0", isRunning: false, total });
    } catch (error) {
      if (mine === turn.current) setState((before) => ({ ...before, error, isRunning: false }));
    }
  };
  useEffect(() => {
    // Nothing that was found for another pattern is shown for this one.
    setState((before) => ({ ...before, isRunning: true, isDone: false, rows: [] }));
    const timer = setTimeout(() => load(false), pattern ? DEBOUNCE_MS : 0);
    return () => {
      clearTimeout(timer);
      turn.current++;
    };
  }, [place, pattern]);
  return { ...state, more: () => load(true), again: () => load(false), stop: () => (turn.current++, setState((before) => ({ ...before, isRunning: false }))) };
}

function Scanned({ scanned, noun, pattern, children }) {
  const { rows, isDone, isRunning, visited, total, error } = scanned;
  const share = Math.min(99, Math.floor((visited / Math.max(1, total)) * 100));
  return (
    <>
      <p class="quiet" role="status">
        {plural(rows.length, noun)}
        {pattern && isRunning && ` so far, ${share}% of ${count(total)} scanned `}
        {pattern && !isRunning && isDone && ` of ${count(total)}`}
        {!pattern && !isDone && ` of ${count(total)} shown`}
        {pattern && isRunning && (
          <button type="button" class="small" onClick={scanned.stop}>
            Stop
          </button>
        )}
      </p>
      {children}
      <Problem error={error} />
      {!isDone && !isRunning && !error && (
        <button type="button" onClick={scanned.more}>
          Show more
        </button>
      )}
    </>
  );
}

const said = (isRunning, isFound) => (isRunning ? "None so far." : isFound ? "None matches." : "Nothing here.");

export function HashEditor({ place, onChange }) {
  const name = place.key;
  const [pattern, setPattern] = useState("");
  const [expiring, setExpiring] = useState(null);
  const [left, setLeft] = useState(new Map());
  const scanned = useScanned(place, "HSCAN", "HLEN", pattern, (flat) => pairs(flat).map(([field, value]) => ({ id: field, parts: [field, value] })));
  const reload = async () => {
    await scanned.again();
    onChange();
  };
  const { change, note } = useEdits(place, reload);
  const fields = scanned.rows.map((row) => row.id);
  useEffect(() => {
    // Fields that expire by themselves; an older server has none.
    if (fields.length === 0 || scanned.isRunning) return;
    place.ask("HPTTL", name, "FIELDS", fields.length, ...fields).then(
      (answers) => setLeft(new Map(fields.map((field, at) => [field, Number(list(answers)[at])]))),
      () => setLeft(new Map()),
    );
  }, [scanned.rows, scanned.isRunning]);
  const isAsShown = (field, value) => ({
    reads: [["HGET", name, field]],
    differs: ([now]) => (now === value ? null : `Since it was shown, another client has changed the field: it is now ${quote(now)}.`),
  });
  const rows = scanned.rows.map((row) => ({ ...row, parts: [...row.parts, String(left.get(row.id) ?? -1)] }));
  return (
    <>
      {note}
      <Field label="Fields that match" value={pattern} onInput={setPattern} placeholder="*" />
      <Scanned scanned={scanned} noun="field" pattern={pattern}>
        <Rows
          label="Fields"
          columns={[{ name: "Field" }, { name: "Value", edit: true }, { name: "Expires", cell: (ms) => (ms >= 0 ? <small>{ttl(Number(ms))}</small> : <small>–</small>) }]}
          rows={rows}
          empty={said(scanned.isRunning, pattern)}
          // HSET would end the field's own expiry, which HSETEX keeps.
          onSave={({ parts: [field, value] }, next) =>
            change("Saved", { ...isAsShown(field, value), writes: [left.get(field) >= 0 ? ["HSETEX", name, "KEEPTTL", "FIELDS", 1, field, next] : ["HSET", name, field, next]] })
          }
          onRemove={({ parts: [field, value] }) => change("Removed", { ...isAsShown(field, value), writes: [["HDEL", name, field]] })}
          extra={({ parts: [field] }) => (
            <button type="button" class="small" aria-label={`TTL of ${show(field)}`} onClick={() => setExpiring({ field, text: "3600" })}>
              TTL
            </button>
          )}
        />
      </Scanned>
      <Add
        labels={["Field", "Value"]}
        onAdd={([field, value]) =>
          change("Added", { reads: [["HEXISTS", name, field]], differs: ([there]) => (there ? "There is a field of that name." : null), writes: [["HSET", name, field, value]] })
        }
      />
      {expiring && (
        <Ask
          title={`When does the field ${show(expiring.field)} expire?`}
          yes="Set"
          tone="main"
          onKeys
          args={expiring.text ? ["HEXPIRE", name, expiring.text, "FIELDS", 1, expiring.field] : ["HPERSIST", name, "FIELDS", 1, expiring.field]}
          onNo={() => setExpiring(null)}
          onYes={async () => {
            const { field, text } = expiring;
            try {
              await (text ? place.run("HEXPIRE", name, text, "FIELDS", 1, field) : place.run("HPERSIST", name, "FIELDS", 1, field));
              toast("Expiry set");
              setExpiring(null);
              reload();
            } catch (error) {
              fail(error);
            }
          }}
        >
          <Field label="Seconds" type="number" min="1" value={expiring.text} hint="Empty: never" onInput={(text) => setExpiring({ ...expiring, text })} autofocus />
        </Ask>
      )}
    </>
  );
}

export function SetEditor({ place, onChange }) {
  const name = place.key;
  const [pattern, setPattern] = useState("");
  const scanned = useScanned(place, "SSCAN", "SCARD", pattern, (items) => items.map((item) => ({ id: item, parts: [item] })));
  const reload = async () => {
    await scanned.again();
    onChange();
  };
  const { change, note } = useEdits(place, reload);
  const isThere = (member, is, words) => ({ reads: [["SISMEMBER", name, member]], differs: ([there]) => (Boolean(there) === is ? null : words) });
  return (
    <>
      {note}
      <Field label="Members that match" value={pattern} onInput={setPattern} placeholder="*" />
      <Scanned scanned={scanned} noun="member" pattern={pattern}>
        <Rows
          label="Members"
          columns={[{ name: "Member" }]}
          rows={scanned.rows}
          empty={said(scanned.isRunning, pattern)}
          onRemove={({ parts: [member] }) => change("Removed", { ...isThere(member, true, "Another client has removed it already."), writes: [["SREM", name, member]] })}
        />
      </Scanned>
      <Add labels={["Member"]} onAdd={([member]) => change("Added", { ...isThere(member, false, "It is a member already."), writes: [["SADD", name, member]] })} />
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

export function ListEditor({ place, onChange }) {
  const name = place.key;
  const [at, setAt] = useState(0);
  const page = useLoad(async () => {
    const [length, items] = await place.all([["LLEN", name], ["LRANGE", name, at, at + PAGE - 1]]);
    return { at, length: number(length), items: list(items) };
  }, [name, at]);
  const reload = async () => {
    await page.again();
    onChange();
  };
  const { change, note } = useEdits(place, reload);
  if (!page.value) return <Problem error={page.error} />;
  const { length, items } = page.value;
  // An element is known by its place: what stands before it on the page has to be what was shown, too.
  const isAsShown = (index, shown) => ({
    reads: [["LRANGE", name, page.value.at, index]],
    differs: ([now]) => {
      const all = list(now);
      if (all.length === shown.length && all.every((item, place) => item === shown[place])) return null;
      const here = all[index - page.value.at];
      return `Since it was shown, another client has changed the list: place ${index} has now ${here === undefined ? "nothing" : quote(here)}.`;
    },
  });
  const rows = items.map((item, place) => ({ id: String(page.value.at + place), parts: [String(page.value.at + place), item], shown: items.slice(0, place + 1) }));
  // LREM needs a name that nothing else has: the element gets it in the same transaction.
  const remove = ({ parts: [index], shown }) => {
    const mark = `dunlin-console-removed-${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
    return change("Removed", { ...isAsShown(Number(index), shown), writes: [["LSET", name, index, mark], ["LREM", name, 1, mark]] });
  };
  return (
    <>
      {note}
      <Pager at={at} length={length} onMove={setAt} />
      <Rows
        label="Items"
        columns={[{ name: "Index" }, { name: "Item", edit: true }]}
        rows={rows}
        onSave={({ parts: [index], shown }, next) => change("Saved", { ...isAsShown(Number(index), shown), writes: [["LSET", name, index, next]] })}
        onRemove={remove}
      />
      <Add labels={["Item at the end"]} onAdd={([item]) => change("Added", { reads: [["TYPE", name]], differs: ([type]) => (type === "list" ? null : "The list is gone."), writes: [["RPUSH", name, item]] })} />
    </>
  );
}

/** Whether scores may be those of GEOADD: whole numbers of 52 bits. */
const areGeo = (rows) => rows.length > 0 && rows.every(([, score]) => Number.isInteger(Number(score)) && score > 2 ** 40 && score < 2 ** 52);

export function ZsetEditor({ place, onChange }) {
  const name = place.key;
  const [at, setAt] = useState(0);
  const [range, setRange] = useState({ from: "", to: "", typed: { from: "", to: "" } });
  const [isGeo, setGeo] = useState(false);
  const isRanged = range.from !== "" || range.to !== "";
  const page = useLoad(async () => {
    const [from, to] = [range.from || "-inf", range.to || "+inf"];
    const [length, items] = await place.all(
      isRanged
        ? [["ZCOUNT", name, from, to], ["ZRANGE", name, from, to, "BYSCORE", "LIMIT", at, PAGE, "WITHSCORES"]]
        : [["ZCARD", name], ["ZRANGE", name, at, at + PAGE - 1, "WITHSCORES"]],
    );
    const rows = list(items).map(list);
    const places = isGeo && rows.length ? list(await place.ask("GEOPOS", name, ...rows.map(([member]) => member))) : [];
    return { at, length: number(length), items: rows.map(([member, score], row) => [member, String(score), places[row]]) };
  }, [name, at, range.from, range.to, isGeo]);
  const reload = async () => {
    await page.again();
    onChange();
  };
  const { change, note } = useEdits(place, reload);
  if (!page.value) return <Problem error={page.error} />;
  const { length, items } = page.value;
  const isAsShown = (member, score) => ({
    reads: [["ZSCORE", name, member]],
    differs: ([now]) => (now !== null && String(now) === score ? null : `Since it was shown, another client has changed the member: its score is now ${quote(now)}.`),
  });
  const geo = { name: "Longitude, latitude", cell: (pair) => (pair ? list(pair).map((one) => Number(one).toFixed(6)).join(", ") : "–") };
  return (
    <>
      {note}
      <form
        class="add"
        onSubmit={(event) => {
          event.preventDefault();
          setAt(0);
          setRange({ ...range, ...range.typed });
        }}
      >
        <Field label="Score from" value={range.typed.from} placeholder="-inf" onInput={(from) => setRange({ ...range, typed: { ...range.typed, from } })} />
        <Field label="to" value={range.typed.to} placeholder="+inf" onInput={(to) => setRange({ ...range, typed: { ...range.typed, to } })} />
        <button type="submit">Search</button>
        {areGeo(items) && (
          <label class="check">
            <input type="checkbox" checked={isGeo} onChange={(event) => setGeo(event.currentTarget.checked)} /> Scores are places
          </label>
        )}
      </form>
      <Problem error={page.error} />
      <Pager at={at} length={length} onMove={setAt} />
      <Rows
        label="Members by score"
        columns={[{ name: "Member" }, { name: "Score", edit: true }, ...(isGeo ? [geo] : [])]}
        rows={items.map((parts) => ({ id: parts[0], parts }))}
        onSave={({ parts: [member, score] }, next) => change("Saved", { ...isAsShown(member, score), writes: [["ZADD", name, next, member]] })}
        onRemove={({ parts: [member, score] }) => change("Removed", { ...isAsShown(member, score), writes: [["ZREM", name, member]] })}
      />
      <Add
        labels={["Score", "Member"]}
        onAdd={([score, member]) =>
          change("Added", { reads: [["ZSCORE", name, member]], differs: ([now]) => (now === null ? null : `It is a member already, with the score ${quote(now)}.`), writes: [["ZADD", name, score, member]] })
        }
      />
    </>
  );
}
