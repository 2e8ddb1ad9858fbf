// Keys, wherever they are: here, or on another node of the cluster. And edits that do not overwrite what others wrote.
import { Refused, bytes, list, number, show } from "./resp.js";
import * as rights from "./rights.js";
import { askAll, nodeAt, noted } from "./session.js";

const SLOTS = 16384;

/** CRC16/XMODEM, which assigns keys to slots. */
function crc16(binary) {
  let crc = 0;
  for (let at = 0; at < binary.length; at++) {
    crc ^= binary.charCodeAt(at) << 8;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? ((crc << 1) ^ 0x1021) & 0xffff : (crc << 1) & 0xffff;
  }
  return crc;
}

export function slotOf(key) {
  const open = key.indexOf("{");
  const close = open < 0 ? -1 : key.indexOf("}", open + 1);
  return crc16(close > open + 1 ? key.slice(open + 1, close) : key) % SLOTS;
}

let owners = { ranges: [], isCluster: false };

/** Learns which node has which slots. A server that is no node of a cluster has all keys. */
export async function learnNodes() {
  try {
    const [slots, me] = await askAll([["CLUSTER", "SLOTS"], ["CLUSTER", "MYID"]]);
    const ranges = list(slots).map(([first, last, [host, port, id]]) => ({
      first: number(first),
      last: number(last),
      node: show(id) === show(me) ? null : `${show(host)}:${port}`,
    }));
    owners = { ranges, isCluster: true };
  } catch {
    owners = { ranges: [], isCluster: false };
  }
  return owners;
}

/** The nodes that have keys; this server is null. */
export const primaries = () => (owners.isCluster ? [...new Set(owners.ranges.map((range) => range.node))].sort() : [null]);
export const isCluster = () => owners.isCluster;
const ownerOf = (key) => {
  const slot = slotOf(key);
  return owners.ranges.find((range) => range.first <= slot && slot <= range.last)?.node ?? null;
};

/** Where a redirection leads; null if it is none. */
export function redirection(answer) {
  const found = answer instanceof Refused && /^(MOVED|ASK) \d+ (\S+)$/.exec(answer.message);
  return found ? { kind: found[1], node: found[2] } : null;
}

/** Runs commands on a node; errors are among the answers. */
export async function askNode(node, commands) {
  return askAll(commands, await nodeAt(node));
}

/** A key and the node that has it. */
export class Place {
  constructor(key) {
    this.key = key;
    this.node = ownerOf(key);
  }

  /** Runs commands where the key is; errors are among the answers. */
  async all(commands) {
    for (let hops = 0; ; hops++) {
      const answers = await askNode(this.node, commands);
      const moved = answers.map(redirection).find((to) => to?.kind === "MOVED");
      if (!moved || hops === 4) return answers;
      this.node = moved.node;
    }
  }

  /** Runs one command. Throws what the server refuses. */
  async ask(...args) {
    const [answer] = await this.all([args]);
    if (answer instanceof Error) throw answer;
    return answer;
  }

  /** The same, as an action of the user. */
  run(...args) {
    return noted(args, () => this.ask(...args));
  }
}

/** An edit that was not made, because what it began with has changed. */
export class Conflict extends Error {}

let turn = Promise.resolve();

/**
 * Changes a key under WATCH: `reads` show its state, of which `differs` says what has changed since it was shown (null:
 * nothing), and `writes` run only while that is so. One edit at a time: a connection has one WATCH.
 */
export function edit(place, { reads, differs, writes }) {
  const mine = turn.then(() => noted(writes[0], () => changeUnderWatch(place, reads, differs, writes)));
  turn = mine.catch(() => {});
  return mine;
}

async function changeUnderWatch(place, reads, differs, writes) {
  for (const args of [["WATCH"], ["MULTI"], ["EXEC"], ...writes]) rights.check(args);
  let answers = await place.all([["WATCH", place.key], ...reads]);
  const refused = answers.find((answer) => answer instanceof Error);
  if (refused) {
    await place.all([["UNWATCH"]]);
    throw refused;
  }
  const change = differs(answers.slice(1));
  if (change) {
    await place.all([["UNWATCH"]]);
    throw new Conflict(change);
  }
  const connection = await nodeAt(place.node);
  answers = await connection.pipeline([["MULTI"], ...writes, ["EXEC"]]);
  const done = answers.at(-1);
  const fault = answers.slice(0, -1).find((answer) => answer instanceof Error) ?? (Array.isArray(done) ? done.find((one) => one instanceof Error) : done);
  if (fault instanceof Error) throw fault;
  if (done === null) throw new Conflict("Another client changed the key at the same moment.");
  return done;
}

/** Unlinks keys, each where it is; how many there were. */
export async function unlink(entries, onProgress) {
  let gone = 0;
  const byNode = group(entries);
  for (const [node, some] of byNode) {
    for (let at = 0; at < some.length; at += 500) {
      const keys = some.slice(at, at + 500).map((entry) => entry.key);
      // Keys of several slots are several commands.
      const commands = isCluster() ? keys.map((key) => ["UNLINK", key]) : [["UNLINK", ...keys]];
      const answers = await noted(["UNLINK", ...keys.slice(0, 3), ...(keys.length > 3 ? ["…"] : [])], () => askNode(node, commands));
      for (const answer of answers) {
        if (answer instanceof Error) throw Object.assign(answer, { gone });
        gone += number(answer);
      }
      onProgress?.(gone);
    }
  }
  return gone;
}

