// Users and their rules. A new user begins without any right; a change begins with the rules that the user has.
import { useState } from "preact/hooks";
import { date, duration } from "../format.js";
import { bytes, list, number, object, show } from "../resp.js";
import { act, ask, askAll, fail, toast, useSession } from "../session.js";
import { Ask, Card, Choice, Field, Page, Problem, Run, Table, copy, useLoad } from "../ui.jsx";

async function loadUsers() {
  const names = list(await ask("ACL", "USERS"));
  const all = await askAll(names.map((name) => ["ACL", "GETUSER", name]));
  const refused = all.find((one) => one instanceof Error);
  if (refused) throw refused;
  return names.map((name, at) => ({ name, ...object(all[at]) }));
}

/** The rules of a user as ACL SETUSER takes them; his passwords are no part of them. */
function rulesOf(user) {
  const flags = list(user.flags).map(show);
  const selectors = list(user.selectors).map((selector) => {
    const { commands, keys, channels } = object(selector);
    return `(${[commands, keys, channels].map(show).filter(Boolean).join(" ")})`;
  });
  return {
    isOn: flags.includes("on"),
    keys: show(user.keys),
    channels: show(user.channels),
    commands: show(user.commands),
    databases: user.databases === undefined ? null : show(user.databases),
    selectors: selectors.join(" "),
    isOpen: flags.includes("nopass"),
    passwords: list(user.passwords).length,
  };
}

const NONE = { isOn: false, keys: "", channels: "", commands: "-@all", databases: null, selectors: "", isOpen: false, passwords: 0 };

/** 32 characters of 64: 192 bits that nobody can guess. */
function makePassword() {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return [...crypto.getRandomValues(new Uint8Array(32))].map((byte) => alphabet[byte % 64]).join("");
}

/** Selectors in parentheses, of which each is one argument. */
const split = (text) => text.match(/\([^)]*\)|\S+/g) ?? [];

/** The words of ACL SETUSER that make the user what the form says. */
function setuser({ name, isOn, keys, channels, commands, databases, selectors, password, typed, before }) {
  const secret = { keep: [], generate: ["resetpass", `>${typed}`], set: ["resetpass", `>${typed}`], add: [`>${typed}`], open: ["nopass"] }[password];
  const changed = (field, reset, text = String(field)) => (before[field] === text && before !== NONE ? [] : [reset, ...split(text)]);
  return [
    "ACL",
    "SETUSER",
    bytes(name),
    isOn ? "on" : "off",
    ...secret,
    ...changed("keys", "resetkeys", keys).map(bytes),
    ...changed("channels", "resetchannels", channels).map(bytes),
    // Rules of commands are obeyed in their order, from nothing.
    ...(before.commands === commands && before !== NONE ? [] : [...(/^[+-]@all( |$)/.test(commands) ? [] : ["-@all"]), ...split(commands).map(bytes)]),
    ...(before.selectors === selectors ? [] : ["clearselectors", ...split(selectors).map(bytes)]),
    ...(databases === null || before.databases === databases ? [] : ["resetdbs", ...split(databases).map(bytes)]),
  ];
}

