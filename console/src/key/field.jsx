// The field in which a value is edited, in one of its forms.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { FORMS, formOf } from "../value.js";

/**
 * Edits `value`. `onChange` gets the bytes that the user wants, or null while the text is no value of its form. Enter
 * submits a field of one row (with Shift it is a line end), Control and Enter one of several; Escape cancels.
 */
export function ValueField({ label, value, onChange, onSubmit, onCancel, rows = 1, autofocus = false }) {
  const [form, setForm] = useState(() => formOf(value));
  const [text, setText] = useState(() => FORMS[formOf(value)].of(value));
  const [wrong, setWrong] = useState("");
  const [bytes, setBytes] = useState(value);
  const area = useRef(null);
  const id = useId();
  useEffect(() => {
    if (autofocus) area.current?.focus();
  }, []);
  const type = (text) => {
    setText(text);
    try {
      // A text that is as it was shown stands for the bytes as they were.
      const next = text === FORMS[form].of(value) ? value : FORMS[form].parse(text, value);
      setBytes(next);
      setWrong("");
      onChange(next);
    } catch (error) {
      setWrong(error.message);
      onChange(null);
    }
  };
  const turn = (next) => {
    setForm(next);
    setText(FORMS[next].of(bytes));
  };
  const key = (event) => {
    if (event.key === "Escape" && onCancel) {
      event.preventDefault();
      event.stopPropagation();
      onCancel();
    }
    if (event.key === "Enter" && onSubmit && !event.shiftKey && (rows === 1 || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      onSubmit();
    }
  };
  const forms = Object.entries(FORMS).filter(([name, { of }]) => name === form || of(bytes) !== null);
  const isShown = Boolean(FORMS[form].parse);
  const lines = Math.min(24, Math.max(rows, text.split("\n").length));
  return (
    <div class="value-field">
      <div class="value-head">
        <label for={id}>{label}</label>
        {wrong === "" && (
          <select aria-label={`${label}, shown as`} value={form} onChange={(event) => turn(event.currentTarget.value)}>
            {forms.map(([name, one]) => (
              <option key={name} value={name}>
                {one.name}
                {one.parse ? "" : " (to read)"}
              </option>
            ))}
          </select>
        )}
      </div>
      <textarea ref={area} id={id} class="mono" rows={lines} value={text} readOnly={!isShown} spellcheck={false} onInput={(event) => type(event.currentTarget.value)} onKeyDown={key} />
      {wrong && (
        <small class="bad" role="alert">
          {wrong}
        </small>
      )}
    </div>
  );
}
