// ioredis and node-redis as drivers; test_cluster_clients.py has the protocol. The first argument names the library.
"use strict";

const assert = require("node:assert/strict");
const { createRequire } = require("node:module");
const path = require("node:path");
const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");
// The libraries lie beside the other clients.
const load = createRequire(path.join(__dirname, "../../clients/package.json"));

const [WORKERS, KEYS, PAUSE_MS, MESSAGE_MS] = [2, 32, 4, 20000];
const SCRIPT = "return redis.call('incrby', KEYS[1], ARGV[1])";
const [, , library, mode, list, name] = process.argv;
const addresses = list.split(",").map((address) => ({ host: address.split(":")[0], port: Number(address.split(":")[1]) }));

const within = (promise, what) =>
  Promise.race([promise, sleep(MESSAGE_MS).then(() => { throw new Error(`no ${what} in time`); })]);

class Ioredis {
  async connect() {
    const ioredis = load("ioredis");
    this.client = mode === "cluster" ? new ioredis.Cluster(addresses) : new ioredis({ sentinels: addresses, name, failoverDetector: true });
    this.client.on("error", () => {});
    await this.client.ping();
  }
  incr(key) { return this.client.incr(key); }
  get(key) { return this.client.get(key); }
  async pair(c, d) { return unwrap(await this.client.multi().incr(c).incr(d).exec()); }

  async check(prefix) {
    const { client } = this;
    const [tag, keys] = [`{${prefix}}`, Array.from({ length: 200 }, (_, at) => `${prefix}:${at}`)];
    await Promise.all(keys.map((key, at) => client.set(key, at)));
    assert.deepEqual(await Promise.all(keys.map((key) => client.get(key))), keys.map((_, at) => String(at)));
    await client.mset(`${tag}a`, 1, `${tag}b`, 2);
    assert.deepEqual(await client.mget(`${tag}a`, `${tag}b`), ["1", "2"]);
    assert.deepEqual(unwrap(await client.pipeline().incr(`${tag}a`).get(`${tag}b`).exec()), [2, "2"]);
    assert.deepEqual(await this.pair(`${tag}a`, `${tag}b`), [3, 3]);
    client.defineCommand("add", { numberOfKeys: 1, lua: SCRIPT });
    assert.equal(await client.add(`${tag}a`, 39), 42);
    const list = client.blpop(`${tag}list`, 30);
    const other = client.duplicate();
    await other.rpush(`${tag}list`, "element");
    assert.deepEqual(await list, [`${tag}list`, "element"]);
    await this.hears(other, "message", () => other.subscribe(prefix), () => client.publish(prefix, "hello"));
    if (mode === "cluster") {
      await assert.rejects(client.mget(keys), /CROSSSLOT|same slot/);
      const sharded = new (load("ioredis").Cluster)(addresses, { shardedSubscribers: true });
      await this.hears(sharded, "smessage", () => sharded.ssubscribe(prefix), () => client.spublish(prefix, "hello"));
      sharded.disconnect();
      const sizes = await Promise.all(client.nodes("master").map((node) => node.dbsize()));
      assert.ok(sizes.reduce((sum, size) => sum + size, 0) >= keys.length);
    }
    other.disconnect();
  }
  async hears(client, event, subscribe, publish) {
    const heard = new Promise((resolve) => client.once(event, (_, text) => resolve(text)));
    await subscribe();
    await publish();
    assert.equal(await within(heard, event), "hello");
  }
  close() { this.client.disconnect(); }
}

class NodeRedis {
  async connect() {
    const redis = load("redis");
    const nodes = addresses.map(({ host, port }) => ({ host, port }));
    this.client = mode === "cluster"
      ? redis.createCluster({ rootNodes: nodes.map((socket) => ({ socket })) })
      : redis.createSentinel({ name, sentinelRootNodes: nodes });
    this.client.on("error", () => {});
    await this.client.connect();
  }
  incr(key) { return this.client.incr(key); }
  get(key) { return this.client.get(key); }
  pair(c, d) { return this.client.multi().incr(c).incr(d).exec(); }

