// A key that is not there yet, with its first value.
import { useState } from "preact/hooks";
import { Place, edit } from "../keyspace.js";
import { bytes } from "../resp.js";
import { fail, toast } from "../session.js";
import { Ask, Field } from "../ui.jsx";
import { FORMS } from "../value.js";

const FIRST = {
  string: { labels: ["Value"], args: (key, [value]) => ["SET", key, value] },
  hash: { labels: ["Field", "Value"], args: (key, [field, value]) => ["HSET", key, field, value] },
  list: { labels: ["Item"], args: (key, [item]) => ["RPUSH", key, item] },
  set: { labels: ["Member"], args: (key, [member]) => ["SADD", key, member] },
  zset: { labels: ["Score", "Member"], args: (key, [score, member]) => ["ZADD", key, score, member] },
  "ReJSON-RL": { name: "json", labels: ["JSON"], args: (key, [value]) => ["JSON.SET", key, "$", value] },
  stream: { labels: ["Field", "Value"], args: (key, [field, value]) => ["XADD", key, "*", field, value] },
};

export function NewKey({ onEnd }) {
  const [name, setName] = useState("");
  const [type, setType] = useState("string");
  const [values, setValues] = useState(["", ""]);
  const [seconds, setSeconds] = useState("");
  const [escapes, setEscapes] = useState(false);
  const { labels, args } = FIRST[type];
  let key = "";
  let command = [];
  let wrong = null;
  try {
    const parse = escapes ? FORMS.escapes.parse : bytes;
    key = parse(name);
    command = args(key, labels.map((_, at) => parse(values[at])));
  } catch (error) {
    wrong = error.message;
  }
  const make = async () => {
    try {
      const place = new Place(key);
      const differs = ([there]) => (there === 0 ? null : "There is a key of that name.");
      const expiry = seconds ? [["EXPIRE", key, seconds]] : [];
      await edit(place, { reads: [["EXISTS", key]], differs, writes: [command, ...expiry] });
      toast("Key made");
      onEnd(key);
    } catch (error) {
      fail(error);
    }
  };
  return (
    <Ask title="New key" yes="Make it" tone="main" args={wrong ? null : [...command]} disabled={!name || Boolean(wrong)} onKeys onYes={make} onNo={() => onEnd(null)}>
      <Field label="Name" value={name} onInput={setName} autofocus required />
      <Field label="Type" type="select" value={type} onInput={setType} list={Object.entries(FIRST).map(([type, { name }]) => [type, name ?? type])} />
      {labels.map((label, at) => (
        <Field key={label} label={label} type="area" rows={label === "Value" || label === "JSON" ? 3 : 1} value={values[at]} onInput={(text) => setValues(values.map((old, other) => (other === at ? text : old)))} />
      ))}
      <Field label="Expires after seconds (empty: never)" type="number" min="1" value={seconds} onInput={setSeconds} />
      <label class="check">
        <input type="checkbox" checked={escapes} onChange={(event) => setEscapes(event.currentTarget.checked)} /> Name and values have escapes (\n, \xff)
      </label>
      {wrong && <p class="problem">{wrong}</p>}
    </Ask>
  );
}
