import { useMemo, useState } from "preact/hooks";
import { bytes, object, show } from "../resp.js";
import { plural } from "../format.js";
import { lacks } from "../rights.js";
import { act, ask, toast } from "../session.js";
import { Ask, Card, Doc, Field, Page, Problem, Run, useLoad } from "../ui.jsx";

/** The server's own table of directives: default, values, meaning, when each can change. */
let table;
export function loadDirectives() {
  table ??= fetch("directives.json").then((response) => {
    if (!response.ok) throw new Error("the table of directives cannot be read");
    return response.json();
  });
  table.catch(() => (table = null));
  return table;
}

/** The values of a directive that takes one of few words. */
function choices(directive) {
  const words = directive.values === "yes or no" ? ["yes", "no"] : /^[\w-]+(, [\w-]+)+$/.test(directive.values) ? directive.values.split(", ") : [];
  return words.includes(directive.value) ? words : null;
}

export function Config() {
  const [filter, setFilter] = useState("");
  const [only, setOnly] = useState(true);
  const [editing, setEditing] = useState(null);
  const table = useLoad(loadDirectives, []);
  const values = useLoad(async () => object(await ask("CONFIG", "GET", "*")), []);
  const rows = useMemo(() => {
    if (!table.value || !values.value) return [];
    return table.value.map((directive) => {
      const value = values.value[directive.name] === undefined ? null : show(values.value[directive.name]);
      const plain = value === null ? "" : value;
      return { ...directive, value, differs: value !== null && !directive.secret && plain !== directive.default };
    });
  }, [table.value, values.value]);
  const word = filter.toLowerCase();
  const shown = rows.filter((row) => (!only || row.differs || word) && (!word || row.name.includes(word) || row.doc.toLowerCase().includes(word)));
  const differing = rows.filter((row) => row.differs).length;
  const groups = [...new Set(shown.map((row) => row.group))];
  return (
    <Page
      title="Configuration"
      actions={
        <>
          <Field label="Filter" class="inline" type="search" value={filter} onInput={setFilter} />
          <label class="check">
            <input type="checkbox" checked={only} onChange={(event) => setOnly(event.currentTarget.checked)} /> Only what differs from
            the default
          </label>
          <Run args={["CONFIG", "REWRITE"]} onRun={() => act("The file has the values of now", "CONFIG", "REWRITE")}>
            Write into the file
          </Run>
        </>
      }
    >
      <Problem error={table.error ?? values.error} />
      {values.value && (
        <p class="quiet">
          {differing} of {plural(rows.length, "directive")} {differing === 1 ? "differs from its default" : "differ from their defaults"}.
        </p>
      )}
      <div class="directives-box">
      {groups.map((group) => (
        <Card key={group} title={group}>
          <dl class="directives">
            {shown
              .filter((row) => row.group === group)
              .map((row) => (
                <div key={row.name} class={row.differs ? "differs" : ""}>
                  <dt>
                    <code>{row.name}</code>
                    <small>{row.change}</small>
                  </dt>
                  <dd>
                    <p>
                      <b class="mono">{row.value === "" ? "(empty)" : row.secret ? "(not shown)" : row.value}</b>
                      {row.differs && <small> default {row.default === "" ? "(empty)" : row.default}</small>}
                    </p>
                    <p class="quiet">
                      <Doc text={row.doc} />
                    </p>
                    <button type="button" class="small" disabled={row.change === "at start" || Boolean(lacks("CONFIG", "SET"))} title={lacks("CONFIG", "SET") ? `Your user lacks ${lacks("CONFIG", "SET")}` : row.change === "at start" ? "It can be set at the start only" : undefined} aria-label={`Change ${row.name}`} onClick={() => setEditing({ ...row, text: row.secret ? "" : row.value })}>
                      Change
                    </button>
                  </dd>
                </div>
              ))}
          </dl>
        </Card>
      ))}
      </div>
      {values.value && table.value && shown.length === 0 && <p class="empty">Nothing matches.</p>}
      {editing && (
        <Ask
          title={editing.name}
          yes="Set"
          tone="main"
          args={["CONFIG", "SET", editing.name, editing.secret ? "(not shown)" : bytes(editing.text)]}
          onNo={() => setEditing(null)}
          onYes={async () => {
            const now = show(object(await ask("CONFIG", "GET", editing.name))[editing.name]);
            if (!editing.secret && now !== editing.value) {
              toast(`Another client has set ${editing.name} to ${now || "(empty)"} meanwhile: look at it again.`, "bad");
              setEditing(null);
              return values.again();
            }
            const answer = await act(`${editing.name} changed`, "CONFIG", "SET", editing.name, bytes(editing.text));
            if (!(answer instanceof Error)) setEditing(null);
            return values.again();
          }}
        >
          <p>
            <Doc text={editing.doc} />
          </p>
          {choices(editing) ? (
            <Field label="Value" type="select" value={editing.text} list={choices(editing).map((word) => [word, word])} onInput={(text) => setEditing({ ...editing, text })} autofocus />
          ) : (
            <Field label="Value" type={editing.secret ? "password" : "text"} value={editing.text} hint={editing.values} onInput={(text) => setEditing({ ...editing, text })} autofocus />
          )}
          <p class="quiet">Default: {editing.default || "(empty)"}</p>
        </Ask>
      )}
    </Page>
  );
}
