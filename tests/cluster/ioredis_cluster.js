// ioredis's cluster client does real work, from the node whose port is the argument.
// Exits with 0 when every reply was as it should be, else with 1 and the assertion that failed.
"use strict";

const assert = require("node:assert/strict");
const { createRequire } = require("node:module");
const path = require("node:path");
// Its modules lie beside the other clients.
const ioredis = createRequire(path.join(__dirname, "../clients/ioredis_client.js"))("ioredis");

const KEYS = 2000;
const port = Number(process.argv[2]);

async function work(cluster) {
  const keys = Array.from({ length: KEYS }, (_, number) => `io:${number}`);
  await Promise.all(keys.map((key, number) => cluster.set(key, number)));
  const values = await Promise.all(keys.map((key) => cluster.get(key)));
  assert.deepEqual(values, keys.map((_, number) => String(number)));

  const results = await cluster.multi().set("{io}a", 1).incr("{io}a").exec();
  assert.deepEqual(results, [[null, "OK"], [null, 2]]);
  const piped = await cluster.pipeline().set("{io}b", 7).get("{io}a").get("{io}b").exec();
  assert.deepEqual(piped.map(([, value]) => value), ["OK", "2", "7"]);
  await assert.rejects(cluster.mget("io:1", "io:2"), /CROSSSLOT/);
  assert.equal(await cluster.eval("return redis.call('incrby', KEYS[1], ARGV[1])", 1, "{io}a", 40), 42);

  cluster.defineCommand("add", { numberOfKeys: 1, lua: "return redis.call('incrby', KEYS[1], ARGV[1])" });
  assert.equal(await cluster.add("{io}a", 1), 43);

  const sizes = await Promise.all(cluster.nodes("master").map((node) => node.dbsize()));
  assert.ok(sizes.reduce((sum, size) => sum + size, 0) >= KEYS);
  for (const node of cluster.nodes("master")) {
    // Keys are found at the node that has their slot, and at no other.
    const found = await node.keys("io:*");
    assert.ok(found.length > 0 && found.length < KEYS);
  }
  const waiting = cluster.blpop("{io}list", 30);
  const other = cluster.duplicate();
  await other.rpush("{io}list", "element");
  assert.deepEqual(await waiting, ["{io}list", "element"]);
  await other.quit();
}

async function main() {
  const cluster = new ioredis.Cluster([{ host: "127.0.0.1", port }], { redisOptions: { maxRetriesPerRequest: 2 } });
  try {
    await work(cluster);
  } finally {
    await cluster.quit();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