export function Users() {
  const session = useSession();
  const [editing, setEditing] = useState(null);
  const [removing, setRemoving] = useState(null);
  const users = useLoad(loadUsers, []);
  const log = useLoad(async () => list(await ask("ACL", "LOG", 50)).map(object), [], 5000);
  const change = (user) => {
    const before = rulesOf(user);
    setEditing({ ...before, before, name: show(user.name), password: "keep", typed: "" });
  };
  return (
    <Page
      title="Users"
      actions={
        <>
          <Run args={["ACL", "SAVE"]} onRun={() => act("Written into aclfile", "ACL", "SAVE")}>
            Save
          </Run>
          <Run args={["ACL", "SETUSER"]} tone="main" onRun={() => setEditing({ ...NONE, before: NONE, name: "", password: "generate", typed: makePassword(), isNew: true })}>
            New user
          </Run>
        </>
      }
    >
      <Card title="Users">
        <Problem error={users.error} />
        {users.value && (
          <Table
            caption="Users"
            rows={users.value}
            rowKey={(user) => user.name}
            columns={[
              { name: "Name", of: (user) => show(user.name), cell: (user) => <>{show(user.name)} {show(user.name) === session.user && <small>you</small>}</> },
              {
                name: "State",
                of: (user) => list(user.flags).map(show).join(" "),
                cell: (user) => list(user.flags).map((flag) => <span key={flag} class={`tag ${show(flag)}`}>{show(flag)}</span>),
              },
              { name: "Commands", of: (user) => show(user.commands), cell: (user) => <code class="wrap">{show(user.commands)}</code> },
              { name: "Keys", of: (user) => show(user.keys), cell: (user) => <code class="wrap">{show(user.keys) || "none"}</code> },
              { name: "Channels", of: (user) => show(user.channels), cell: (user) => <code class="wrap">{show(user.channels) || "none"}</code> },
              { name: "Passwords", number: true, of: (user) => list(user.passwords).length },
              {
                name: "Actions",
                hide: true,
                cell: (user) => (
                  <>
                    <Run args={["ACL", "SETUSER", user.name]} tone="small" aria-label={`Change ${show(user.name)}`} onRun={() => change(user)}>
                      Change
                    </Run>
                    {show(user.name) !== "default" && (
                      <Run args={["ACL", "DELUSER", user.name]} tone="small bad" aria-label={`Delete ${show(user.name)}`} onRun={() => setRemoving(user.name)}>
                        Delete
                      </Run>
                    )}
                  </>
                ),
              },
            ]}
          />
        )}
      </Card>
      <Card
        title="What was denied"
        actions={
          log.value && (
            <Run args={["ACL", "LOG", "RESET"]} onRun={() => act("Emptied", "ACL", "LOG", "RESET").then(log.again)}>
              Empty
            </Run>
          )
        }
      >
        <Problem error={log.error} />
        {log.value && (
          <Table
            caption="Denied requests"
            rows={log.value}
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
        )}
      </Card>
      {editing && <UserForm user={editing} onChange={setEditing} onEnd={() => (setEditing(null), users.again())} />}
      {removing && (
        <Ask
          title={`Delete the user ${show(removing)}?`}
          yes="Delete"
          args={["ACL", "DELUSER", removing]}
          onNo={() => setRemoving(null)}
          onYes={async () => {
            await act((gone) => (number(gone) ? "User deleted" : "There was no such user"), "ACL", "DELUSER", removing);
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

const PASSWORDS = [
  ["keep", "as it is"],
  ["generate", "a generated one"],
  ["set", "this one instead"],
  ["add", "this one, too"],
  ["open", "none is asked for"],
];

function UserForm({ user, onChange, onEnd }) {
  const session = useSession();
  const [made, setMade] = useState(null);
  const set = (field) => (value) => onChange({ ...user, [field]: value });
  const args = setuser(user);
  const shown = args.map((word, at) => (at > 2 && /^[><#!]/.test(word) ? word[0] + "(not shown)" : word));
  const needsText = ["set", "add"].includes(user.password);
  const isRight = user.name.trim() !== "" && !/\s/.test(user.name) && (!needsText || user.typed);
  const save = async () => {
    try {
      const now = await ask("ACL", "GETUSER", bytes(user.name));
      if (user.isNew && now !== null) return toast("There is a user of that name.", "bad");
      if (!user.isNew && (now === null || JSON.stringify(rulesOf(object(now))) !== JSON.stringify(user.before))) {
        toast("Another client has changed this user meanwhile: look at the rules again.", "bad");
        return onEnd();
      }
      const answer = await act(user.isNew ? "User made" : "User changed", ...args);
      if (answer instanceof Error) return undefined;
      if (user.password === "generate") return setMade(user.typed);
      return onEnd();
    } catch (error) {
      return fail(error);
    }
  };
  if (made) {
    return (
      <Ask title={`The password of ${user.name}`} yes="I have it" tone="main" onYes={onEnd} onNo={onEnd}>
        <p>It is shown this once: the server keeps its hash alone.</p>
        <code class="command password">{made}</code>
        <p>
          <button type="button" onClick={() => copy(made)}>
            Copy
          </button>
        </p>
      </Ask>
    );
  }
  return (
    <Ask title={user.isNew ? "New user" : `Change ${user.name}`} yes={user.isNew ? "Make" : "Set"} tone="main" disabled={!isRight} args={shown} onNo={onEnd} onYes={save}>
      {user.isNew && <Field label="Name" value={user.name} onInput={set("name")} autofocus required hint={/\s/.test(user.name) ? "A name has no blanks." : undefined} />}
      {user.name === session.user && !user.isNew && <p class="refused">This is you: what you take away here, this page cannot do any more.</p>}
      <div class="field">
        <span class="label">May log in</span>
        <Choice label="May log in" value={user.isOn} options={[[false, "off"], [true, "on"]]} onChoose={set("isOn")} />
      </div>
      <Field label="Password" type="select" value={user.password} list={PASSWORDS.filter(([kind]) => !user.isNew || kind !== "keep" && kind !== "add")} onInput={(password) => onChange({ ...user, password, typed: password === "generate" ? makePassword() : "" })} />
      {needsText && <Field label="The password" type="password" autocomplete="new-password" value={user.typed} onInput={set("typed")} />}
      <Field label="Keys" class="mono" value={user.keys} placeholder="none" hint="Patterns: ~app:* %R~shared:*" onInput={set("keys")} />
      <Field label="Channels" class="mono" value={user.channels} placeholder="none" hint="Patterns: &news.*" onInput={set("channels")} />
      <Field label="Commands" class="mono" value={user.commands} hint="From nothing on: -@all +@read -keys" onInput={set("commands")} />
      {user.selectors && <Field label="Selectors" class="mono" value={user.selectors} onInput={set("selectors")} />}
      {user.databases !== null && <Field label="Databases" class="mono" value={user.databases} onInput={set("databases")} />}
    </Ask>
  );
}

