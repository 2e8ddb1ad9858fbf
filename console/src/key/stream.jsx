// Streams: entries with their times, groups, consumers, and what was delivered and not acknowledged.
import { useState } from "preact/hooks";
import { count, date, duration, plural } from "../format.js";
import { bytes, list, number, object, pairs, show } from "../resp.js";
import { fail, toast } from "../session.js";
import { Ask, Bytes, Field, Problem, Table, useLoad } from "../ui.jsx";
import { Add, Rows, useEdits } from "./rows.jsx";

const PAGE = 100;

/** When an entry was made: the first part of an id is milliseconds since 1970, unless the sender chose it. */
function timeOf(id) {
  const ms = Number(String(id).split("-")[0]);
  return ms > 1e11 && ms < 1e14 ? date(ms) : "";
}

export function StreamEditor({ place, onChange }) {
  const name = place.key;
  const [from, setFrom] = useState("+");
  const page = useLoad(async () => {
    const [about, entries, groups] = await place.all([
      ["XINFO", "STREAM", name],
      ["XREVRANGE", name, from, "-", "COUNT", PAGE],
      ["XINFO", "GROUPS", name],
    ]);
    return { about: about instanceof Error ? {} : object(about), entries: list(entries), groups: groups instanceof Error ? [] : list(groups).map(object) };
  }, [name, from]);
  const reload = async () => {
    await page.again();
    onChange();
  };
  const { change, note } = useEdits(place, reload);
  if (!page.value) return <Problem error={page.error} />;
  const { about, entries, groups } = page.value;
  const last = entries.at(-1)?.[0];
  const isStream = { reads: [["TYPE", name]], differs: ([type]) => (type === "stream" ? null : "The stream is gone.") };
  return (
    <>
      {note}
      <p class="facts">
        <span>{plural(about.length ?? 0, "entry", "entries")}</span>
        <span>
          last {show(about["last-generated-id"])} {timeOf(about["last-generated-id"])}
        </span>
        <span>{plural(groups.length, "group")}</span>
      </p>
      <Rows
        label="Entries, the newest first"
        columns={[{ name: "Id", cell: (id) => <><Bytes value={id} /> <small>{timeOf(id)}</small></> }, { name: "Fields" }]}
        rows={entries.map(([id, fields]) => ({ id, parts: [id, pairs(fields).map(([field, value]) => `${field}: ${value}`).join("\n")] }))}
        onRemove={({ id }) =>
          change("Removed", { reads: [["XRANGE", name, id, id]], differs: ([now]) => (list(now).length ? null : "Another client has removed it already."), writes: [["XDEL", name, id]] })
        }
      />
      <p class="pieces">
        <button type="button" disabled={from === "+"} onClick={() => setFrom("+")}>
          Newest
        </button>
        <button type="button" disabled={entries.length < PAGE} onClick={() => setFrom("(" + last)}>
          Older
        </button>
      </p>
      <Add labels={["Field", "Value"]} onAdd={([field, value]) => change("Added", { ...isStream, writes: [["XADD", name, "*", field, value]] })} />
      <h3>Groups</h3>
      {groups.map((group) => (
        <Group key={group.name} place={place} group={group} onChange={reload} />
      ))}
      {groups.length === 0 && <p class="empty">No groups.</p>}
      <Add
        labels={["New group", "Starts after id"]}
        button="Make"
        onAdd={([group, id]) => change("Group made", { ...isStream, writes: [["XGROUP", "CREATE", name, group, id || "$"]] })}
      />
    </>
  );
}

