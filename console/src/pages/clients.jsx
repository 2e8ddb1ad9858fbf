import { useState } from "preact/hooks";
import { duration, plural, size } from "../format.js";
import { number, show, text } from "../resp.js";
import { act, ask } from "../session.js";
import { Ask, Card, Field, Page, Problem, Run, Table, useLoad } from "../ui.jsx";

/** The letters of CLIENT LIST; N is for none. */
const FLAGS = {
  A: "is being closed", b: "blocked", B: "broadcast tracking", c: "closes after its reply", d: "what it watches has changed", e: "is never evicted",
  M: "this server's primary", N: "", O: "MONITOR", P: "subscribed", r: "READONLY", R: "its tracking is redirected", S: "a replica", t: "tracking",
  T: "NO-TOUCH", u: "was unblocked", U: "by a Unix socket", x: "in MULTI",
};

const flagsOf = (client) => [...(client.flags ?? "")].map((letter) => FLAGS[letter] ?? letter).filter(Boolean).join(", ");

export function Clients() {
  const [filter, setFilter] = useState("");
  const [killing, setKilling] = useState(null);
  const clients = useLoad(
    async () =>
      show(text(await ask("CLIENT", "LIST")))
        .trim()
        .split("\n")
        .map((line) => Object.fromEntries(line.split(" ").map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)])))
        .filter((client) => client.id),
    [],
    2000,
  );
  const own = useLoad(async () => number(await ask("CLIENT", "ID")), []);
  const rows = clients.value?.filter((client) => !filter || Object.values(client).some((value) => value.includes(filter)));
  const figure = (name) => (client) => Number(client[name] ?? 0);
  return (
    <Page title="Clients" actions={<Field label="Filter" class="inline" type="search" value={filter} onInput={setFilter} />}>
      <Card>
        <Problem error={clients.error} />
        {rows && <p class="quiet">{plural(rows.length, filter ? "matching client" : "client")}</p>}
        {rows && (
          <Table
            caption="Clients"
            rows={rows}
            rowKey={(client) => client.id}
            sort={{ name: "Memory", down: true }}
            empty="No client matches."
            columns={[
              { name: "Id", number: true, of: figure("id") },
              { name: "Address", of: (client) => client.addr, cell: (client) => <span class="mono">{client.addr}</span> },
              { name: "Name", of: (client) => client.name, cell: (client) => <>{client.name} <small>{client["lib-name"]}</small></> },
              { name: "User", of: (client) => client.user },
              { name: "Db", number: true, of: figure("db") },
              { name: "Age", number: true, of: figure("age"), cell: (client) => duration(client.age) },
              { name: "Idle", number: true, of: figure("idle"), cell: (client) => duration(client.idle) },
              { name: "Last command", of: (client) => client.cmd, cell: (client) => <code>{client.cmd}</code> },
              { name: "Memory", number: true, of: figure("tot-mem"), cell: (client) => size(client["tot-mem"]) },
              { name: "Unsent", number: true, of: figure("omem"), cell: (client) => size(client.omem) },
              { name: "State", of: flagsOf, cell: (client) => <span title={`flags ${client.flags}`}>{flagsOf(client) || "–"}</span> },
              {
                name: "Actions",
                hide: true,
                cell: (client) =>
                  Number(client.id) === own.value ? (
                    <small>this page</small>
                  ) : (
                    <Run args={["CLIENT", "KILL", "ID", client.id]} tone="small bad" aria-label={`Kill client ${client.id}`} onRun={() => setKilling(client)}>
                      Kill
                    </Run>
                  ),
              },
            ]}
          />
        )}
      </Card>
      {killing && (
        <Ask
          title={`Close the connection of client ${killing.id}?`}
          yes="Kill"
          args={["CLIENT", "KILL", "ID", killing.id]}
          onNo={() => setKilling(null)}
          onYes={async () => {
            await act((closed) => (Number(closed) ? "Killed" : "It had gone already"), "CLIENT", "KILL", "ID", killing.id);
            setKilling(null);
            clients.again();
          }}
        >
          <p>
            {killing.addr} {killing.name}, user {killing.user}
          </p>
        </Ask>
      )}
    </Page>
  );
}
