// RESP3 over a WebSocket: the server's own protocol, byte for byte. Strings are binary: one character for each byte, so that
// no key or value is changed by being shown. `show` makes text of them, `bytes` makes them of text.

const encoder = new TextEncoder();
const strict = new TextDecoder("utf-8", { fatal: true });

/** The binary string of a text. */
export function bytes(text) {
  return binary(encoder.encode(String(text)));
}

export function binary(array) {
  const pieces = [];
  for (let at = 0; at < array.length; at += 8192) {
    pieces.push(String.fromCharCode.apply(null, array.subarray(at, at + 8192)));
  }
  return pieces.join("");
}

export function array(binary) {
  const out = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) out[at] = binary.charCodeAt(at);
  return out;
}

/** Whether a binary string is text: UTF-8 without control characters but tab and line ends. */
export function isText(value) {
  if (/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/.test(value)) return false;
  try {
    strict.decode(array(value));
    return true;
  } catch {
    return false;
  }
}

/** Text of a binary string that is text; null of one that is not. */
export function textOf(value) {
  return isText(value) ? strict.decode(array(value)) : null;
}

/** The first bytes of a binary string, up to the end of a character of UTF-8. */
export function wholeCharacters(value, max) {
  let end = max;
  while (end > max - 4 && (value.charCodeAt(end) & 0xc0) === 0x80) end--;
  return value.slice(0, end);
}

/** A binary string for people: its text, or its bytes with escapes. */
export function show(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return String(value);
  return textOf(value) ?? escape(value);
}

const ESCAPES = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" };

/** A binary string in printable ASCII, as `unescape` reads it. */
export function escape(value) {
  return value.replace(/[^\x20-\x7e]|\\/g, (byte) => ESCAPES[byte] ?? "\\x" + byte.charCodeAt(0).toString(16).padStart(2, "0"));
}

/** The binary string of a text with escapes. */
export function unescape(text) {
  const known = { n: "\n", r: "\r", t: "\t", a: "\x07", b: "\b" };
  return bytes(text).replace(/\\(?:x([0-9a-fA-F]{2})|(.))/gs, (_, hex, char) =>
    hex ? String.fromCharCode(parseInt(hex, 16)) : (known[char] ?? char),
  );
}

