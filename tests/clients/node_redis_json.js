// JSON by node-redis: every command of its package, at an address (host:port) and with a protocol that are given.
"use strict";

const assert = require("node:assert/strict");
const { createClient } = require("redis");

async function main(address, RESP) {
  const redis = await createClient({ url: `redis://${address}`, RESP }).connect();
  const json = redis.json;
  await redis.del(["doc", "one", "two"]);
  const document = { a: 1, list: [1, 2, 3], of: { x: 1.5, s: "foo" }, t: true, nothing: null };
  assert.equal(await json.set("doc", "$", document), "OK");
  assert.equal(await json.set("doc", "$.a", 2, { condition: "NX" }), null);
  assert.deepEqual(await json.get("doc"), document);
  assert.deepEqual(await json.get("doc", { path: "$.of.x" }), [1.5]);
  assert.deepEqual(await json.get("doc", { path: ["$.a", "$.t"] }), { "$.a": [1], "$.t": [true] });
  assert.equal(await json.get("missing"), null);
  assert.equal(await json.mSet([{ key: "one", path: "$", value: { v: 1 } }, { key: "two", path: "$", value: { v: 2 } }]), "OK");
  assert.deepEqual(await json.mGet(["one", "two", "missing"], "$.v"), [[1], [2], null]);
  assert.deepEqual(await json.numIncrBy("doc", "$.a", 41), [42]);
  assert.deepEqual(await json.numMultBy("doc", "$.of.x", 2), [3]);
  assert.deepEqual(await json.toggle("doc", "$.t"), [0]);
  assert.deepEqual(await json.strAppend("doc", "bar", { path: "$.of.s" }), [6]);
  assert.deepEqual(await json.strLen("doc", { path: "$.of.s" }), [6]);
  assert.deepEqual(await json.arrAppend("doc", "$.list", 4, { five: 5 }), [5]);
  assert.deepEqual(await json.arrIndex("doc", "$.list", 3), [2]);
  assert.deepEqual(await json.arrInsert("doc", "$.list", 0, 0), [6]);
  assert.deepEqual(await json.arrLen("doc", { path: "$.list" }), [6]);
  assert.deepEqual(await json.arrPop("doc", { path: "$.list" }), [{ five: 5 }]);
  assert.deepEqual(await json.arrTrim("doc", "$.list", 1, 2), [2]);
  assert.deepEqual(await json.objKeys("doc", { path: "$.of" }), [["x", "s"]]);
  assert.deepEqual(await json.objLen("doc", { path: "$.of" }), [2]);
  assert.equal(await json.merge("doc", "$", { of: null, more: { y: [true] } }), "OK");
  assert.deepEqual((await json.type("doc", { path: "$.more.y" })).flat(), ["array"]);
  assert.equal(await json.clear("doc", { path: "$.list" }), 1);
  assert.ok((await json.debugMemory("doc")) > 10);
  assert.equal(await json.del("doc", { path: "$.list" }), 1);
  assert.deepEqual(await json.get("doc"), { a: 42, t: false, nothing: null, more: { y: [true] } });
  assert.equal(await json.forget("doc"), 1);
  const replies = await redis.multi().json.set("doc", "$", [1]).json.arrAppend("doc", "$", 2).json.get("doc").exec();
  assert.deepEqual(replies, ["OK", [2], [1, 2]]);
  await assert.rejects(json.set("missing", "$.a", 1), /new objects must be created at the root/);
  await redis.close();
}

main(process.argv[2], Number(process.argv[3])).catch((error) => {
  console.error(error);
  process.exit(1);
});
