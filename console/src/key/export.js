// Keys as a file of JSON lines: type, expiry and value of each. What is not text stands there in base64.
import { plural } from "../format.js";
import { Place } from "../keyspace.js";
import { list, pairs, textOf } from "../resp.js";
import { download } from "../ui.jsx";

const KEYS_MAX = 10_000;
const BYTES_MAX = 64 << 20;

const READ = {
  string: ["GET"],
  hash: ["HGETALL"],
  list: ["LRANGE", 0, -1],
  set: ["SMEMBERS"],
  zset: ["ZRANGE", 0, -1, "WITHSCORES"],
  stream: ["XRANGE", "-", "+"],
  "ReJSON-RL": ["JSON.GET"],
};

const plain = (value) => (typeof value === "string" ? (textOf(value) ?? { base64: btoa(value) }) : value);
const SHAPED = {
  string: plain,
  hash: (value) => pairs(value).map((pair) => pair.map(plain)),
  list: (value) => list(value).map(plain),
  set: (value) => list(value).map(plain),
  zset: (value) => list(value).map(([member, score]) => [plain(member), Number.isFinite(score) ? score : String(score)]),
  stream: (value) => list(value).map(([id, fields]) => [id, list(fields).map(plain)]),
  "ReJSON-RL": plain,
};

/** Gives keys to the user as a file; says how many. */
export async function exportKeys(entries) {
  if (entries.length > KEYS_MAX) throw new Error(`At most ${plural(KEYS_MAX, "key")} at a time: for more, take a snapshot (BGSAVE).`);
  const lines = [];
  let bytes = 0;
  for (const { key } of entries) {
    const place = new Place(key);
    const [type, ttl] = await place.all([["TYPE", key], ["PTTL", key]]);
    if (type instanceof Error) throw type;
    if (type === "none") continue;
    const [command, ...rest] = READ[type] ?? [];
    if (!command) throw new Error(`Keys of type ${type} cannot be exported`);
    const value = SHAPED[type](await place.ask(command, key, ...rest));
    const line = JSON.stringify({ key: plain(key), type, ...(ttl >= 0 ? { ttl_ms: ttl } : {}), value });
    bytes += line.length;
    if (bytes > BYTES_MAX) throw new Error("That is more than 64 MiB: take a snapshot (BGSAVE) instead.");
    lines.push(line);
  }
  download("keys.jsonl", lines.join("\n") + "\n");
  return `${plural(lines.length, "key")} exported`;
}
