// One key: what it is, when it expires, and the editor of its type.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { size, ttlWords } from "../format.js";
import { Place, edit } from "../keyspace.js";
import { bytes, number, show, textOf } from "../resp.js";
import { explain } from "../rights.js";
import { fail, toast } from "../session.js";
import { Ask, Card, Field, Problem, copy, useLoad } from "../ui.jsx";
import { FORMS } from "../value.js";
import { HashEditor, ListEditor, SetEditor, StringEditor, ZsetEditor } from "./editors.jsx";
import { exportKeys } from "./export.js";
import { JsonEditor } from "./json.jsx";
import { StreamEditor } from "./stream.jsx";

const EDITORS = { string: StringEditor, hash: HashEditor, list: ListEditor, set: SetEditor, zset: ZsetEditor, stream: StreamEditor, "ReJSON-RL": JsonEditor };

export function KeyView({ name, onClose, onReload, onGone, onRenamed }) {
  const [dialog, setDialog] = useState(null);
  const place = useMemo(() => new Place(name), [name]);
  const box = useRef(null);
  const head = useLoad(async () => {
    const answers = await place.all([
      ["TYPE", name],
      ["PTTL", name],
      ["OBJECT", "ENCODING", name],
      ["MEMORY", "USAGE", name],
      ["OBJECT", "IDLETIME", name],
    ]);
    // A user may see the type alone, or the value and not the type.
    if (answers[0] instanceof Error) throw answers[0];
    const [type, ttl, encoding, used, idle] = answers.map((value) => (value instanceof Error ? null : value));
    return { type, ttl, encoding, bytes: used, idle };
  }, [name]);
  // The focus follows the choice, for those who do not see where the key has appeared.
  useEffect(() => (box.current?.base ?? box.current)?.focus({ preventScroll: true }), []);
  const { value } = head;
  const Editor = EDITORS[value?.type];
  const close = () => setDialog(null);
  const act = async (said, work) => {
    try {
      const answer = await work();
      toast(said);
      close();
      return answer;
    } catch (error) {
      fail(error);
      return null;
    }
  };
  return (
    <Card
      class="detail"
      title={show(name)}
      ref={box}
      tabIndex={-1}
      actions={
        <>
          <button type="button" onClick={onReload}>
            Reload
          </button>
          <button type="button" onClick={() => copy(textOf(name) ?? FORMS.escapes.of(name))}>
            Copy name
          </button>
          <button type="button" onClick={() => exportKeys([{ key: name }]).then(toast, fail)}>
            Export
          </button>
          <button type="button" onClick={() => setDialog({ kind: "rename", text: FORMS.text.of(name) ?? FORMS.escapes.of(name) })}>
            Rename
          </button>
          <button type="button" class="bad" onClick={() => setDialog({ kind: "delete" })}>
            Delete
          </button>
          <button type="button" onClick={onClose} aria-label="Close the key">
            ×
          </button>
        </>
      }
    >
      <Problem error={head.error} />
      {value && (
        <p class="facts">
          <span class={`type ${value.type}`}>{value.type}</span>
          {value.encoding && <span>{value.encoding}</span>}
          {value.bytes !== null && <span>{size(value.bytes)}</span>}
          {value.idle !== null && <span>idle {value.idle} s</span>}
          {place.node && <span>on {place.node}</span>}
          {value.type !== "none" && (
            <button type="button" class="small" onClick={() => setDialog({ kind: "expire", text: value.ttl >= 0 ? String(Math.ceil(value.ttl / 1000)) : "3600" })}>
              {value.ttl === null ? "expiry" : ttlWords(value.ttl)}
            </button>
          )}
        </p>
      )}
      {value?.type === "none" && <p class="empty">The key is gone.</p>}
      {Editor && <Editor place={place} onChange={head.again} />}
      {value && !Editor && value.type !== "none" && <p class="empty">There is no editor for this type.</p>}
      {dialog?.kind === "delete" && (
        <Ask title={`Delete ${show(name)}?`} yes="Delete" onKeys args={["UNLINK", name]} onNo={close} onYes={async () => (await act("Deleted", () => place.run("UNLINK", name))) !== null && onGone()}>
          {value && <p>{`A ${value.type} of ${size(value.bytes)}.`}</p>}
        </Ask>
      )}
      {dialog?.kind === "rename" && <Rename name={name} place={place} text={dialog.text} onText={(text) => setDialog({ ...dialog, text })} onNo={close} onRenamed={onRenamed} />}
      {dialog?.kind === "expire" && (
        <Ask
          title="When does the key expire?"
          yes={dialog.text === "" ? "Keep for ever" : "Set"}
          tone="main"
          onKeys
          args={dialog.text === "" ? ["PERSIST", name] : ["EXPIRE", name, dialog.text]}
          onNo={close}
          onYes={async () => {
            const args = dialog.text === "" ? ["PERSIST", name] : ["EXPIRE", name, dialog.text];
            await act("Expiry set", async () => {
              const done = number(await place.run(...args));
              if (done === 0 && dialog.text !== "") throw new Error("The key is gone.");
              return done;
            });
            head.again();
          }}
        >
          <Field label="Seconds" type="number" min="1" value={dialog.text} hint="Empty: never" onInput={(text) => setDialog({ ...dialog, text })} autofocus />
        </Ask>
      )}
    </Card>
  );
}

function Rename({ name, place, text, onText, onNo, onRenamed }) {
  const isText = FORMS.text.of(name) !== null;
  let to = null;
  let wrong = null;
  try {
    to = isText ? bytes(text) : FORMS.escapes.parse(text);
  } catch (error) {
    wrong = error.message;
  }
  const rename = async () => {
    if (to === name) return onNo();
    try {
      await edit(place, {
        reads: [["EXISTS", name], ["EXISTS", to]],
        differs: ([from, taken]) => (from === 0 ? "The key is gone." : taken ? "There is a key of that name." : null),
        writes: [["RENAMENX", name, to]],
      });
      toast("Renamed");
      onRenamed(to);
    } catch (error) {
      toast(explain(error) ?? error.message, "bad");
    }
    return undefined;
  };
  return (
    <Ask title="Rename the key" yes="Rename" tone="main" onKeys disabled={!to || Boolean(wrong)} args={to ? ["RENAMENX", name, to] : null} onNo={onNo} onYes={rename}>
      <Field label={isText ? "New name" : "New name, with escapes"} value={text} onInput={onText} hint={wrong ?? undefined} autofocus />
    </Ask>
  );
}