function group(entries) {
  const out = new Map();
  for (const entry of entries) {
    if (!out.has(entry.node)) out.set(entry.node, []);
    out.get(entry.node).push(entry);
  }
  return out;
}

/** A pattern that matches what begins with a text, whatever is in it. */
export const prefixed = (prefix) => prefix.replace(/[*?[\]\\]/g, "\\$&") + "*";

const DETAILS = (key) => [["TYPE", key], ["PTTL", key], ["MEMORY", "USAGE", key]];
/** Keys that one scan keeps at most: a browser's memory has an end. */
const KEYS_MAX = 1_000_000;
const DRAW_MS = 250;

/** A scan of the keyspace that goes on by itself: `onChange` is called now and then, and at the end. */
export class Scan {
  constructor({ pattern, type }, onChange) {
    Object.assign(this, { pattern: pattern || "*", type, onChange });
    this.entries = [];
    this.known = new Set();
    this.visited = 0;
    this.total = 0;
    this.isDone = false;
    this.isStopped = false;
    this.isFull = false;
    this.error = null;
    // Types, sizes and expiries are no longer asked for, since the user may not see some keys.
    this.isBlind = false;
    this.trust = rights.mayAll() ? Infinity : 1;
    this.drawn = 0;
    this.run();
  }

  stop() {
    this.isStopped = true;
  }

  async run() {
    try {
      await learnNodes();
      const nodes = primaries();
      for (const node of nodes) {
        const [size] = await askNode(node, [["DBSIZE"]]);
        this.total += size instanceof Error ? 0 : number(size);
      }
      for (const node of nodes) await this.scanNode(node);
      this.isDone = !this.isStopped && !this.isFull;
    } catch (error) {
      this.error = error;
    }
    this.isStopped = true;
    this.onChange();
  }

  async scanNode(node) {
    let cursor = "0";
    let count = 500;
    do {
      if (this.isStopped || this.isFull) return;
      const args = ["SCAN", cursor, "MATCH", bytes(this.pattern), "COUNT", count, ...(this.type ? ["TYPE", this.type] : [])];
      const [answer] = await askNode(node, [args]);
      const [next, keys] = list(answer);
      cursor = String(next);
      this.visited += count;
      if (keys.length < 200) count = Math.min(5000, 2 * count);
      const fresh = list(keys).filter((key) => !this.known.has(key) && this.known.add(key));
      await this.describe(node, fresh);
      this.isFull = this.entries.length >= KEYS_MAX;
      if (performance.now() - this.drawn > DRAW_MS) {
        this.drawn = performance.now();
        this.onChange();
      }
    } while (cursor !== "0");
  }

  /** Adds keys with their types, sizes and expiries; a key that is refused ends the questions, since each fills ACL LOG. */
  async describe(node, keys) {
    for (let at = 0; at < keys.length; ) {
      const some = keys.slice(at, at + Math.min(1000, this.trust));
      at += some.length;
      const answers = this.isBlind ? [] : await askNode(node, some.flatMap(DETAILS));
      some.forEach((key, place) => {
        const [type, ttl, used] = answers.slice(3 * place, 3 * place + 3);
        if (type === "none") return;
        if ([type, ttl, used].some((one) => one instanceof Refused && one.code === "NOPERM" && !/command/.test(one.message))) this.isBlind = true;
        const good = (value) => (value instanceof Error || value === undefined ? null : value);
        this.entries.push({ key, node, type: good(type) ?? this.type ?? null, ttl: good(ttl), bytes: good(used) });
      });
      if (this.trust < 256) this.trust = 2 * this.trust;
    }
  }

  /** How much of the keyspace was visited, as far as can be known. */
  get share() {
    return this.isDone ? 1 : Math.min(0.99, this.visited / Math.max(1, this.total));
  }
}

/** Folders of keys by the parts of their names; `add` keeps the counts. */
export class Tree {
  constructor(separator) {
    this.separator = separator;
    this.root = folder("", "");
    this.added = 0;
  }

  add(entry) {
    const parts = this.separator ? entry.key.split(this.separator) : [entry.key];
    let at = this.root;
    const count = () => {
      at.count++;
      at.bytes += entry.bytes ?? 0;
    };
    count();
    for (const part of parts.slice(0, -1)) {
      if (!at.folders.has(part)) at.folders.set(part, folder(part, at.path + part + this.separator));
      at = at.folders.get(part);
      count();
    }
    at.keys.push(entry);
    at.isSorted = false;
  }
}

const folder = (name, path) => ({ name, path, folders: new Map(), keys: [], count: 0, bytes: 0, isSorted: true });
const byName = (one, other) => (one.key < other.key ? -1 : 1);

/** A folder's keys by name; sorted when they are seen. */
export function sortedKeys(of) {
  if (!of.isSorted) of.keys.sort(byName);
  of.isSorted = true;
  return of.keys;
}