function Group({ place, group, onChange }) {
  const stream = place.key;
  const [open, setOpen] = useState(false);
  const [removing, setRemoving] = useState(false);
  const [claiming, setClaiming] = useState(null);
  const state = useLoad(async () => {
    if (!open) return null;
    const [consumers, pending] = await place.all([["XINFO", "CONSUMERS", stream, group.name], ["XPENDING", stream, group.name, "-", "+", PAGE]]);
    return { consumers: list(consumers).map(object), pending: list(pending).map(list) };
  }, [stream, group.name, open]);
  const act = async (said, ...args) => {
    try {
      const done = await place.run(...args);
      toast(said(done));
      await state.again();
      onChange();
    } catch (error) {
      fail(error);
    }
  };
  const seconds = (ms) => duration(number(ms) / 1000);
  return (
    <details class="group" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Bytes value={group.name} />{" "}
        <small>
          {count(group.pending)} pending, lag {group.lag === null ? "unknown" : count(group.lag)}, last {show(group["last-delivered-id"])}
        </small>
      </summary>
      <Problem error={state.error} />
      {state.value && (
        <>
          <Table
            caption={`Consumers of ${show(group.name)}`}
            rows={state.value.consumers}
            empty="No consumer."
            rowKey={(one) => one.name}
            columns={[
              { name: "Consumer", of: (one) => show(one.name) },
              { name: "Pending", number: true, of: (one) => number(one.pending) },
              { name: "Idle", number: true, of: (one) => number(one.idle), cell: (one) => seconds(one.idle) },
            ]}
          />
          <h3>Pending: delivered and not acknowledged</h3>
          <Table
            caption={`Pending entries of ${show(group.name)}`}
            rows={state.value.pending}
            empty="Nothing is pending."
            rowKey={(one) => one[0]}
            columns={[
              { name: "Id", of: ([id]) => show(id), cell: ([id]) => <span class="mono">{show(id)}</span> },
              { name: "Consumer", of: ([, consumer]) => show(consumer) },
              { name: "Idle", number: true, of: ([, , idle]) => number(idle), cell: ([, , idle]) => seconds(idle) },
              { name: "Deliveries", number: true, of: ([, , , times]) => number(times) },
              {
                name: "Actions",
                hide: true,
                cell: ([id, consumer]) => (
                  <>
                    <button type="button" class="small" aria-label={`Acknowledge ${show(id)}`} onClick={() => act((n) => (n ? "Acknowledged" : "It was acknowledged already"), "XACK", stream, group.name, id)}>
                      Acknowledge
                    </button>
                    <button type="button" class="small" aria-label={`Claim ${show(id)}`} onClick={() => setClaiming({ id, consumer: show(consumer) })}>
                      Claim
                    </button>
                  </>
                ),
              },
            ]}
          />
        </>
      )}
      <button type="button" class="small bad" onClick={() => setRemoving(true)}>
        Remove the group
      </button>
      {claiming && (
        <Ask
          title={`Give ${show(claiming.id)} to another consumer`}
          yes="Claim"
          tone="main"
          onKeys
          disabled={!claiming.consumer}
          args={["XCLAIM", stream, group.name, bytes(claiming.consumer), 0, claiming.id]}
          onNo={() => setClaiming(null)}
          onYes={async () => {
            await act((done) => (list(done).length ? "Claimed" : "It is no longer pending"), "XCLAIM", stream, group.name, bytes(claiming.consumer), 0, claiming.id, "JUSTID");
            setClaiming(null);
          }}
        >
          <Field label="Consumer" value={claiming.consumer} onInput={(consumer) => setClaiming({ ...claiming, consumer })} autofocus />
        </Ask>
      )}
      {removing && (
        <Ask
          title={`Remove the group ${show(group.name)}?`}
          yes="Remove"
          onKeys
          args={["XGROUP", "DESTROY", stream, group.name]}
          onNo={() => setRemoving(false)}
          onYes={async () => {
            await act((done) => (done ? "Group removed" : "It was removed already"), "XGROUP", "DESTROY", stream, group.name);
            setRemoving(false);
          }}
        >
          <p>{plural(group.pending, "entry", "entries")} pending would be forgotten.</p>
        </Ask>
      )}
    </details>
  );
}
