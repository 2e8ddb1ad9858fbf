// RESP3 over a WebSocket: the server's own protocol, byte for byte. Strings are binary: one character for each byte, so that
// no key or value is changed by being shown. `show` makes text of them, `bytes` makes them of text.

const encoder = new TextEncoder();
const strict = new TextDecoder("utf-8", { fatal: true });

/** The binary string of a text. */
export function bytes(text) {
  return binary(encoder.encode(String(text)));
}

function binary(array) {
  let out = "";
  for (let at = 0; at < array.length; at += 8192) {
    out += String.fromCharCode.apply(null, array.subarray(at, at + 8192));
  }
  return out;
}

function array(binary) {
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

/** A binary string for people: its text, or its bytes with escapes. */
export function show(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return String(value);
  if (isText(value)) return strict.decode(array(value));
  return value.replace(/[^\x20-\x7e]|\\/g, (byte) => {
    const known = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" };
    return known[byte] ?? "\\x" + byte.charCodeAt(0).toString(16).padStart(2, "0");
  });
}

/** The binary string of what `show` has written, or somebody else in its manner. */
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
  toObject() {
    return Object.fromEntries(this.entries.map(([key, value]) => [show(key), value]));
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

/** A map or a flat list of pairs, as an object. */
export function object(value) {
  if (value instanceof RMap) return value.toObject();
  const out = {};
  for (let at = 0; Array.isArray(value) && at + 1 < value.length; at += 2) out[show(value[at])] = value[at + 1];
  return out;
}

/** Pairs of a map or a flat list. */
export function pairs(value) {
  if (value instanceof RMap) return value.entries;
  const out = [];
  for (let at = 0; Array.isArray(value) && at + 1 < value.length; at += 2) out.push([value[at], value[at + 1]]);
  return out;
}

/** Items of an array or a set. */
export function list(value) {
  if (value instanceof RSet) return value.items;
  return Array.isArray(value) ? value : [];
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

class Decoder {
  constructor() {
    this.data = new Uint8Array(0);
    this.wanted = 0;
  }

  feed(chunk) {
    const joined = new Uint8Array(this.data.length + chunk.length);
    joined.set(this.data);
    joined.set(chunk, this.data.length);
    this.data = joined;
  }

  *replies() {
    while (this.data.length > 0 && this.data.length >= this.wanted) {
      this.at = 0;
      this.wanted = 0;
      let reply;
      try {
        reply = this.value();
      } catch (error) {
        if (error === MORE) return;
        throw error;
      }
      this.data = this.data.subarray(this.at);
      yield reply;
    }
  }

  text() {
    const end = this.data.indexOf(13, this.at);
    if (end < 0 || end + 1 >= this.data.length) throw MORE;
    const text = binary(this.data.subarray(this.at, end));
    this.at = end + 2;
    return text;
  }

  bulk(length) {
    const end = this.at + length;
    if (end + 2 > this.data.length) {
      this.wanted = end + 2;
      throw MORE;
    }
    const value = binary(this.data.subarray(this.at, end));
    this.at = end + 2;
    return value;
  }

  items(count) {
    const out = [];
    for (let n = 0; n < count; n++) out.push(this.value());
    return out;
  }

  value() {
    const line = this.text();
    const rest = line.slice(1);
    switch (line[0]) {
      case "+":
        return rest;
      case "-":
        return new Refused(show(rest));
      case "!":
        return new Refused(show(this.bulk(Number(rest))));
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
        return rest === "-1" ? null : this.bulk(Number(rest));
      case "=":
        return this.bulk(Number(rest)).slice(4);
      case "*":
        return rest === "-1" ? null : this.items(Number(rest));
      case "~":
        return new RSet(this.items(Number(rest)));
      case ">":
        return new Push(this.items(Number(rest)));
      case "|":
        this.items(2 * Number(rest));
        return this.value();
      case "%": {
        const flat = this.items(2 * Number(rest));
        const entries = [];
        for (let at = 0; at < flat.length; at += 2) entries.push([flat[at], flat[at + 1]]);
        return new RMap(entries);
      }
      default:
        throw new Error("the server does not speak its protocol");
    }
  }
}

/** A connection. Commands are answered in their order. */
export class Connection {
  constructor() {
    this.waiting = [];
    this.onpush = () => {};
    this.onclose = () => {};
    this.decoder = new Decoder();
    this.closed = false;
    this.opened = new Promise((resolve, reject) => {
      const scheme = location.protocol === "https:" ? "wss" : "ws";
      this.socket = new WebSocket(`${scheme}://${location.host}/connect`);
      this.socket.binaryType = "arraybuffer";
      this.socket.onopen = () => resolve();
      this.socket.onmessage = ({ data }) => this.receive(new Uint8Array(data));
      this.socket.onclose = () => {
        reject(new Error("the server cannot be reached"));
        this.end(new Error("the connection was closed"));
      };
    });
    this.opened.catch(() => {});
  }

  receive(chunk) {
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
    this.closed = true;
    this.socket.close();
  }

  /** Sends commands at once; their answers, errors among them. */
  async pipeline(commands) {
    await this.opened;
    if (commands.length === 0) return [];
    if (this.closed) throw new Error("the connection was closed");
    const answers = commands.map(() => new Promise((resolve) => this.waiting.push(resolve)));
    const data = array(commands.map(encode).join(""));
    // The server takes messages of this size; a request may span several.
    for (let at = 0; at < data.length; at += 262144) this.socket.send(data.subarray(at, at + 262144));
    return Promise.all(answers);
  }

  /** Sends a command that is answered by pushes alone. */
  async tell(args) {
    await this.opened;
    this.socket.send(array(encode(args)));
  }

  /** Sends a command; throws what the server refuses. */
  async run(args) {
    const [answer] = await this.pipeline([args]);
    if (answer instanceof Error) throw answer;
    return answer;
  }
}
