// Elements of a collection as rows that can be edited, and a form that adds one. On a phone each row is a card.
import { useEffect, useRef, useState } from "preact/hooks";
import { Conflict, edit } from "../keyspace.js";
import { bytes, show } from "../resp.js";
import { useUnsaved } from "../route.js";
import { fail, toast } from "../session.js";
import { Bytes, Field } from "../ui.jsx";
import { FORMS } from "../value.js";
import { ValueField } from "./field.jsx";

/** Edits of a key: each compares first. What has changed meanwhile is said, and can be loaded. */
export function useEdits(place, reload) {
  const [conflict, setConflict] = useState(null);
  const change = async (said, what) => {
    try {
      const done = await edit(place, what);
      setConflict(null);
      toast(typeof said === "function" ? said(done) : said);
      reload();
      return true;
    } catch (error) {
      if (error instanceof Conflict) setConflict(error.message);
      else fail(error);
      return false;
    }
  };
  const note = conflict && (
    <div class="conflict" role="alert">
      <p>
        <b>Not saved.</b> {conflict}
      </p>
      <button
        type="button"
        class="main"
        onClick={() => {
          setConflict(null);
          reload();
        }}
      >
        Reload
      </button>
      <button type="button" onClick={() => setConflict(null)}>
        Keep what I typed
      </button>
    </div>
  );
  return { change, note };
}

const SHOWN = 120;
/** A value in the sentence about a conflict. */
export function quote(value) {
  if (value === null || value === undefined) return "gone";
  const text = show(String(value));
  return `“${text.length > SHOWN ? text.slice(0, SHOWN) + "…" : text}”`;
}

/**
 * `columns`: { name, edit: the part that is edited, cell: part => node }. `rows`: { id, parts: binary strings }. `onSave`
 * says whether a new value was saved.
 */
export function Rows({ columns, rows, onSave, onRemove, extra, label, empty = "Nothing here." }) {
  const [edited, setEdited] = useState(null);
  const opener = useRef(null);
  const part = columns.findIndex((column) => column.edit);
  const isChanged = edited && edited.next !== edited.before;
  useUnsaved(label.toLowerCase(), Boolean(isChanged));
  const close = () => {
    setEdited(null);
    opener.current = edited?.id;
  };
  const box = useRef(null);
  useEffect(() => {
    // The focus goes back to the button that had opened the field.
    if (edited || opener.current === null) return;
    [...box.current.querySelectorAll("[data-edit]")].find((button) => button.dataset.edit === opener.current)?.focus();
    opener.current = null;
  }, [edited]);
  const save = async () => {
    if (!isChanged) return close();
    if (edited.next === null) return undefined;
    // Compared with what was shown when the field was opened.
    if (await onSave(edited.row, edited.next)) close();
    return undefined;
  };
  const begin = (row) => setEdited({ id: row.id, row, before: row.parts[part], next: row.parts[part] });
  return (
    <div class="table-box cards" tabIndex={0} role="region" aria-label={`Table: ${label}`} ref={box}>
      <table>
        <caption class="hidden">{label}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.name} scope="col">
                {column.name}
              </th>
            ))}
            <th scope="col">
              <span class="hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.id}>
              {columns.map((column, at) => (
                <td key={column.name} data-name={column.name}>
                  {edited?.id === row.id && at === part ? (
                    <ValueField label={column.name} value={edited.before} autofocus onChange={(next) => setEdited((now) => ({ ...now, next }))} onSubmit={save} onCancel={close} />
                  ) : (
                    <div class="cell">{column.cell ? column.cell(row.parts[at], row) : <Bytes value={row.parts[at]} max={400} />}</div>
                  )}
                </td>
              ))}
              <td class="row-actions">
                {onSave &&
                  (edited?.id === row.id ? (
                    <>
                      <button type="button" class="small main" onClick={save} disabled={edited.next === null}>
                        Save
                      </button>
                      <button type="button" class="small" onClick={close}>
                        Cancel
                      </button>
                    </>
                  ) : (
                    <button type="button" class="small" data-edit={row.id} aria-label={`Edit ${show(row.parts[0])}`} onClick={() => begin(row)}>
                      Edit
                    </button>
                  ))}
                {extra?.(row)}
                {onRemove && edited?.id !== row.id && (
                  <button type="button" class="small bad" aria-label={`Remove ${show(row.parts[0])}`} onClick={() => onRemove(row)}>
                    Remove
                  </button>
                )}
              </td>
            </tr>
          ))}
          {rows.length === 0 && (
            <tr class="none">
              <td class="empty" colSpan={columns.length + 1}>
                {empty}
              </td>
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

/** Fields and a button that adds something. Text is text, unless it is said to have escapes. */
export function Add({ labels, onAdd, button = "Add", many = false }) {
  const blank = labels.map(() => "");
  const [values, setValues] = useState(blank);
  const [escapes, setEscapes] = useState(false);
  const form = useRef(null);
  useUnsaved("a new element", values.some(Boolean));
  const submit = async (event) => {
    event?.preventDefault();
    try {
      const parsed = values.map(escapes ? (value) => FORMS.escapes.parse(value) : bytes);
      if (await onAdd(parsed)) {
        setValues(blank);
        form.current?.querySelector("textarea")?.focus();
      }
    } catch (error) {
      fail(error);
    }
  };
  const set = (at, value) => setValues(values.map((old, other) => (other === at ? value : old)));
  return (
    <form class="add" ref={form} onSubmit={submit}>
      {labels.map((label, at) => (
        <Field
          key={label}
          label={label}
          type="area"
          rows={Math.min(8, values[at].split("\n").length)}
          value={values[at]}
          onInput={(value) => set(at, value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey) submit(event);
          }}
        />
      ))}
      {many}
      <label class="check">
        <input type="checkbox" checked={escapes} onChange={(event) => setEscapes(event.currentTarget.checked)} /> Escapes
      </label>
      <button type="submit" class="main">
        {button}
      </button>
    </form>
  );
}
