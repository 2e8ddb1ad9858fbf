// BullMQ at work: this process queues jobs and audits, three child processes work, one of which is killed.
// Exits with 0 when every job was done exactly as promised, else with 1 and a line about the fault.
//
//   node bullmq.js PORT             the producer and auditor
//   node bullmq.js PORT worker      a worker, until a signal ends it
"use strict";

const assert = require("node:assert/strict");
const { fork } = require("node:child_process");
const { once } = require("node:events");
const { FlowProducer, Queue, QueueEvents, UnrecoverableError, Worker } = require("bullmq");
const Redis = require("ioredis").Redis;

const [port, role] = process.argv.slice(2);
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };
const WORKERS = 3;
const PLAIN = 400;

// A worker: notes every attempt in a hash, so that the auditor can count them.
async function work() {
  const redis = new Redis(connection);
  const attempts = async (job) => redis.hincrby("attempts", `${job.queueName}:${job.id}`, 1);
  const workers = {
    plain: async (job) => ({ doubled: job.data.value * 2, began: Date.now() }),
    flaky: async (job) => {
      if (job.attemptsMade < job.data.failures) throw new Error(`attempt ${job.attemptsMade}`);
      return job.attemptsMade;
    },
    hopeless: async (job) => {
      throw job.data.final ? new UnrecoverableError("final") : new Error("hopeless");
    },
    flow: async (job) => {
      const values = await job.getChildrenValues();
      return job.data.value + Object.values(values).reduce((sum, value) => sum + value, 0);
    },
    mortal: async (job) => {
      if ((await redis.set(`killed:${job.id}`, process.pid, "NX")) === "OK" && job.data.kills) {
        process.send({ mortal: process.pid });
        await new Promise(() => {});
      }
      return "survived";
    },
    scheduled: async () => "tick",
  };
  const running = Object.entries(workers).map(([name, run]) => {
    const processor = async (job) => {
      await attempts(job);
      return run(job);
    };
    // On a slow machine a job may come to a standstill without a kill, too: that is no reason to give it up.
    const mortal = name === "mortal" ? { lockDuration: 600, stalledInterval: 300, maxStalledCount: 1000 } : {};
    return new Worker(name, processor, { connection, concurrency: 4, ...mortal });
  });
  await Promise.all(running.map((worker) => worker.waitUntilReady()));
  // Told to end, or alone.
  process.once("disconnect", () => process.exit(1));
  process.send("ready");
  await once(process, "message");
  process.removeAllListeners("disconnect");
  await Promise.all(running.map((worker) => worker.close()));
  redis.disconnect();
  process.disconnect();
}

function spawn() {
  const child = fork(__filename, [port, "worker"]);
  return new Promise((resolve, reject) => {
    child.once("message", () => resolve(child));
    child.once("exit", (code) => reject(new Error(`a worker ended with ${code}`)));
  });
}

// Waits until so many jobs of a queue have ended that way.
async function ended(queue, state, count) {
  while ((await queue.getJobCountByTypes(state)) < count) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(await queue.getJobCountByTypes(state), count, `${queue.name}: ${state}`);
}

async function inAnyOrder(redis, queues) {
  const { plain, flaky, hopeless } = queues;
  // From the beginning: it is not told when it has begun to listen.
  const events = new QueueEvents("plain", { connection, lastEventId: "0-0" });
  await events.waitUntilReady();
  const completed = new Map();
  events.on("completed", ({ jobId }) => completed.set(jobId, (completed.get(jobId) ?? 0) + 1));

  const bulk = Array.from({ length: PLAIN }, (_, value) => ({ name: "job", data: { value }, opts: { jobId: `p${value}` } }));
  await Promise.all([plain.addBulk(bulk.slice(0, PLAIN / 2)), plain.addBulk(bulk.slice(PLAIN / 2))]);
  // The same again: jobs are known by their names, nothing is added.
  await plain.addBulk(bulk);
  const delayed = Array.from({ length: 40 }, (_, at) => ({ name: "late", data: { value: at }, opts: { delay: 100 + at * 20 } }));
  await plain.addBulk(delayed);
  await flaky.addBulk(
    Array.from({ length: 30 }, (_, at) => ({
      name: "flaky",
      data: { failures: at % 3 },
      opts: { attempts: 3, backoff: { type: at % 2 ? "exponential" : "fixed", delay: 20 } },
    })),
  );
  await hopeless.addBulk(
    Array.from({ length: 20 }, (_, at) => ({ name: "hopeless", data: { final: at < 5 }, opts: { attempts: 3, backoff: 10 } })),
  );

  await ended(plain, "completed", PLAIN + delayed.length);
  for (const job of await plain.getCompleted(0, -1)) {
    assert.equal(job.returnvalue.doubled, job.data.value * 2);
    const due = job.timestamp + (job.opts.delay ?? 0);
    assert.ok(job.returnvalue.began >= due, `${job.id} was ${due - job.returnvalue.began} ms early`);
    assert.equal(await redis.hget("attempts", `plain:${job.id}`), "1", `${job.id} was done once`);
  }
  await ended(flaky, "completed", 30);
  for (const job of await flaky.getCompleted(0, -1)) {
    assert.equal(job.returnvalue, job.data.failures);
    assert.equal(await redis.hget("attempts", `flaky:${job.id}`), String(job.data.failures + 1));
  }
  await ended(hopeless, "failed", 20);
  for (const job of await hopeless.getFailed(0, -1)) {
    assert.equal(job.failedReason, job.data.final ? "final" : "hopeless");
    assert.equal(await redis.hget("attempts", `hopeless:${job.id}`), job.data.final ? "1" : "3");
  }
  while (completed.size < PLAIN + delayed.length) await once(events, "completed");
  assert.ok([...completed.values()].every((count) => count === 1), "each completion is told once");
  await events.close();
}

