// Forms in which a value is shown and edited. Text is text: a form changes no byte that the user has not changed.
import { array, binary, bytes, escape, isText, textOf } from "./resp.js";

/** How a value's lines end: "\n", "\r\n", or null if they end in several ways. */
export function lineEnd(value) {
  const pairs = value.split("\r\n").length - 1;
  const returns = value.split("\r").length - 1;
  if (returns === 0) return "\n";
  return returns === pairs && value.split("\n").length - 1 === pairs ? "\r\n" : null;
}

const hex = (value) => {
  const rows = [];
  for (let at = 0; at < value.length; at += 16) {
    rows.push([...value.slice(at, at + 16)].map((byte) => byte.charCodeAt(0).toString(16).padStart(2, "0")).join(" "));
  }
  return rows.join("\n");
};

/**
 * The forms: `of` makes text of a value, or null if the value has no such form; `parse` makes the value of an edited text,
 * and throws what is wrong. A form without `parse` is for looking.
 */
export const FORMS = {
  text: {
    name: "Text",
    // A text field knows one kind of line end.
    of: (value) => (lineEnd(value) === null ? null : (textOf(value)?.replace(/\r\n/g, "\n") ?? null)),
    parse: (text, before) => bytes(lineEnd(before) === "\r\n" ? text.replace(/\r?\n/g, "\r\n") : text),
  },
  escapes: {
    name: "Escapes",
    of: (value) => escape(value),
    parse(text) {
      const wrong = /\\(?!x[0-9a-fA-F]{2}|[nrt\\"])(.{0,3})/s.exec(text.replace(/\\\\/g, "  "));
      if (wrong) throw new Error(`\\${wrong[1]} is no escape: there are \\n, \\r, \\t, \\\\ and \\xHH`);
      const known = { n: "\n", r: "\r", t: "\t" };
      return bytes(text).replace(/\\(?:x(..)|(.))/gs, (_, code, char) => (code ? String.fromCharCode(parseInt(code, 16)) : (known[char] ?? char)));
    },
  },
  hex: {
    name: "Hex",
    of: hex,
    parse(text) {
      const digits = text.replace(/\s+/g, "");
      if (!/^[0-9a-fA-F]*$/.test(digits)) throw new Error("hexadecimal digits only");
      if (digits.length % 2) throw new Error("half a byte is missing");
      return digits.replace(/../g, (pair) => String.fromCharCode(parseInt(pair, 16)));
    },
  },
  json: { name: "JSON", of: json },
  msgpack: { name: "MessagePack", of: msgpack },
};

/** The form in which a value is shown first. */
export const formOf = (value) => (FORMS.text.of(value) === null ? "hex" : "text");

/** JSON with line breaks; numbers stay as they are written. */
function json(value) {
  const text = textOf(value);
  if (text === null || !/^\s*[[{]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let depth = 0;
  const line = () => "\n" + "  ".repeat(depth);
  return text.replace(/"(?:[^"\\]|\\.)*"|[{[]\s*[}\]]|[{}[\],:]|\s+/g, (part) => {
    if (part[0] === '"') return part;
    if (/^[{[]\s*[}\]]$/.test(part)) return part[0] + part.at(-1);
    if (part === "{" || part === "[") return depth++, part + line();
    if (part === "}" || part === "]") return depth--, line() + part;
    if (part === ",") return part + line();
    return part === ":" ? ": " : "";
  });
}

const DEPTH_MAX = 64;

/** A MessagePack value in the manner of JSON; null if the bytes are none, or are a plain small number, as any byte is. */
function msgpack(value) {
  if (value.length < 2 || isText(value)) return null;
  const data = array(value);
  const view = new DataView(data.buffer);
  let at = 0;
  const take = (count) => {
    if (at + count > data.length) throw new Error("cut off");
    at += count;
    return at - count;
  };
  const uint = (size) => (size === 1 ? view.getUint8(take(1)) : size === 2 ? view.getUint16(take(2)) : size === 4 ? view.getUint32(take(4)) : view.getBigUint64(take(8)));
  const int = (size) => (size === 1 ? view.getInt8(take(1)) : size === 2 ? view.getInt16(take(2)) : size === 4 ? view.getInt32(take(4)) : view.getBigInt64(take(8)));
  const raw = (count) => {
    const from = take(Number(count));
    return binary(data.subarray(from, from + Number(count)));
  };
  const string = (count) => JSON.stringify(textOf(raw(count)) ?? "?");
  const bin = (count) => `<${hex(raw(count)).replace(/\n/g, " ")}>`;
  const many = (count, depth, open, close, one) => {
    if (Number(count) > data.length) throw new Error("cut off");
    const rows = [];
    for (let n = 0; n < Number(count); n++) rows.push("  ".repeat(depth + 1) + one());
    return rows.length ? `${open}\n${rows.join(",\n")}\n${"  ".repeat(depth)}${close}` : open + close;
  };
  const list = (count, depth) => many(count, depth, "[", "]", () => next(depth + 1));
  const map = (count, depth) => many(count, depth, "{", "}", () => `${next(depth + 1)}: ${next(depth + 1)}`);
  const extension = (count) => {
    const kind = int(1);
    return `extension ${kind} ${bin(count)}`;
  };
  const next = (depth) => {
    if (depth > DEPTH_MAX) throw new Error("too deep");
    const byte = uint(1);
    if (byte < 0x80) return String(byte);
    if (byte < 0x90) return map(byte & 15, depth);
    if (byte < 0xa0) return list(byte & 15, depth);
    if (byte < 0xc0) return string(byte & 31);
    if (byte >= 0xe0) return String(byte - 256);
    const rest = {
      0xc0: () => "null", 0xc2: () => "false", 0xc3: () => "true",
      0xc4: () => bin(uint(1)), 0xc5: () => bin(uint(2)), 0xc6: () => bin(uint(4)),
      0xc7: () => extension(uint(1)), 0xc8: () => extension(uint(2)), 0xc9: () => extension(uint(4)),
      0xca: () => String(view.getFloat32(take(4))), 0xcb: () => String(view.getFloat64(take(8))),
      0xcc: () => String(uint(1)), 0xcd: () => String(uint(2)), 0xce: () => String(uint(4)), 0xcf: () => String(uint(8)),
      0xd0: () => String(int(1)), 0xd1: () => String(int(2)), 0xd2: () => String(int(4)), 0xd3: () => String(int(8)),
      0xd4: () => extension(1), 0xd5: () => extension(2), 0xd6: () => extension(4), 0xd7: () => extension(8), 0xd8: () => extension(16),
      0xd9: () => string(uint(1)), 0xda: () => string(uint(2)), 0xdb: () => string(uint(4)),
      0xdc: () => list(uint(2), depth), 0xdd: () => list(uint(4), depth), 0xde: () => map(uint(2), depth), 0xdf: () => map(uint(4), depth),
    }[byte];
    if (!rest) throw new Error("no MessagePack");
    return rest();
  };
  try {
    const shown = next(0);
    return at === data.length ? shown : null;
  } catch {
    return null;
  }
}
