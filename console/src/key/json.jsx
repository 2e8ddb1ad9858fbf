// The editor of JSON documents: a tree of which one container is shown at a time, in pages. Nothing of the document is read that
// is not shown; an edit sends the path and the new value.
import { useState } from "preact/hooks";
import { count } from "../format.js";
import { Refused, bytes, list, number, show, text as string } from "../resp.js";
import { Field, Problem, useLoad } from "../ui.jsx";
import { Add, Rows, quote, useEdits } from "./rows.jsx";

const PAGE = 100;
/** Bytes of found values that are shown. */
const FOUND_MAX = 65536;

/** A step of a path: an index, or a name in quotes. */
const step = (at) => (typeof at === "number" ? `[${at}]` : `["${at.replace(/["\\]/g, "\\$&")}"]`);
const pathOf = (steps) => `$${steps.map(step).join("")}`;

/** The answer of the only match: replies of RESP3 have an array around it. */
function only(reply) {
  let value = reply;
  while (Array.isArray(value)) value = value[0];
  if (value instanceof Error) throw value;
  return value ?? null;
}

const isContainer = (type) => type === "object" || type === "array";

/** A page of the container at a path, each item with its type, and its text or how long it is. */
async function children(place, steps, at) {
  const name = place.key;
  const path = pathOf(steps);
  const type = only(await place.ask("JSON.TYPE", name, path));
  if (type === null) return { type, length: 0, items: [] };
  if (!isContainer(type)) return { type, length: 1, items: [{ steps, type, value: only(await place.ask("JSON.GET", name, path)) }] };
  let items;
  let length;
  if (type === "object") {
    const names = list(list(await place.ask("JSON.OBJKEYS", name, path))[0]);
    length = names.length;
    items = names.slice(at, at + PAGE).map((one) => ({ steps: [...steps, string(one)] }));
  } else {
    length = number(only(await place.ask("JSON.ARRLEN", name, path)));
    items = Array.from({ length: Math.max(0, Math.min(PAGE, length - at)) }, (_, row) => ({ steps: [...steps, at + row] }));
  }
  if (items.length === 0) return { type, length, items };
  const types = await place.all(items.map((item) => ["JSON.TYPE", name, pathOf(item.steps)]));
  const ask = { object: "JSON.OBJLEN", array: "JSON.ARRLEN" };
  const values = await place.all(items.map((item, row) => [ask[only(types[row])] ?? "JSON.GET", name, pathOf(item.steps)]));
  return { type, length, items: items.map((item, row) => ({ ...item, type: only(types[row]), value: only(values[row]) })) };
}

/** The text of a value without the array that JSON.GET puts around the matches. */
const bare = (text) => (text === null ? null : text.slice(1, -1));