/** Words of a command line, with quotes as redis-cli has them. Throws where a quote is not closed. */
export function words(line) {
  const out = [];
  const pattern = /\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"']+))(?=\s|$)/gsy;
  while (pattern.lastIndex < line.trimEnd().length) {
    const found = pattern.exec(line);
    if (!found) throw new Error("a quote is not closed");
    const [, double, single, plain] = found;
    if (double !== undefined) out.push(unescape(double));
    else if (single !== undefined) out.push(bytes(single.replace(/\\'/g, "'")));
    else out.push(bytes(plain));
  }
  return out;
}

/** A command as one would type it. */
export function line(args) {
  return args
    .map((arg) => {
      const text = show(String(arg));
      if (/^[^\s"'\\]+$/.test(text)) return text;
      const escaped = isText(String(arg)) ? text.replace(/[\\"]/g, "\\$&") : text.replace(/"/g, '\\"');
      return `"${escaped.replace(/\n/g, "\\n").replace(/\r/g, "\\r").replace(/\t/g, "\\t")}"`;
    })
    .join(" ");
}

/** An error that the server has answered. */
export class Refused extends Error {
  get code() {
    return this.message.split(" ", 1)[0];
  }
}

export class RMap {
  constructor(entries) {
    this.entries = entries;
  }
  get(name) {
    return this.entries.find(([key]) => key === name)?.[1];
  }
}
export class RSet {
  constructor(items) {
    this.items = items;
  }
}
class Push {
  constructor(items) {
    this.items = items;
  }
}

/** A reply of another shape than its command's: what it says must not be shown as something else. */
export class Misshapen extends Error {
  constructor(value) {
    const shown = value instanceof Error ? value.message : typeof value === "object" ? "a structure" : show(String(value)).slice(0, 80);
    super(`the server's reply has another shape than expected: ${shown}`);
  }
}

/** Pairs of a map or a flat list. */
export function pairs(value) {
  if (value === null || value === undefined) return [];
  if (value instanceof RMap) return value.entries;
  if (!Array.isArray(value)) throw value instanceof Refused ? value : new Misshapen(value);
  const out = [];
  for (let at = 0; at + 1 < value.length; at += 2) out.push([value[at], value[at + 1]]);
  return out;
}

/** A map or a flat list of pairs, as an object. */
export function object(value) {
  return Object.fromEntries(pairs(value).map(([key, one]) => [show(key), one]));
}

/** Items of an array or a set. */
export function list(value) {
  if (value === null || value === undefined) return [];
  if (value instanceof RSet) return value.items;
  if (!Array.isArray(value)) throw value instanceof Refused ? value : new Misshapen(value);
  return value;
}

/** A string. */
export function text(value) {
  if (typeof value !== "string") throw value instanceof Refused ? value : new Misshapen(value);
  return value;
}

/** A number. */
export function number(value) {
  if (typeof value === "string" && /^-?\d+(\.\d+)?$/.test(value)) return Number(value);
  if (typeof value !== "number" && typeof value !== "bigint") throw value instanceof Refused ? value : new Misshapen(value);
  return Number(value);
}

function encode(args) {
  let out = `*${args.length}\r\n`;
  for (const arg of args) {
    const word = String(arg);
    out += `$${word.length}\r\n${word}\r\n`;
  }
  return out;
}

const MORE = Symbol("more");

/** An aggregate whose items are still arriving. */
class Frame {
  constructor(kind, need) {
    this.kind = kind;
    this.need = need;
    this.items = [];
  }

  /** The whole. An attribute is none. */
  value() {
    switch (this.kind) {
      case "*":
        return this.items;
      case "~":
        return new RSet(this.items);
      case ">":
        return new Push(this.items);
      case "%":
        return new RMap(pairs(this.items));
      default:
        return undefined;
    }
  }
}

/** Decodes replies as they arrive, each byte once: `stack` has the aggregates that are open. */
class Decoder {
  constructor() {
    this.buffer = new Uint8Array(65536);
    this.at = 0;
    this.end = 0;
    this.wanted = 0;
    this.stack = [];
  }

  feed(chunk) {
    const held = this.end - this.at;
    if (this.end + chunk.length > this.buffer.length) {
      const room = Math.max(held + chunk.length, this.wanted);
      const target = 2 * room > this.buffer.length ? new Uint8Array(2 * room) : this.buffer;
      if (target === this.buffer) target.copyWithin(0, this.at, this.end);
      else target.set(this.buffer.subarray(this.at, this.end));
      this.buffer = target;
      this.at = 0;
      this.end = held;
    }
    this.buffer.set(chunk, this.end);
    this.end += chunk.length;
  }

  *replies() {
    while (this.end - this.at >= Math.max(1, this.wanted)) {
      this.wanted = 0;
      const reply = this.next();
      if (reply === MORE) break;
      yield reply;
    }
    // The room of a large reply is given back.
    if (this.at === this.end && this.buffer.length > 1 << 20) {
      this.buffer = new Uint8Array(65536);
      this.at = this.end = 0;
    }
  }

  next() {
    for (;;) {
      let value = this.scalar();
      if (value === MORE) return MORE;
      if (value instanceof Frame) {
        this.stack.push(value);
        if (value.need > 0) continue;
        value = this.stack.pop().value();
      }
      for (;;) {
        if (value === undefined) break;
        const open = this.stack.at(-1);
        if (!open) return value;
        open.items.push(value);
        if (open.items.length < open.need) break;
        value = this.stack.pop().value();
      }
    }
  }

  /** A value without items, or the beginning of an aggregate. */
  scalar() {
    const end = this.buffer.indexOf(13, this.at);
    if (end < 0 || end + 1 >= this.end) return MORE;
    const line = binary(this.buffer.subarray(this.at, end));
    const rest = line.slice(1);
    const after = end + 2;
    if ("$=!".includes(line[0]) && rest !== "-1") {
      const close = after + Number(rest);
      if (close + 2 > this.end) {
        this.wanted = close + 2 - this.at;
        return MORE;
      }
      const value = binary(this.buffer.subarray(after, close));
      this.at = close + 2;
      return line[0] === "$" ? value : line[0] === "=" ? value.slice(4) : new Refused(show(value));
    }
    this.at = after;
    switch (line[0]) {
      case "+":
        return rest;
      case "-":
        return new Refused(show(rest));
      case ":":
        return Number.isSafeInteger(Number(rest)) ? Number(rest) : BigInt(rest);
      case ",":
        return rest === "inf" ? Infinity : rest === "-inf" ? -Infinity : Number(rest);
      case "#":
        return rest === "t";
      case "_":
        return null;
      case "(":
        return BigInt(rest);
      case "$":
        return null;
      case "*":
        return rest === "-1" ? null : new Frame("*", Number(rest));
      case "~":
      case ">":
        return new Frame(line[0], Number(rest));
      case "|":
      case "%":
        return new Frame(line[0], 2 * Number(rest));
      default:
        throw new Error("the server does not speak its protocol");
    }
  }
}

/** A connection. Commands are answered in their order. */
export class Connection {
  /** To this server, or through it to a node of its cluster. */
  constructor(node = null) {
    this.node = node;
    this.waiting = [];
    this.onpush = () => {};
    this.onclose = () => {};
    this.decoder = new Decoder();
    this.closed = false;
    this.opened = new Promise((resolve, reject) => {
      const scheme = location.protocol === "https:" ? "wss" : "ws";
      this.socket = new WebSocket(`${scheme}://${location.host}/connect${node ? `?node=${node}` : ""}`);
      this.socket.binaryType = "arraybuffer";
      this.socket.onopen = () => resolve();
      this.socket.onmessage = ({ data }) => this.receive(new Uint8Array(data));
      this.socket.onclose = () => {
        reject(new Error(node ? `the node ${node} cannot be reached through this one` : "the server cannot be reached"));
        this.end(new Error("the connection was closed"));
      };
    });
    this.opened.catch(() => {});
  }

  receive(chunk) {
    this.heard = Date.now();
    try {
      this.decoder.feed(chunk);
      for (const reply of this.decoder.replies()) {
        if (reply instanceof Push) this.onpush(reply.items);
        else if (this.stream) this.stream(reply);
        else this.waiting.shift()?.(reply);
      }
    } catch (error) {
      this.end(error);
      this.socket.close();
    }
  }

  end(error) {
    if (this.closed) return;
    this.closed = true;
    for (const answer of this.waiting.splice(0)) answer(error);
    this.onclose(error);
  }

  close() {
    this.onclose = () => {};
    this.end(new Error("the connection was closed"));
    this.socket.close();
  }

  /** Sends commands at once; their answers, errors among them. */
  async pipeline(commands) {
    await this.opened;
    if (commands.length === 0) return [];
    if (this.closed) throw new Error("the connection was closed");
    const answers = commands.map(() => new Promise((resolve) => this.waiting.push(resolve)));
    this.send(commands);
    return Promise.all(answers);
  }

  send(commands) {
    const data = array(commands.map(encode).join(""));
    // The server takes messages of this size; a request may span several.
    for (let at = 0; at < data.length; at += 262144) this.socket.send(data.subarray(at, at + 262144));
  }

  /** Sends a command that is answered by pushes alone, or not at all. */
  async tell(args) {
    await this.opened;
    this.send([args]);
  }

  /** Sends a command; throws what the server refuses. */
  async run(args) {
    const [answer] = await this.pipeline([args]);
    if (answer instanceof Error) throw answer;
    return answer;
  }
}
