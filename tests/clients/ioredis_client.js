// ioredis does real work against the server that the task on standard input names.
// Exits with 0 when every reply was as it should be, else with 1 and the assertion that failed.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const ioredis = require("ioredis");
const Redis = ioredis.Redis ?? ioredis.default ?? ioredis;

const task = JSON.parse(fs.readFileSync(0, "utf8"));

function connect() {
  const options = { protocol: task.protocol, lazyConnect: true, connectTimeout: 60_000, maxRetriesPerRequest: 0, retryStrategy: null };
  if (task.network === "unix") return new Redis({ ...options, path: task.address });
  const [host, port] = task.address.split(":");
  if (task.network === "tls") {
    const [ca, cert, key] = [task.ca, task.cert, task.key].map((path) => fs.readFileSync(path));
    options.tls = { ca, cert, key, servername: "localhost" };
  }
  return new Redis({ ...options, host, port: Number(port) });
}

// Bytes in which no part looks like its neighbour.
function pattern(size) {
  const bytes = Buffer.alloc(size);
  let state = 1;
  for (let at = 0; at < size; at += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes[at] = state >>> 24;
  }
  return bytes;
}

async function strings(redis) {
  assert.equal(await redis.set("greeting", "hello"), "OK");
  assert.equal(await redis.append("greeting", " world"), 11);
  assert.equal(await redis.get("greeting"), "hello world");
  assert.equal(await redis.getrange("greeting", -5, -1), "world");
  assert.equal(await redis.set("greeting", "no", "NX"), null);
  assert.equal(await redis.getset("greeting", "bye"), "hello world");
  assert.equal(await redis.incrby("counter", 41), 41);
  assert.equal(await redis.incr("counter"), 42);
  assert.equal(await redis.incrbyfloat("float", 0.5), "0.5");
  assert.equal(await redis.mset({ a: 1, b: 2 }), "OK");
  assert.deepEqual(await redis.mget("a", "nothing", "b"), ["1", null, "2"]);
  await assert.rejects(redis.incr("greeting"), /not an integer/);
}

async function expiry(redis) {
  await redis.set("short", "v", "PX", 20);
  await redis.set("long", "v", "EX", 1000);
  const ttl = await redis.ttl("long");
  assert.ok(ttl > 990 && ttl <= 1000);
  assert.equal(await redis.persist("long"), 1);
  const deadline = Date.now() + 60_000;
  while ((await redis.exists("short")) === 1) assert.ok(Date.now() < deadline, "the key outlives its time");
}

async function bitmaps(redis) {
  for (let bit = 0; bit < 100; bit += 3) assert.equal(await redis.setbit("bits", bit, 1), 0);
  assert.equal(await redis.bitcount("bits"), 34);
  assert.equal(await redis.bitpos("bits", 0), 1);
  assert.deepEqual(await redis.bitfield("packed", "SET", "u8", "#1", 255, "GET", "u16", 0), [0, 255]);
}

async function pipelines(redis) {
  const pipeline = redis.pipeline();
  for (let n = 0; n < 10_000; n += 1) pipeline.set(`key:${n}`, n).get(`key:${n}`);
  const replies = await pipeline.exec();
  assert.equal(replies.length, 20_000);
  replies.forEach(([error, reply], at) => {
    assert.equal(error, null);
    assert.equal(reply, at % 2 === 0 ? "OK" : String((at - 1) / 2));
  });
}

async function scan(redis) {
  const met = new Set();
  for await (const keys of redis.scanStream({ match: "key:*", count: 100 })) keys.forEach((key) => met.add(key));
  assert.equal(met.size, 10_000);
}

async function binary(redis) {
  const everyByte = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
  await redis.set(everyByte, everyByte);
  assert.deepEqual(await redis.getBuffer(everyByte), everyByte);
}

async function lengths(redis) {
  const block = pattern((16 << 20) + 512);
  for (const length of task.lengths) {
    const value = block.subarray(length % 251, (length % 251) + length);
    await redis.set("value", value);
    assert.equal(await redis.strlen("value"), length);
    assert.ok(value.equals(await redis.getBuffer("value")), `length ${length}`);
  }
  for (let first = 0; task.everyLengthMax > 0 && first <= task.everyLengthMax; first += 200) {
    const values = [];
    for (let length = first; length < first + 200 && length <= task.everyLengthMax; length += 1) {
      values.push(block.subarray(length % 251, (length % 251) + length));
    }
    const pipeline = redis.pipeline();
    values.forEach((value, slot) => pipeline.set(`slot:${slot}`, value));
    values.forEach((_, slot) => pipeline.getBuffer(`slot:${slot}`));
    const replies = await pipeline.exec();
    values.forEach((value, slot) => {
      const [error, reply] = replies[values.length + slot];
      assert.equal(error, null);
      assert.ok(value.equals(reply), `length ${value.length}`);
    });
  }
}

async function main() {
  const redis = connect();
  await redis.connect();
  await redis.flushall();
  for (const scenario of [strings, expiry, bitmaps, pipelines, scan, binary, lengths]) {
    await scenario(redis);
    console.log(`ok ${scenario.name}`);
  }
  assert.equal(await redis.quit(), "OK");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
