import { useMemo, useState } from "preact/hooks";
import { bytes, object, show } from "../resp.js";
import { act, ask } from "../session.js";
import { Ask, Card, Doc, Field, Page, Problem, Run, useLoad } from "../ui.jsx";

/** The server's own table of directives: default, values, meaning, when each can change. */
async function loadDirectives() {
  const response = await fetch("directives.json");
  if (!response.ok) throw new Error("the table of directives cannot be read");
  return response.json();
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
      <p class="quiet">{differing} of {rows.length} directives differ from their defaults.</p>
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
                  </dd>
                  <button type="button" class="small" disabled={row.change === "at start"} aria-label={`Change ${row.name}`} onClick={() => setEditing({ ...row, text: row.secret ? "" : row.value })}>
                    Change
                  </button>
                </div>
              ))}
          </dl>
        </Card>
      ))}
      {shown.length === 0 && <p class="empty">Nothing matches.</p>}
      {editing && (
        <Ask
          title={editing.name}
          yes="Set"
          tone="main"
          args={["CONFIG", "SET", editing.name, editing.secret ? "(not shown)" : bytes(editing.text)]}
          onNo={() => setEditing(null)}
          onYes={async () => {
            const answer = await act(`${editing.name} changed`, "CONFIG", "SET", editing.name, bytes(editing.text));
            if (!(answer instanceof Error)) setEditing(null);
            values.again();
          }}
        >
          <p>
            <Doc text={editing.doc} />
          </p>
          <Field label="Value" type={editing.secret ? "password" : "text"} value={editing.text} hint={editing.values} onInput={(text) => setEditing({ ...editing, text })} />
          <p class="quiet">Default: {editing.default || "(empty)"}</p>
        </Ask>
      )}
    </Page>
  );
}