  async check(prefix) {
    const { client } = this;
    const [tag, keys] = [`{${prefix}}`, Array.from({ length: 200 }, (_, at) => `${prefix}:${at}`)];
    // The commands of one turn are a pipeline.
    await Promise.all(keys.map((key, at) => client.set(key, at)));
    assert.deepEqual(await Promise.all(keys.map((key) => client.get(key))), keys.map((_, at) => String(at)));
    await client.mSet([[`${tag}a`, "1"], [`${tag}b`, "2"]]);
    assert.deepEqual(await client.mGet([`${tag}a`, `${tag}b`]), ["1", "2"]);
    assert.deepEqual(await this.pair(`${tag}a`, `${tag}b`), [2, 3]);
    assert.equal(await client.eval(SCRIPT, { keys: [`${tag}a`], arguments: ["40"] }), 42);
    await this.hears((listener) => client.subscribe(prefix, listener), () => client.publish(prefix, "hello"));
    await client.unsubscribe(prefix);
    if (mode === "cluster") {
      // The library splits it by slots.
      assert.deepEqual(await client.mGet(keys), keys.map((_, at) => String(at)));
      await this.hears((listener) => client.sSubscribe(prefix, listener), () => client.sPublish(prefix, "hello"));
      await client.sUnsubscribe(prefix);
    }
  }
  async hears(subscribe, publish) {
    let hear;
    const heard = new Promise((resolve) => { hear = resolve; });
    await subscribe(hear);
    await publish();
    assert.equal(await within(heard, "message"), "hello");
  }
  close() { this.client.destroy(); }
}

function unwrap(results) {
  return results.map(([error, value]) => {
    if (error) throw error;
    return value;
  });
}

class Load {
  constructor(client) {
    this.client = client;
    this.workers = [];
    this.counters = [];
    this.ends = false;
    this.forget();
  }
  forget() {
    Object.assign(this, { done: 0, errors: 0, doubled: 0, lost: 0, longest: 0, texts: [] });
  }
  start(prefix) {
    for (let worker = 0; worker < WORKERS; worker++) {
      const counters = Array.from({ length: KEYS }, (_, at) => ({ key: `{${prefix}-${worker}-${at}}`, c: [0, 0], d: [0, 0] }));
      this.counters.push(...counters);
      this.workers.push(this.work(counters));
    }
  }
  async work(counters) {
    for (let step = 0; !this.ends; step++) {
      await this.step(counters[step % KEYS], Math.floor(step / KEYS) % 4);
      await sleep(PAUSE_MS);
    }
  }
  async step(counter, kind) {
    const [c, d] = [`${counter.key}c`, `${counter.key}d`];
    const began = Date.now();
    let got;
    try {
      if (kind === 2) got = await this.client.pair(c, d);
      else if (kind === 3) got = Number((await this.client.get(c)) ?? 0);
      else got = [await this.client.incr(c)];
    } catch (error) {
      this.errors++;
      if (this.texts.length < 5) this.texts.push(String(error));
      if (kind !== 3) counter.c[1]++;
      if (kind === 2) counter.d[1]++;
      return;
    } finally {
      this.longest = Math.max(this.longest, Date.now() - began);
    }
    this.done++;
    if (kind === 3) {
      const [last, unknown] = counter.c;
      if (got < last) this.lost++;
      else if (!unknown) this.doubled += got - last;
      return;
    }
    got.forEach((value, at) => {
      const [last, unknown] = counter["cd"[at]];
      if (!(value > last)) this.lost++;
      else if (!unknown) this.doubled += value - last - 1;
      counter["cd"[at]][0] = value;
    });
  }
  report() {
    const line = `${this.done} ${this.errors} ${this.doubled} ${this.lost} ${this.longest} ${this.texts.join(" | ")}`;
    this.forget();
    return line;
  }
  async stop() {
    this.ends = true;
    await Promise.all(this.workers);
    return this.counters.flatMap(({ key, c, d }) => [`${key}c=${c.join(":")}`, `${key}d=${d.join(":")}`]).join(" ");
  }
}

async function main() {
  const client = library === "ioredis" ? new Ioredis() : new NodeRedis();
  await client.connect();
  const load = new Load(client);
  const words = {
    check: (prefix) => client.check(prefix),
    load: (prefix) => load.start(prefix),
    report: () => load.report(),
    stop: () => load.stop(),
  };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [word, ...rest] = line.trim().split(" ");
    let answer;
    try {
      answer = `ok ${(await words[word](...rest)) ?? ""}`;
    } catch (error) {
      answer = `failed ${error.stack ?? error}`;
    }
    console.log(answer.replace(/\s+/g, " "));
  }
  load.ends = true;
  client.close();
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