// Jobs that are queued while no worker runs are done in order of priority, and first come, first served
// within one.
async function byPriority() {
  const queue = new Queue("ordered", { connection });
  const wanted = [];
  for (let at = 0; at < 60; at += 1) {
    const priority = (at * 7) % 5;
    await queue.add("job", { at }, { priority });
    wanted.push({ at, priority });
  }
  wanted.sort((a, b) => a.priority - b.priority || a.at - b.at);
  const seen = [];
  const worker = new Worker("ordered", async (job) => seen.push(job.data.at), { connection, concurrency: 1 });
  await ended(queue, "completed", wanted.length);
  await worker.close();
  assert.deepEqual(seen, wanted.map(({ at }) => at));

  // One more, last in, first out; and one that is promoted before its time.
  await queue.add("job", { at: 100 });
  await queue.add("job", { at: 101 }, { lifo: true });
  const late = await queue.add("job", { at: 102 }, { delay: 3_600_000 });
  await late.promote();
  await queue.pause();
  assert.ok(await queue.isPaused());
  await queue.resume();
  seen.length = 0;
  const again = new Worker("ordered", async (job) => seen.push(job.data.at), { connection, concurrency: 1 });
  await ended(queue, "completed", wanted.length + 3);
  await again.close();
  assert.deepEqual([...seen].sort(), [100, 101, 102]);
  assert.ok(seen.indexOf(101) < seen.indexOf(100));
  await queue.obliterate();
  await queue.close();
}

// A tree of jobs: parents run when all of their children have, and get their values.
async function flows(queues) {
  const producer = new FlowProducer({ connection });
  const tree = (depth, value) => ({
    name: `node${depth}`,
    queueName: "flow",
    data: { value },
    children: depth > 0 ? [1, 2, 3].map((child) => tree(depth - 1, value * child)) : [],
  });
  const roots = await Promise.all([1, 2, 3, 4].map((value) => producer.add(tree(2, value))));
  const sum = (depth, value) => value + (depth > 0 ? [1, 2, 3].reduce((all, child) => all + sum(depth - 1, value * child), 0) : 0);
  await ended(queues.flow, "completed", roots.length * 13);
  for (const [at, { job }] of roots.entries()) {
    const done = await queues.flow.getJob(job.id);
    assert.equal(done.returnvalue, sum(2, at + 1));
  }
  await producer.close();
}

// Work of a process that was killed is done by the others.
async function stalled(queues, children) {
  const { mortal } = queues;
  const killed = new Promise((resolve) =>
    children.forEach((child) =>
      child.once("message", () => {
        child.removeAllListeners("exit");
        child.once("exit", () => resolve(child));
        child.kill("SIGKILL");
      }),
    ),
  );
  await mortal.addBulk(Array.from({ length: 20 }, (_, at) => ({ name: "job", data: { kills: at === 10 } })));
  const gone = await killed;
  await ended(mortal, "completed", 20);
  for (const job of await mortal.getCompleted(0, -1)) assert.equal(job.returnvalue, "survived");
  return children.filter((child) => child !== gone);
}

async function scheduled(redis, queues) {
  await queues.scheduled.upsertJobScheduler("ticks", { every: 60, limit: 5 });
  await ended(queues.scheduled, "completed", 5);
  const attempts = Object.entries(await redis.hgetall("attempts")).filter(([name]) => name.startsWith("scheduled:"));
  assert.equal(attempts.length, 5);
  assert.ok(attempts.every(([, count]) => count === "1"));
}

async function audit() {
  const redis = new Redis(connection);
  await redis.flushall();
  let children = await Promise.all(Array.from({ length: WORKERS }, spawn));
  const names = ["plain", "flaky", "hopeless", "flow", "mortal", "scheduled"];
  const queues = Object.fromEntries(names.map((name) => [name, new Queue(name, { connection })]));
  await Promise.all([inAnyOrder(redis, queues), byPriority(), flows(queues), scheduled(redis, queues)]);
  children = await stalled(queues, children);
  for (const queue of Object.values(queues)) {
    const left = await queue.getJobCountByTypes("active", "waiting", "delayed", "prioritized", "waiting-children");
    assert.equal(left, 0, `${queue.name} is drained`);
    // Cleaning goes through the larger scripts.
    await queue.clean(0, 1000, "completed");
    assert.equal(await queue.getJobCountByTypes("completed"), 0);
    await queue.obliterate({ force: true });
    await queue.close();
  }
  await Promise.all(
    children.map((child) => {
      child.removeAllListeners("exit");
      child.send("end");
      return once(child, "exit");
    }),
  );
  redis.disconnect();
}

(role === "worker" ? work() : audit()).catch((error) => {
  console.error(error);
  process.exit(1);
});
