import { useState } from "preact/hooks";
import { count, duration, size } from "../format.js";
import { act, ask } from "../session.js";
import { Ask, Card, Field, Page, Problem, Table, useLoad } from "../ui.jsx";
import { show } from "../resp.js";

export function Clients() {
  const [filter, setFilter] = useState("");
  const [killing, setKilling] = useState(null);
  const clients = useLoad(
    async () =>
      show(await ask("CLIENT", "LIST"))
        .trim()
        .split("\n")
        .map((text) => Object.fromEntries(text.split(" ").map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]))),
    [],
    2000,
  );
  const own = useLoad(() => ask("CLIENT", "ID"), []);
  const rows = (clients.value ?? []).filter((client) => !filter || Object.values(client).some((value) => value.includes(filter)));
  const number = (name) => (client) => Number(client[name] ?? 0);
  return (
    <Page title="Clients" actions={<Field label="Filter" class="inline" type="search" value={filter} onInput={setFilter} />}>
      <Card>
        <Problem error={clients.error} />
        <p class="quiet">{count(rows.length)} clients</p>
        <Table
          caption="Clients"
          rows={rows}
          rowKey={(client) => client.id}
          sort={{ name: "Memory", down: true }}
          columns={[
            { name: "Id", number: true, of: number("id") },
            { name: "Address", of: (client) => client.addr, cell: (client) => <span class="mono">{client.addr}</span> },
            { name: "Name", of: (client) => client.name, cell: (client) => <>{client.name} <small>{client["lib-name"]}</small></> },
            { name: "User", of: (client) => client.user },
            { name: "Db", number: true, of: number("db") },
            { name: "Age", number: true, of: number("age"), cell: (client) => duration(client.age) },
            { name: "Idle", number: true, of: number("idle"), cell: (client) => duration(client.idle) },
            { name: "Last command", of: (client) => client.cmd, cell: (client) => <code>{client.cmd}</code> },
            { name: "Memory", number: true, of: number("tot-mem"), cell: (client) => size(client["tot-mem"]) },
            { name: "Unsent", number: true, of: number("omem"), cell: (client) => size(client.omem) },
            { name: "Flags", of: (client) => client.flags },
            {
              name: "",
              cell: (client) =>
                Number(client.id) === own.value ? (
                  <small>this console</small>
                ) : (
                  <button type="button" class="small bad" aria-label={`Kill client ${client.id}`} onClick={() => setKilling(client)}>
                    Kill
                  </button>
                ),
            },
          ]}
        />
      </Card>
      {killing && (
        <Ask
          title={`Close the connection of client ${killing.id}?`}
          yes="Kill"
          args={["CLIENT", "KILL", "ID", killing.id]}
          onNo={() => setKilling(null)}
          onYes={async () => {
            await act("Killed", "CLIENT", "KILL", "ID", killing.id);
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
