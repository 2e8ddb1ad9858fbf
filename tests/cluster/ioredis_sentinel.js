// ioredis finds the primary of the cluster NAME by SENTINEL at the node PORT, writes, and follows it when a line arrives on
// standard input. Exits with 0 when every write was at the primary, else with 1 and the reason.
"use strict";

const { createRequire } = require("node:module");
const path = require("node:path");
const readline = require("node:readline");
// Its modules lie beside the other clients.
const ioredis = createRequire(path.join(__dirname, "../clients/ioredis_client.js"))("ioredis");

const [port, name] = [Number(process.argv[2]), process.argv[3]];
const DEADLINE_MS = 30000;

async function write(redis, value) {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    try {
      await redis.mset("io:one", value, "io:two", value);
      return (await redis.mget("io:one", "io:two")).join();
    } catch (error) {
      if (Date.now() > deadline) throw error;
    }
  }
}

async function main() {
  const redis = new ioredis({ sentinels: [{ host: "127.0.0.1", port }], name, failoverDetector: true });
  redis.on("error", () => {});
  try {
    console.log(await write(redis, "1"), (await redis.role())[0], redis.stream.remotePort);
    for await (const line of readline.createInterface({ input: process.stdin })) {
      console.log(await write(redis, line), (await redis.role())[0], redis.stream.remotePort);
    }
  } finally {
    redis.disconnect();
  }
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