export function JsonEditor({ place, onChange }) {
  const name = place.key;
  const [steps, setSteps] = useState([]);
  const [at, setAt] = useState(0);
  const page = useLoad(async () => ({ steps, at, ...(await children(place, steps, at)) }), [name, steps, at]);
  const reload = async () => {
    await page.again();
    onChange();
  };
  const { change, note } = useEdits(place, reload);
  const go = (to) => {
    setSteps(to);
    setAt(0);
  };
  const loaded = page.value?.steps === steps && page.value.at === at ? page.value : null;
  const isAsShown = (path, shown) => ({
    reads: [["JSON.GET", name, path]],
    differs: ([now]) => (bare(now) === shown ? null : `Since it was shown, another client has changed the value: it is now ${quote(bare(now) || null)}.`),
  });
  const isThere = (path, type) => ({
    reads: [["JSON.TYPE", name, path]],
    differs: ([now]) => (only(now) === type ? null : "Since it was shown, another client has changed the document."),
  });
  const compared = (row) => (isContainer(row.item.type) ? isThere(row.path, row.item.type) : isAsShown(row.path, bare(row.item.value)));
  const rows = (loaded?.items ?? []).map((item) => {
    const label = item.steps.length ? item.steps.at(-1) : "$";
    const shown = isContainer(item.type) ? `${item.type === "object" ? "{" : "["} ${count(number(item.value))} ${item.type === "object" ? "}" : "]"}` : bare(item.value);
    return { id: pathOf(item.steps), path: pathOf(item.steps), item, parts: [String(label), item.type ?? "", shown ?? ""] };
  });
  return (
    <>
      {note}
      <p class="pieces" aria-label="Path">
        {[...Array(steps.length + 1).keys()].map((depth) => (
          <button key={depth} type="button" class="small mono" disabled={depth === steps.length} onClick={() => go(steps.slice(0, depth))}>
            {depth === 0 ? "$" : show(String(steps[depth - 1]))}
          </button>
        ))}
      </p>
      <Problem error={page.error} />
      {loaded?.type === null && <p class="empty">There is nothing at this path.</p>}
      {loaded && loaded.length > PAGE && (
        <p class="pieces">
          {count(at + 1)} to {count(Math.min(loaded.length, at + PAGE))} of {count(loaded.length)}
          <button type="button" disabled={at === 0} onClick={() => setAt(Math.max(0, at - PAGE))}>
            Before
          </button>
          <button type="button" disabled={at + PAGE >= loaded.length} onClick={() => setAt(at + PAGE)}>
            Next
          </button>
        </p>
      )}
      {loaded && (
        <Rows
          key={pathOf(steps)}
          label="Values"
          columns={[{ name: steps.length && loaded.type === "array" ? "Index" : "Name" }, { name: "Type" }, { name: "JSON", edit: true }]}
          rows={rows}
          onSave={(row, next) =>
            // A container is opened, or replaced as a whole by what is typed.
            change("Saved", { ...compared(row), writes: [["JSON.SET", name, row.path, next]] })
          }
          onRemove={(row) => change("Removed", { ...compared(row), writes: [["JSON.DEL", name, row.path]] })}
          extra={(row) =>
            isContainer(row.item.type) &&
            row.item.steps.length > steps.length && (
              <button type="button" class="small" aria-label={`Open ${row.parts[0]}`} onClick={() => go(row.item.steps)}>
                Open
              </button>
            )
          }
        />
      )}
      {loaded?.type === "object" && (
        <Add
          labels={["Name", "JSON"]}
          onAdd={([member, value]) => {
            const path = pathOf([...steps, member]);
            return change("Added", { reads: [["JSON.TYPE", name, path]], differs: ([now]) => (only(now) === null ? null : "There is a member of that name."), writes: [["JSON.SET", name, path, value]] });
          }}
        />
      )}
      {loaded?.type === "array" && (
        <Add labels={["JSON at the end"]} onAdd={([value]) => change("Added", { ...isThere(pathOf(steps), "array"), writes: [["JSON.ARRAPPEND", name, pathOf(steps), value]] })} />
      )}
      <Search place={place} />
    </>
  );
}

/** The matches of a path that is typed. */
function Search({ place }) {
  const [typed, setTyped] = useState("");
  const [path, setPath] = useState("");
  const found = useLoad(async () => {
    if (!path) return null;
    try {
      return string(await place.ask("JSON.GET", place.key, "INDENT", "  ", "NEWLINE", "\n", "SPACE", " ", bytes(path)));
    } catch (error) {
      if (error instanceof Refused) return error;
      throw error;
    }
  }, [place, path]);
  const text = found.value;
  return (
    <form
      class="add"
      onSubmit={(event) => {
        event.preventDefault();
        setPath(typed);
      }}
    >
      <Field label="Values that match a path" class="mono" value={typed} placeholder="$..name" onInput={setTyped} />
      <button type="submit">Search</button>
      <Problem error={text instanceof Error ? text : found.error} />
      {typeof text === "string" && <pre class="mono">{show(text.slice(0, FOUND_MAX)) + (text.length > FOUND_MAX ? " …" : "")}</pre>}
    </form>
  );
}
