// A page to type into: every key press asks for the titles with a word that begins so.
//
//   node autocomplete.js [PORT]        then open http://127.0.0.1:8080
//
//   autocomplete:words   sorted set of `<word>\0<title>`, all with score 0: in the order of their bytes
//
// A sorted set and ZRANGE BYLEX do what a set for every prefix does, in a fraction of the memory.
"use strict";

const http = require("node:http");
const ioredis = require("ioredis");
const Redis = ioredis.Redis ?? ioredis.default ?? ioredis;

const TITLES = [
  "The Art of Computer Programming", "The C Programming Language", "The Mythical Man-Month", "The Pragmatic Programmer",
  "Structure and Interpretation of Computer Programs", "Transaction Processing", "Programming Pearls", "Purely Functional Data Structures",
  "Compilers: Principles, Techniques and Tools", "Computer Networks", "Concrete Mathematics", "Introduction to Algorithms",
];
const KEY = "autocomplete:words";
const SHOWN = 10;

const redis = connection();

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

async function load() {
  const pipeline = redis.pipeline().del(KEY);
  for (const title of TITLES) {
    for (const word of title.toLowerCase().match(/[\p{L}\p{N}]+/gu)) pipeline.zadd(KEY, 0, `${word}\0${title}`);
  }
  for (const [error] of await pipeline.exec()) if (error) throw error;
}

async function complete(typed) {
  const prefix = typed.trim().toLowerCase();
  if (!prefix) return [];
  const members = await redis.zrange(KEY, `[${prefix}`, `(${prefix}\u{10ffff}`, "BYLEX", "LIMIT", 0, SHOWN);
  return [...new Set(members.map((member) => member.split("\0")[1]))];
}

const PAGE = `<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Autocomplete</title><style>body{font:18px system-ui;max-width:30rem;margin:2rem auto;padding:0 1rem}
input{font:inherit;width:100%;padding:.4rem;box-sizing:border-box}li{padding:.2rem 0}</style>
<h1>Books</h1><input id="typed" placeholder="type a word: comp, prog, the" autofocus><ul id="titles"></ul>
<script>
const typed = document.getElementById("typed"), list = document.getElementById("titles");
let last = 0;
typed.addEventListener("input", async () => {
  const asked = ++last;
  const titles = await (await fetch("/complete?typed=" + encodeURIComponent(typed.value))).json();
  if (asked !== last) return; // an answer that was overtaken
  list.replaceChildren(...titles.map((title) => Object.assign(document.createElement("li"), { textContent: title })));
});
</script>`;

const server = http.createServer(async (request, response) => {
  const url = new URL(request.url, "http://localhost");
  try {
    if (url.pathname === "/") {
      response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(PAGE);
    } else if (url.pathname === "/complete") {
      const titles = await complete(url.searchParams.get("typed") ?? "");
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(titles));
    } else {
      response.writeHead(404).end();
    }
  } catch (error) {
    response.writeHead(500).end(error.message);
  }
});

redis.connected.then(load).then(
  () => server.listen(Number(process.argv[2] ?? 8080), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`)),
  (error) => {
    console.error(error.message);
    process.exit(1);
  },
);
