// Sessions of a web application: a hash each, which expires when it has not been used for a while.
//
//   node sessions.js      a story: log in, come back, stay away too long
//
//   session:<token>   hash: user, visits and whatever the application keeps
"use strict";

const assert = require("node:assert/strict");
const crypto = require("node:crypto");
const ioredis = require("ioredis");
const Redis = ioredis.Redis ?? ioredis.default ?? ioredis;

class Sessions {
  constructor(redis, idleMs) {
    this.redis = redis;
    this.idleMs = idleMs;
  }

  // A new session; its token is for the cookie.
  async open(fields) {
    const token = crypto.randomBytes(16).toString("hex");
    await this.redis.multi().hset(`session:${token}`, { ...fields, visits: 0 }).pexpire(`session:${token}`, this.idleMs).exec();
    return token;
  }

  // The contents of a session, which lives on from now; null when it is over. A transaction: a session that ends
  // in between is not brought back without its fields.
  async visit(token) {
    const key = `session:${token}`;
    const [[, alive], [, fields]] = await this.redis.multi().pexpire(key, this.idleMs).hgetall(key).exec();
    if (!alive) return null;
    await this.redis.hincrby(key, "visits", 1);
    return fields;
  }

  close(token) {
    return this.redis.unlink(`session:${token}`);
  }
}

// A connection that is not open yet. Without the listener, ioredis prints every failed attempt.
function connection() {
  const redis = new Redis(process.env.DUNLIN_URL ?? "redis://127.0.0.1:6379", { lazyConnect: true });
  redis.on("error", (error) => (redis.lastError = error));
  redis.connected = redis.connect().catch(() => {
    console.error(`no server: ${redis.lastError?.message}. Start one (make run), or name one in DUNLIN_URL.`);
    process.exit(1);
  });
  return redis;
}

async function main() {
  const redis = connection();
  await redis.connected;
  const sessions = new Sessions(redis, 60_000);
  const token = await sessions.open({ user: "gregory", theme: "dark" });
  assert.equal((await sessions.visit(token)).visits, "0");
  const again = await sessions.visit(token);
  console.log(`${again.user} has come back, visits before: ${again.visits}`);
  await sessions.close(token);
  assert.equal(await sessions.visit(token), null);

  const brief = new Sessions(redis, 1);
  const forgotten = await brief.open({ user: "late" });
  while (await redis.exists(`session:${forgotten}`)) await new Promise((resolve) => setTimeout(resolve, 1));
  assert.equal(await brief.visit(forgotten), null);
  assert.equal(await redis.exists(`session:${forgotten}`), 0);
  console.log("a session that nobody used is gone, and stays gone");
  redis.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
