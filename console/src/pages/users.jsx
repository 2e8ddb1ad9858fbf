import { useState } from "preact/hooks";
import { date, duration } from "../format.js";
import { bytes, list, object, show, words } from "../resp.js";
import { act, ask, useSession } from "../session.js";
import { Ask, Card, Field, Page, Problem, Run, Table, useLoad } from "../ui.jsx";

export function Users() {
  const session = useSession();
  const [editing, setEditing] = useState(null);
  const [removing, setRemoving] = useState(null);
  const users = useLoad(async () => {
    const names = list(await ask("ACL", "USERS"));
    const all = [];
    for (const name of names) all.push({ name, ...object(await ask("ACL", "GETUSER", name)) });
    return all;
  }, []);
  const log = useLoad(async () => (await ask("ACL", "LOG", 50)).map(object), [], 5000);
  const rules = () => {
    try {
      return words(editing.rules);
    } catch {
      return [];
    }
  };
  return (
    <Page
      title="Users"
      actions={
        <>
          <Run args={["ACL", "SAVE"]} onRun={() => act("Written into aclfile", "ACL", "SAVE")}>
            Save
          </Run>
          <button type="button" class="main" onClick={() => setEditing({ name: "", rules: "on >password ~* &* +@all", isNew: true })}>
            New user
          </button>
        </>
      }
    >
      <Card title="Users">
        <Problem error={users.error} />
        <Table
          caption="Users"
          rows={users.value ?? []}
          rowKey={(user) => user.name}
          columns={[
            { name: "Name", of: (user) => show(user.name), cell: (user) => <>{show(user.name)} {show(user.name) === session.user && <small>you</small>}</> },
            {
              name: "State",
              of: (user) => list(user.flags).map(show).join(" "),
              cell: (user) => list(user.flags).map((flag) => <span key={flag} class={`tag ${show(flag)}`}>{show(flag)}</span>),
            },
            { name: "Commands", of: (user) => show(user.commands), cell: (user) => <code class="wrap">{show(user.commands)}</code> },
            { name: "Keys", of: (user) => show(user.keys), cell: (user) => <code class="wrap">{show(user.keys)}</code> },
            { name: "Channels", of: (user) => show(user.channels), cell: (user) => <code class="wrap">{show(user.channels)}</code> },
            { name: "Passwords", number: true, of: (user) => list(user.passwords).length },
            {
              name: "",
              cell: (user) => (
                <>
                  <button type="button" class="small" aria-label={`Change ${show(user.name)}`} onClick={() => setEditing({ name: show(user.name), rules: "" })}>
                    Change
                  </button>
                  {show(user.name) !== "default" && (
                    <button type="button" class="small bad" aria-label={`Delete ${show(user.name)}`} onClick={() => setRemoving(user.name)}>
                      Delete
                    </button>
                  )}
                </>
              ),
            },
          ]}
        />
      </Card>
      <Card title="What was denied" actions={<Run args={["ACL", "LOG", "RESET"]} onRun={() => act("Emptied", "ACL", "LOG", "RESET").then(log.again)}>Empty</Run>}>
        <Problem error={log.error} />
        <Table
          caption="Denied requests"
          rows={log.value ?? []}
          empty="Nothing was denied."
          columns={[
            { name: "Age", of: (entry) => Number(entry["age-seconds"]), cell: (entry) => <time title={date(Date.now() - entry["age-seconds"] * 1000)}>{duration(entry["age-seconds"])}</time> },
            { name: "User", of: (entry) => show(entry.username) },
            { name: "Reason", of: (entry) => show(entry.reason) },
            { name: "What", of: (entry) => show(entry.object), cell: (entry) => <code class="wrap">{show(entry.object)}</code> },
            { name: "Where", of: (entry) => show(entry.context) },
            { name: "Count", number: true, of: (entry) => Number(entry.count) },
          ]}
        />
      </Card>
      {editing && (
        <Ask
          title={editing.isNew ? "New user" : `Change ${editing.name}`}
          yes="Set"
          tone="main"
          args={["ACL", "SETUSER", bytes(editing.name), ...rules().map((rule) => (/^[><#!]/.test(rule) ? rule[0] + "(not shown)" : rule))]}
          onNo={() => setEditing(null)}
          onYes={async () => {
            const answer = await act("User changed", "ACL", "SETUSER", bytes(editing.name), ...rules());
            if (!(answer instanceof Error)) setEditing(null);
            users.again();
          }}
        >
          {editing.isNew && <Field label="Name" value={editing.name} onInput={(name) => setEditing({ ...editing, name })} />}
          <Field label="Rules" class="mono" value={editing.rules} hint="As of ACL SETUSER: on, off, >password, ~keys, &channels, +command, -@category …" onInput={(text) => setEditing({ ...editing, rules: text })} />
        </Ask>
      )}
      {removing && (
        <Ask
          title={`Delete the user ${show(removing)}?`}
          yes="Delete"
          args={["ACL", "DELUSER", removing]}
          onNo={() => setRemoving(null)}
          onYes={async () => {
            await act("User deleted", "ACL", "DELUSER", removing);
            setRemoving(null);
            users.again();
          }}
        >
          <p>Its connections are closed.</p>
        </Ask>
      )}
    </Page>
  );
}
