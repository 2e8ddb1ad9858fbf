// Drives the console in a real browser, once for all tests: node console.mjs PORT SERVER OUT [SHOTS]
// SERVER is the port of clients, where other clients change what the console shows. With CONSOLE_FILES=DIRECTORY the page is
// the one that `node build.mjs DIRECTORY` has made, so that no server has to be built anew for it.
// Writes OUT: a JSON object of the steps by their names, each "ok" or what went wrong. Steps build on those before them.
import { createRequire } from "node:module";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import net from "node:net";
import path from "node:path";

const [port, server, out, shots] = process.argv.slice(2);
const require = createRequire(new URL("../../console/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const site = `http://127.0.0.1:${port}/`;
const PAGES = [
  ["overview", "Overview"],
  ["keys", "Keys"],
  ["terminal", "Commands"],
  ["slow", "Slow log and hot keys"],
  ["clients", "Clients"],
  ["pubsub", "Pub/Sub and MONITOR"],
  ["config", "Configuration"],
  ["replication", "Persistence and replication"],
  ["cluster", "Cluster"],
  ["users", "Users"],
];
const results = {};
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
const axe = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");
async function newContext(options) {
  const made = await browser.newContext({ viewport: { width: 1360, height: 900 }, colorScheme: "light", ...options });
  made.setDefaultTimeout(Number(process.env.CONSOLE_PATIENCE_MS ?? 60000));
  for (const name of process.env.CONSOLE_FILES ? ["app.js", "style.css"] : []) {
    await made.route(`**/${name}`, async (route) =>
      route.fulfill({ response: await route.fetch(), body: await readFile(path.join(process.env.CONSOLE_FILES, name)) }),
    );
  }
  return made;
}
const context = await newContext();
const page = await context.newPage();
const complaints = [];
page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
page.on("pageerror", (error) => complaints.push(String(error)));

async function step(name, run) {
  try {
    await run();
    results[name] = "ok";
  } catch (error) {
    results[name] = String(error.stack ?? error).slice(0, 2000);
    console.log(name, results[name]);
    await beginAnew().catch(() => {});
    if (shots) await page.screenshot({ path: path.join(shots, `failed-${name}.png`) }).catch(() => {});
  }
}
/** A page after a fault, which the next step need not bear. */
async function beginAnew() {
  await page.setViewportSize({ width: 1360, height: 900 });
  await page.emulateMedia({ colorScheme: "light" });
  await page.goto("about:blank");
  await page.goto(site);
  await login("default", "secret");
}
page.on("dialog", (dialog) => dialog.accept());
function must(is, why) {
  if (!is) throw new Error(why);
}
/** Waits until something is so. */
async function until(is, why) {
  for (let n = 0; n < 600 && !(await is()); n++) await page.waitForTimeout(100);
  must(await is(), why);
}
/** Another client: its answers as text, arrays as arrays. */
const other = net.connect(Number(server), "127.0.0.1");
const replies = [];
let rest = Buffer.alloc(0);
function reply(at) {
  const end = rest.indexOf("\r\n", at);
  if (end < 0) return null;
  const [kind, line] = [String.fromCharCode(rest[at]), rest.subarray(at + 1, end).toString()];
  if (kind === "$" && line !== "-1") return end + 4 + Number(line) > rest.length ? null : [rest.subarray(end + 2, end + 2 + Number(line)).toString("latin1"), end + 4 + Number(line)];
  if (kind !== "*") return [line, end + 2];
  const items = [];
  let next = end + 2;
  for (let n = 0; n < Number(line); n++) {
    const item = reply(next);
    if (!item) return null;
    items.push(item[0]);
    next = item[1];
  }
  return [items, next];
}
other.on("data", (chunk) => {
  rest = Buffer.concat([rest, chunk]);
  for (let found = reply(0); found; found = reply(0)) {
    rest = rest.subarray(found[1]);
    replies.shift()(found[0]);
  }
});
function redis(...args) {
  const words = args.map((arg) => Buffer.from(String(arg), "latin1"));
  other.write(Buffer.concat([Buffer.from(`*${words.length}\r\n`), ...words.flatMap((word) => [Buffer.from(`$${word.length}\r\n`), word, Buffer.from("\r\n")])]));
  return new Promise((resolve) => replies.push(resolve));
}
async function shoot(name, target = page) {
  if (!shots) return;
  await mkdir(shots, { recursive: true });
  await page.evaluate(() => scrollTo(0, 0));
  // Without the messages of earlier steps, and with the figures of some seconds.
  await page.locator(".toast").last().waitFor({ state: "detached" });
  await page.waitForTimeout(1500);
  await target.screenshot({ path: path.join(shots, `${name}.png`) });
}
async function visit(name, title, query = "") {
  await page.goto(`${site}#/${name}${query}`);
  await page.getByRole("heading", { level: 1, name: title }).waitFor();
}
await redis("AUTH", "secret");
async function login(user, password) {
  await page.getByLabel("User").fill(user);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
}
const toast = (text) => page.locator(".toast", { hasText: text }).first().waitFor();
const answer = () => page.locator(".screen .entry").last();
async function type(command) {
  const input = page.getByRole("textbox", { name: "Command", exact: true });
  await input.fill(command);
  await input.press("Enter");
}

await step("login_is_refused_with_a_wrong_password", async () => {
  await page.goto(site);
  await page.getByRole("button", { name: "Log in" }).waitFor();
  await shoot("login");
  await login("default", "wrong");
  await page.getByRole("alert").filter({ hasText: "invalid username-password" }).waitFor();
});
await step("login_with_a_user_of_the_server", async () => {
  await login("default", "secret");
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  must((await page.locator(".who").textContent()).trim() === "default", "the user is not shown");
});
await step("overview_shows_figures_and_plots", async () => {
  await page.locator(".tile", { hasText: "Keys" }).getByText(/^\d/).waitFor();
  must((await page.locator("canvas").count()) === 10, "there are ten plots");
  await page.locator('[role="img"][aria-label*="now"]').first().waitFor();
});
await step("slow_command_is_on_the_time_line_and_explained", async () => {
  await visit("terminal", "Commands");
  await type("DEBUG SLEEP 0.12");
  await answer().getByText("OK").waitFor();
  await visit("overview", "Overview");
  const event = page.locator(".events li", { hasText: "DEBUG SLEEP 0.12" }).first();
  await event.waitFor();
  await event.getByRole("button").click();
  await page.locator(".why", { hasText: /DEBUG SLEEP 0\.12 took (1[2-9]\d|[2-9]\d\d|\d{4,})\.\d ms \(client 127\.0\.0\.1:\d+, name console, user default\)/ }).waitFor();
  await page.waitForTimeout(1200);
  await shoot("overview");
});
await step("keys_are_a_tree_with_counts", async () => {
  await visit("keys", "Keys");
  const folder = page.locator(".folder", { hasText: /user:/ }).first();
  await page.getByText(/^6,\d\d\d keys/).waitFor();
  await until(async () => /user:\s*300 ·/.test(await folder.textContent()), "the folder has 300 keys");
  await folder.getByRole("button").first().click();
  await page.locator(".folder", { hasText: /user:1:/ }).first().waitFor();
});
async function choose(key, shown = key, pattern = key) {
  await visit("keys", "Keys", `?pattern=${encodeURIComponent(pattern)}`);
  await page.getByText(/^1 matching key/).waitFor();
  const leaf = page.locator(".leaf", { hasText: shown.split(":").pop() }).first();
  await leaf.click();
  await page.locator(".detail h2", { hasText: shown }).waitFor();
}
const save = () => page.getByRole("button", { name: "Save", exact: true }).click();
const saved = () => page.getByRole("button", { name: "Save", exact: true, disabled: true }).waitFor();
await step("string_is_edited", async () => {
  await choose("edit:string");
  await page.getByLabel("Value", { exact: true }).fill("grün");
  await save();
  await saved();
});
await step("large_string_is_seen_in_pieces", async () => {
  await choose("edit:large");
  await page.getByText(/Bytes 0 to 65,536 of 300,000/).waitFor();
  await page.getByRole("button", { name: "Next" }).click();
  await page.getByText(/Bytes 65,536 to 131,072/).waitFor();
});
await step("hash_is_edited", async () => {
  await choose("edit:hash");
  await page.getByRole("button", { name: "Edit f1" }).click();
  const input = page.locator("td textarea");
  await input.fill("changed");
  await input.press("Enter");
  await input.waitFor({ state: "detached" });
  await page.getByLabel("Field", { exact: true }).fill("new");
  await page.getByLabel("Value", { exact: true }).fill("x y");
  await page.getByRole("button", { name: "Add" }).click();
  await page.getByRole("button", { name: "Edit new" }).waitFor();
  await page.getByRole("button", { name: "Remove f2" }).click();
  await page.getByRole("button", { name: "Edit f2" }).waitFor({ state: "detached" });
  await shoot("keys");
});
await step("list_is_edited", async () => {
  await choose("edit:list");
  await page.getByRole("button", { name: "Remove 1" }).click();
  await page.getByText("1 to 2 of 2").waitFor();
  await page.getByRole("button", { name: "Edit 0" }).click();
  await page.locator("td textarea").fill("first");
  await page.locator("td").getByRole("button", { name: "Save" }).click();
  await page.locator("td textarea").waitFor({ state: "detached" });
});
await step("set_is_edited", async () => {
  await choose("edit:set");
  await page.getByLabel("Member", { exact: true }).fill("c");
  await page.getByRole("button", { name: "Add" }).click();
  await page.getByRole("button", { name: "Remove c" }).waitFor();
  await page.getByRole("button", { name: "Remove a" }).click();
  await page.getByRole("button", { name: "Remove a" }).waitFor({ state: "detached" });
});
await step("sorted_set_is_edited", async () => {
  await choose("edit:zset");
  await page.getByRole("button", { name: "Edit one" }).click();
  await page.locator("td textarea").fill("1.5");
  await page.locator("td textarea").press("Enter");
  await page.locator("td textarea").waitFor({ state: "detached" });
});
await step("stream_is_edited_and_shows_its_groups", async () => {
  await choose("edit:stream");
  await page.getByLabel("Field", { exact: true }).fill("k");
  await page.getByLabel("Value", { exact: true }).fill("v2");
  await page.getByRole("button", { name: "Add" }).first().click();
  await page.getByText("2 entries").waitFor();
  await page.locator("summary", { hasText: "workers" }).click();
  await page.getByRole("cell", { name: "joe" }).first().waitFor();
  await shoot("stream");
});
await step("json_is_edited_as_a_tree", async () => {
  await choose("edit:json");
  await page.getByRole("button", { name: "Edit name" }).click();
  await page.locator("td textarea").fill('"Bob"');
  await page.locator("td textarea").press("Enter");
  await page.locator("td textarea").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Open list" }).click();
  await page.getByRole("button", { name: "Edit 2" }).waitFor();
  await page.getByLabel("JSON at the end", { exact: true }).fill('{"x":7}');
  await page.getByRole("button", { name: "Add" }).click();
  await page.getByRole("button", { name: "Open 3" }).waitFor();
  await page.getByRole("button", { name: "Remove 0" }).click();
  await page.getByRole("button", { name: "Open 2" }).waitFor();
  await page.getByRole("button", { name: "$", exact: true }).click();
  await page.getByRole("button", { name: "Open list" }).waitFor();
  await page.getByLabel("Values that match a path").fill("$..x");
  await page.getByRole("button", { name: "Search" }).click();
  await page.locator("pre", { hasText: "7" }).waitFor();
  await shoot("json");
});
await step("expiry_is_set_and_shown_as_a_command", async () => {
  await choose("edit:set");
  await page.getByRole("button", { name: "no expiry" }).click();
  await page.getByLabel("Seconds").fill("1000");
  await page.locator("dialog code", { hasText: "EXPIRE edit:set 1000" }).waitFor();
  await page.getByRole("button", { name: "Set", exact: true }).click();
  await toast("Expiry set");
  await page.locator(".strip", { hasText: "EXPIRE edit:set 1000" }).waitFor();
});
await step("key_of_any_bytes_is_not_changed_by_being_shown", async () => {
  await choose("bin", "bin:\\xff\\x00", "bin:*");
  const value = page.getByLabel("Value", { exact: true });
  await value.waitFor();
  must((await value.inputValue()) === "00 ff 5c", await value.inputValue());
  await page.getByLabel("Value, shown as").selectOption("escapes");
  must((await value.inputValue()) === "\\x00\\xff\\\\", await value.inputValue());
  must(await page.getByRole("button", { name: "Save", exact: true }).isDisabled(), "another form is no change");
});
await step("keys_are_deleted_by_prefix_after_they_were_counted", async () => {
  await visit("keys", "Keys");
  const folder = page.locator(".folder", { hasText: "doomed:" });
  await folder.waitFor();
  await folder.hover();
  await folder.getByRole("button", { name: /Delete/ }).click();
  const confirm = page.getByRole("button", { name: "Delete 50 keys" });
  await confirm.waitFor();
  await page.getByRole("dialog").getByText("database 0").waitFor();
  await shoot("delete");
  await confirm.click();
  await toast("50 keys deleted");
});
await step("terminal_completes_documents_and_shows_trees", async () => {
  await visit("terminal", "Commands");
  const input = page.getByRole("textbox", { name: "Command", exact: true });
  await input.fill("hgeta");
  await page.locator(".completions", { hasText: "HGETALL" }).waitFor();
  await input.press("Tab");
  must((await input.inputValue()) === "HGETALL ", await input.inputValue());
  await page.locator(".help h2", { hasText: "HGETALL" }).waitFor();
  await input.type("edit:hash");
  await input.press("Enter");
  await answer().getByText(/map of \d/).waitFor();
  await type('SET "a b" "c\\nd"');
  await answer().getByText("OK").waitFor();
  await type("GET");
  await answer().getByText(/wrong number of arguments/).waitFor();
  await type("CONFIG GET maxmemory*");
  await answer().getByText(/map of/).waitFor();
  await input.fill("ZADD ");
  await page.locator(".help h2", { hasText: "ZADD" }).waitFor();
  await shoot("terminal");
  await input.fill("");
  await input.press("ArrowUp");
  must((await input.inputValue()) === "CONFIG GET maxmemory*", "the history");
  await type("MONITOR");
  await answer().getByText(/use the page Pub\/Sub/).waitFor();
});
await step("slow_log_and_hot_keys", async () => {
  await visit("slow", "Slow log and hot keys");
  await page.getByRole("cell", { name: "DEBUG SLEEP 0.12" }).waitFor();
  await page.getByRole("button", { name: "Collect" }).click();
  await toast("Collecting");
  await page.getByRole("button", { name: "Stop" }).waitFor();
  await shoot("slow");
  await page.getByRole("button", { name: "Stop" }).click();
  await toast("Stopped");
});
await step("clients_are_listed_and_killed", async () => {
  await visit("clients", "Clients");
  const row = page.getByRole("row", { name: /victim/ });
  await row.waitFor();
  await shoot("clients");
  await row.getByRole("button", { name: /Kill/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Kill" }).click();
  await row.waitFor({ state: "detached" });
});
await step("messages_are_published_and_heard", async () => {
  await visit("pubsub", "Pub/Sub and MONITOR");
  await page.getByLabel("Channel or pattern").fill("news.*");
  await page.getByRole("button", { name: "Subscribe", exact: true }).click();
  await page.getByText("PSUBSCRIBE news.*").waitFor();
  await page.getByLabel("To channel").fill("news.today");
  await page.getByLabel("Message", { exact: true }).fill("hello");
  await page.getByRole("button", { name: "Publish", exact: true }).click();
  await page.getByRole("log", { name: "Messages" }).getByText("hello").waitFor();
});
await step("monitor_shows_commands_and_ends", async () => {
  await page.getByRole("button", { name: "Start" }).click();
  // Of a busy server's commands only some are shown.
  const seen = page.getByRole("log", { name: "Commands of all clients" }).getByText(/"PUBLISH" "news.today"/).first();
  for (let tries = 0; tries < 250 && !(await seen.isVisible()); tries += 1) {
    await page.getByRole("button", { name: "Publish", exact: true }).click();
    await page.waitForTimeout(200);
  }
  must(await seen.isVisible(), "MONITOR shows what was published");
  await shoot("pubsub");
  await page.getByRole("button", { name: "Stop", exact: true }).last().click();
});
await step("configuration_shows_what_differs_and_changes_it", async () => {
  await visit("config", "Configuration");
  const row = page.locator(".differs", { hasText: "requirepass" });
  await page.locator(".differs", { hasText: "http-port" }).waitFor();
  must((await row.count()) === 0, "a secret is not compared");
  await page.getByLabel("Filter").fill("slowlog-max-len");
  await page.getByRole("button", { name: "Change slowlog-max-len" }).click();
  await page.getByRole("dialog").getByLabel("Value").fill("77");
  await page.getByRole("button", { name: "Set", exact: true }).click();
  await page.locator(".differs", { hasText: "slowlog-max-len" }).getByText("77").waitFor();
  await page.getByLabel("Filter").fill("maxmemory-policy");
  await page.getByRole("button", { name: "Change maxmemory-policy" }).click();
  await until(async () => (await page.getByRole("dialog").getByRole("combobox").locator("option").count()) > 5, "few words are a choice");
  await page.keyboard.press("Escape");
  await page.getByLabel("Filter").fill("");
  await shoot("config");
});
await step("persistence_and_replication", async () => {
  await visit("replication", "Persistence and replication");
  await page.getByText("This is a primary").waitFor();
  must((await page.getByRole("button", { name: "Rewrite the log" }).count()) === 0, "there is no log to be rewritten");
  await page.getByRole("button", { name: "Save a snapshot" }).click();
  await toast("A snapshot is being written");
  await shoot("replication");
});
await step("users_are_listed_made_and_deleted", async () => {
  await visit("users", "Users");
  await page.getByRole("button", { name: "New user" }).click();
  const dialog = page.getByRole("dialog");
  const command = async () => (await dialog.locator("code").first().textContent()).trim();
  must(await dialog.getByRole("button", { name: "Make" }).isDisabled(), "a user has a name");
  await dialog.getByLabel("Name").fill("made");
  const shown = await command();
  must(/^ACL SETUSER made off resetpass "?>\(not shown\)"? resetkeys resetchannels -@all$/.test(shown), `a new user has no rights: ${shown}`);
  await shoot("new-user");
  await dialog.getByRole("button", { name: "on", exact: true }).click();
  await dialog.getByLabel("Keys").fill("~app:*");
  await dialog.getByLabel("Commands").fill("-@all +@read");
  await dialog.getByRole("button", { name: "Make" }).click();
  const password = (await page.locator(".password").textContent()).trim();
  must(password.length === 32, "a password is made");
  must((await redis("AUTH", "made", password)) === "OK", "the password is the user's");
  must((await redis("GET", "app:1")) === "one" && /NOPERM/.test(await redis("SET", "app:1", "x")), "the rights are those that were given");
  await redis("AUTH", "default", "secret");
  must(!(await page.locator(".strip").textContent()).includes(password), "the line at the foot shows the password");
  await dialog.getByRole("button", { name: "I have it" }).click();
  await page.getByRole("button", { name: "Change made" }).click();
  must((await dialog.getByLabel("Keys").inputValue()) === "~app:*" && (await dialog.getByLabel("Commands").inputValue()) === "-@all +@read", "the form shows the user's rules");
  must((await command()) === "ACL SETUSER made on", `nothing is changed that was not changed: ${await command()}`);
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("cell", { name: "made", exact: true }).waitFor();
  await shoot("users");
});
await step("terminal_has_a_connection_of_its_own", async () => {
  await redis("SELECT", 3);
  await redis("SET", "doomed:three", "x");
  await redis("SELECT", 0);
  await redis("SET", "doomed:zero", "x");
  await visit("terminal", "Commands");
  await type("SELECT 3");
  await answer().getByText("OK").waitFor();
  await page.locator(".type .prompt", { hasText: "db3" }).waitFor();
  await visit("keys", "Keys", "?pattern=doomed:*");
  await page.getByText(/^1 matching key/).waitFor();
  await page.locator(".folder", { hasText: "doomed:" }).getByRole("button", { name: /Delete/ }).click();
  await page.getByRole("dialog").getByText("database 0").waitFor();
  await page.getByRole("button", { name: "Delete 1 key", exact: true }).click();
  await toast("1 key deleted");
  must((await redis("EXISTS", "doomed:zero")) === "0", "the key of database 0 went");
  await redis("SELECT", 3);
  must((await redis("EXISTS", "doomed:three")) === "1", "the key of database 3 stays");
  await redis("SELECT", 0);
  for (const command of ["MULTI", "BLPOP nothing 0", "CLIENT REPLY OFF", "AUTH reader pw"]) {
    await visit("terminal", "Commands");
    await page.getByRole("button", { name: /New connection|Stop/ }).click();
    await type(command);
    await page.locator(".entry", { hasText: command.replace(" pw", " ***") }).last().waitFor();
    await visit("clients", "Clients");
    await page.getByText(/^\d+ clients$/).waitFor();
    await page.getByText("this page").waitFor();
    await visit("overview", "Overview");
    await page.locator(".tile", { hasText: "Role" }).getByText("primary").waitFor();
    must((await page.locator(".who").textContent()).trim() === "default", `after ${command} the user is the pages'`);
  }
  await visit("terminal", "Commands");
  await page.locator(".type .prompt", { hasText: "reader" }).waitFor();
  await page.getByRole("button", { name: /New connection|Stop/ }).click();
});
await step("text_is_edited_as_text", async () => {
  const pem = "-----BEGIN-----\nline 1\nline 2\n-----END-----\n";
  await redis("DEL", "text:hash", "text:path", "text:crlf");
  await redis("HSET", "text:hash", "pem", pem);
  await redis("SET", "text:path", "C:\\new\\table");
  await redis("SET", "text:crlf", "a\r\nb\r\n");
  await choose("text:hash");
  await page.getByRole("button", { name: "Edit pem" }).click();
  const cell = page.locator("td textarea");
  must((await cell.inputValue()) === pem, "all lines are shown");
  await cell.fill(`${pem}more`);
  await cell.press("Enter");
  await cell.waitFor({ state: "detached" });
  must((await redis("HGET", "text:hash", "pem")) === `${pem}more`, "the lines are kept");
  await page.getByLabel("Field", { exact: true }).fill("path");
  await page.getByLabel("Value", { exact: true }).fill("C:\\new\\table");
  await page.getByRole("button", { name: "Add" }).click();
  await page.getByRole("button", { name: "Edit path" }).waitFor();
  must((await redis("HGET", "text:hash", "path")) === "C:\\new\\table", "a backslash is a backslash");
  await choose("text:path");
  await page.getByLabel("Value", { exact: true }).fill("C:\\new\\tables");
  await save();
  await saved();
  must((await redis("GET", "text:path")) === "C:\\new\\tables", "in a string, too");
  await choose("text:crlf");
  await page.getByLabel("Value", { exact: true }).fill("a\nb\nc\n");
  await save();
  await saved();
  await until(async () => (await redis("GET", "text:crlf")) === "a\r\nb\r\nc\r\n", "line ends stay as they are");
});
await step("edits_do_not_overwrite_what_others_wrote", async () => {
  await redis("DEL", "race:string", "race:hash", "race:list");
  await redis("SET", "race:string", "one");
  await redis("HSET", "race:hash", "f", "one");
  await redis("RPUSH", "race:list", "a", "b", "c");
  const conflict = page.locator(".conflict");
  await choose("race:string");
  await page.getByLabel("Value", { exact: true }).fill("mine");
  await redis("SET", "race:string", "theirs");
  await save();
  await conflict.getByText(/theirs/).waitFor();
  must((await redis("GET", "race:string")) === "theirs", "nothing is overwritten");
  must((await page.getByLabel("Value", { exact: true }).inputValue()) === "mine", "what was typed stays");
  await conflict.getByRole("button", { name: "Reload" }).click();
  await until(async () => (await page.getByLabel("Value", { exact: true }).inputValue()) === "theirs", "it is loaded");
  // A click on the key that is open shows what it has now.
  await redis("SET", "race:string", "later");
  await page.locator(".leaf[aria-current=true]").click();
  await until(async () => (await page.getByLabel("Value", { exact: true }).inputValue()) === "later", "opening it again loads it");
  await choose("race:hash");
  await page.getByRole("button", { name: "Edit f" }).click();
  await redis("HSET", "race:hash", "f", "theirs");
  await page.locator("td textarea").press("Enter");
  await page.locator("td textarea").waitFor({ state: "detached" });
  must((await redis("HGET", "race:hash", "f")) === "theirs", "Enter on an unchanged cell writes nothing");
  await choose("race:list");
  await page.getByRole("button", { name: "Remove 0" }).waitFor();
  await redis("LPOP", "race:list");
  await page.getByRole("button", { name: "Remove 0" }).click();
  await conflict.getByText(/place 0 has now “b”/).waitFor();
  must((await redis("LRANGE", "race:list", 0, -1)).join() === "b,c", "no other element is removed");
  await conflict.getByRole("button", { name: "Reload" }).click();
  await page.getByText("1 to 2 of 2").waitFor();
  await page.getByRole("button", { name: "Remove 0" }).click();
  await page.getByText("1 to 1 of 1").waitFor();
  must((await redis("LRANGE", "race:list", 0, -1)).join() === "c", "the chosen one is");
});
await step("scan_goes_on_until_all_was_seen", async () => {
  await visit("keys", "Keys", "?least=15000");
  await page.getByText(/^1 matching key/).waitFor();
  await page.locator(".leaf", { hasText: "zz-large" }).waitFor();
  await visit("keys", "Keys", "?pattern=many:*");
  await page.getByText(/^6,000 matching keys/).waitFor();
  const calls = async () => Number(/cmdstat_hscan:calls=(\d+)/.exec(await redis("INFO", "commandstats"))?.[1] ?? 0);
  await choose("wide");
  await page.getByText(/\d+ fields of 100,000 shown/).waitFor();
  const before = await calls();
  await page.getByLabel("Fields that match").pressSequentially("*99999*", { delay: 20 });
  await page.getByText(/^1 field of 100,000/).waitFor();
  await page.getByRole("button", { name: "Edit field:99999" }).waitFor();
  const scans = (await calls()) - before;
  must(scans > 10 && scans < 120, `one scan is made, of ${scans} steps`);
});
await step("time_axes_are_the_range_that_was_asked_for", async () => {
  for (const [name, seconds] of [["1 h", 3600], ["1 day", 86400], ["30 days", 2592000]]) {
    await visit("overview", "Overview");
    await page.getByRole("button", { name, exact: true }).click();
    const span = async () => {
      const label = await page.getByRole("img", { name: /^Requests a second/ }).getAttribute("aria-label");
      const [from, to] = label.match(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d/g).map((text) => Date.parse(`${text.replace(" ", "T")}Z`));
      return (to - from) / 1000;
    };
    await until(async () => Math.abs((await span()) - seconds) <= 1, `the axis of ${name}`);
  }
  await visit("overview", "Overview", "?from=1000000000&to=1000000600");
  await page.getByText("Nothing was recorded in this time.").first().waitFor();
  await page.locator(".tile", { hasText: "Latency" }).getByText(/\d (µs|ms)/).first().waitFor();
});
await step("large_replies_are_cut", async () => {
  await visit("terminal", "Commands");
  await type("GET zz-large");
  await answer().getByText(/64 KiB of 19.1 MiB are shown/).waitFor();
  await answer().getByRole("button", { name: "Show all" }).waitFor();
});
await step("grave_commands_are_asked_about_and_passwords_hidden", async () => {
  await visit("terminal", "Commands");
  await type("FLUSHALL");
  await page.getByRole("dialog").getByText("It cannot be undone").waitFor();
  await page.keyboard.press("Escape");
  must(Number(await redis("DBSIZE")) > 6000, "nothing was flushed");
  await type("AUTH default secret");
  await answer().getByText("OK").waitFor();
  must(!(await page.locator(".screen").textContent()).includes("default secret"), "the screen has no password");
  must(!(await page.evaluate(() => localStorage.getItem("history"))).includes("secret"), "nor has the history");
  await page.getByRole("textbox", { name: "Command", exact: true }).fill("SET app:1 v KEEP");
  await page.locator(".completions", { hasText: "KEEPTTL" }).waitFor();
  await page.getByRole("textbox", { name: "Command", exact: true }).fill("GET race:s");
  await page.locator(".completions", { hasText: "race:string" }).waitFor();
  await page.getByRole("textbox", { name: "Command", exact: true }).fill("CONFIG SET maxmemory-p");
  await page.locator(".completions", { hasText: "maxmemory-policy" }).waitFor();
  await page.getByRole("textbox", { name: "Command", exact: true }).fill("");
});
await step("address_has_the_state_and_unsaved_text_is_asked_about", async () => {
  await redis("SET", "state:key", '{"a":[1,12345678901234567890]}');
  await visit("keys", "Keys", "?pattern=state:*&key=state:key");
  const value = page.getByLabel("Value", { exact: true });
  await page.getByLabel("Value, shown as").selectOption("json");
  must((await value.inputValue()).includes("\n    12345678901234567890"), await value.inputValue());
  await page.getByLabel("Value, shown as").selectOption("text");
  await value.fill("not saved");
  await page.getByRole("link", { name: "Clients" }).click();
  await page.getByRole("dialog", { name: "Leave without saving?" }).waitFor();
  await page.keyboard.press("Escape");
  must((await value.inputValue()) === "not saved" && page.url().includes("key=state"), "the text stays");
  await page.getByRole("link", { name: "Clients" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Leave" }).click();
  await page.getByRole("heading", { level: 1, name: "Clients" }).waitFor();
  await page.goBack();
  await page.locator(".detail h2", { hasText: "state:key" }).waitFor();
});
await step("each_type_has_its_views_and_actions", async () => {
  await redis("HSET", "kind:hash", "f", "v");
  await redis("GEOADD", "kind:geo", 13.361389, 38.115556, "Palermo");
  await redis("ZADD", "kind:zset", 1, "a", 2, "b", 3, "c");
  await redis("SET", "kind:msgpack", "\x82\xa1a\x01\xa1b\x92\xc3\xc0");
  for (const value of ["one", "two"]) await redis("XADD", "kind:stream", "*", "k", value);
  await redis("XGROUP", "CREATE", "kind:stream", "workers", 0);
  await redis("XREADGROUP", "GROUP", "workers", "joe", "COUNT", 2, "STREAMS", "kind:stream", ">");
  const dialog = page.getByRole("dialog");
  await choose("kind:hash");
  await page.getByRole("button", { name: "TTL of f" }).click();
  await dialog.getByLabel("Seconds").fill("1000");
  await dialog.getByRole("button", { name: "Set" }).click();
  await page.getByText(/^16 min/).waitFor();
  await page.getByRole("button", { name: "Edit f" }).click();
  await page.locator("td textarea").fill("w");
  await page.locator("td textarea").press("Enter");
  await until(async () => (await redis("HGET", "kind:hash", "f")) === "w", "the field is changed");
  must(Number((await redis("HTTL", "kind:hash", "FIELDS", 1, "f"))[0]) > 0, "and keeps its expiry");
  await choose("kind:geo");
  await page.getByLabel("Scores are places").check();
  await page.getByText("13.361389, 38.115556").waitFor();
  await choose("kind:zset");
  await page.getByLabel("Score from").fill("2");
  await page.getByRole("button", { name: "Search" }).click();
  await page.getByText("1 to 2 of 2").waitFor();
  await choose("kind:msgpack");
  await page.getByLabel("Value, shown as").selectOption("msgpack");
  const shown = await page.getByLabel("Value", { exact: true }).inputValue();
  must(/"a": 1,\s+"b": \[\s+true,\s+null/.test(shown), shown);
  await choose("kind:stream");
  await page.locator("summary", { hasText: "workers" }).click();
  await page.getByRole("button", { name: /^Claim/ }).first().click();
  await dialog.getByLabel("Consumer").fill("ann");
  await dialog.getByRole("button", { name: "Claim" }).click();
  await page.getByRole("cell", { name: "ann" }).first().waitFor();
  await page.getByRole("button", { name: /^Acknowledge/ }).first().click();
  await toast("Acknowledged");
  must((await redis("XPENDING", "kind:stream", "workers"))[0] === "1", "one is pending still");
  await visit("keys", "Keys", "?pattern=kind:*");
  await page.getByText(/^5 matching keys/).waitFor();
  await page.getByRole("button", { name: "Select several" }).click();
  await page.getByLabel("Select kind:geo").check();
  await page.getByLabel("Select kind:zset").check();
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export" }).click()]);
  const lines = (await readFile(await file.path(), "utf8")).trim().split("\n").map((text) => JSON.parse(text));
  must(lines.length === 2 && lines.some((one) => one.key === "kind:zset" && one.value.length === 3), JSON.stringify(lines));
  await page.getByLabel("Select kind:geo").check();
  await page.getByLabel("Select kind:zset").check();
  await page.getByRole("group", { name: "Selected keys" }).getByRole("button", { name: "Delete" }).click();
  await dialog.getByRole("button", { name: "Delete 2 keys" }).click();
  await toast("2 keys deleted");
  must((await redis("EXISTS", "kind:geo", "kind:zset", "kind:hash")) === "1", "the others stay");
});
await step("keyboard_opens_edits_and_cancels", async () => {
  await redis("HSET", "board:hash", "f", "v");
  await visit("keys", "Keys", "?pattern=board:*");
  // Until then the tree shows what matched before.
  await page.getByText(/^1 matching key/).waitFor();
  const folder = page.locator(".folder > [data-row]").first();
  await page.locator(".leaf").waitFor();
  await folder.focus();
  await page.keyboard.press("ArrowLeft");
  await page.locator(".leaf").waitFor({ state: "detached" });
  await page.keyboard.press("ArrowRight");
  await page.locator(".leaf").waitFor();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.locator(".detail h2", { hasText: "board:hash" }).waitFor();
  await page.locator(".detail:focus").waitFor();
  const edit = page.getByRole("button", { name: "Edit f" });
  await edit.focus();
  await page.keyboard.press("Enter");
  await page.locator("td textarea:focus").waitFor();
  await page.keyboard.type("x");
  await page.keyboard.press("Escape");
  await until(() => edit.evaluate((button) => button === document.activeElement), "Escape cancels, and goes back");
  must((await redis("HGET", "board:hash", "f")) === "v", "nothing was written");
  await page.getByRole("button", { name: "Rename" }).click();
  await page.getByLabel("New name").fill("board:other");
  await page.keyboard.press("Enter");
  await page.locator(".detail h2", { hasText: "board:other" }).waitFor();
});
await step("page_works_by_keyboard_alone", async () => {
  await page.goto("about:blank");
  await page.goto(site);
  await login("default", "secret");
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  // Figures are asked for when the page listens to everything.
  await page.locator(".tile", { hasText: "Keys" }).getByText(/^\d/).waitFor();
  await page.keyboard.press("Tab");
  must(await page.locator(".skip").evaluate((link) => link === document.activeElement), "the first stop skips the pages");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Keys" }).waitFor();
  must(await page.locator("main").evaluate((main) => main === document.activeElement), "the content has the focus");
});
await step("page_names_everything_for_screen_readers", async () => {
  for (const [name, title] of PAGES) {
    await visit(name, title);
    await page.waitForTimeout(150);
    const nameless = await page.evaluate(() => {
      const named = (element) =>
        element.getAttribute("aria-label") || element.labels?.length || element.textContent.trim() || element.title;
      const all = [...document.querySelectorAll("button, input, select, textarea, a, [role=img], nav, section.card:has(h2)")];
      return all.filter((element) => !named(element)).map((element) => element.outerHTML.slice(0, 100));
    });
    must(nameless.length === 0, `${name}: ${nameless.join(" | ")}`);
    must((await page.locator("h1").count()) === 1, `${name} has one heading of the first level`);
  }
});
await step("axe_finds_nothing", async () => {
  let colorScheme = "light";
  const look = async (name) => {
    await page.evaluate(axe);
    const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    const faults = found.violations.map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 120)} ${node.failureSummary}`).join(" | ")}`);
    must(faults.length === 0, `${name}, ${colorScheme}: ${faults.join("\n")}`);
  };
  for (colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const [name, title] of PAGES) {
      await visit(name, title);
      await page.waitForTimeout(400);
      await look(name);
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  colorScheme = "light";
  for (const key of ["edit:hash", "edit:stream", "text:path"]) {
    await visit("keys", "Keys", `?key=${key}`);
    await page.locator(".detail .facts, .detail h3").first().waitFor();
    await look(key);
  }
  await page.getByRole("button", { name: "New key" }).click();
  await look("a dialog");
  await page.keyboard.press("Escape");
});
await step("page_fits_a_phone", async () => {
  await page.setViewportSize({ width: 390, height: 844 });
  for (const [name, title] of PAGES) {
    await visit(name, title);
    await page.waitForTimeout(150);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    must(wide <= 0, `${name} is ${wide} pixels too wide`);
    const small = await page.evaluate(() => {
      const seen = [...document.querySelectorAll("main button, nav a, nav button, main input:not([type=checkbox]), main select, main textarea")].filter((one) => one.checkVisibility());
      const isText = (one) => /INPUT|SELECT|TEXTAREA/.test(one.tagName);
      return seen.filter((one) => one.getBoundingClientRect().height < 43.5 || (isText(one) && parseFloat(getComputedStyle(one).fontSize) < 16)).map((one) => one.outerHTML.slice(0, 80));
    });
    must(small.length === 0, `${name} is too small for a finger: ${small.slice(0, 4).join(" | ")}`);
    await page.locator('nav a[aria-current="page"]:visible, .open-more.current:visible').first().waitFor();
  }
  await visit("clients", "Clients");
  const kill = page.getByRole("button", { name: /Kill/ }).first();
  await kill.waitFor();
  const box = await kill.boundingBox();
  must(box.x >= 0 && box.x + box.width <= 390, "Kill is on the screen");
  if (shots) await shoot("phone-clients");
  await visit("overview", "Overview");
  await page.waitForTimeout(1500);
  await shoot("phone");
  await page.setViewportSize({ width: 1360, height: 900 });
});
await step("page_is_dark_where_the_system_is", async () => {
  await page.emulateMedia({ colorScheme: "dark" });
  await visit("overview", "Overview");
  await page.waitForTimeout(1500);
  const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  must(ground === "rgb(20, 23, 26)", ground);
  for (const theme of ["system", "light", "dark"]) await page.getByRole("button", { name: `Theme: ${theme}` }).click();
  await page.getByRole("button", { name: "Theme: system" }).waitFor();
  await shoot("dark");
  await page.emulateMedia({ colorScheme: "light" });
});
await step("user_with_few_rights_sees_what_he_may", async () => {
  await page.getByRole("button", { name: "Log out" }).click();
  await login("reader", "pw");
  await page.locator(".who", { hasText: "reader" }).waitFor();
  await visit("terminal", "Commands");
  await type("GET app:1");
  await answer().getByText("one").waitFor();
  await type("GET user:1:name");
  await answer().getByText(/NOPERM/).waitFor();
  await type("SET app:1 two");
  await answer().getByText(/NOPERM/).waitFor();
  await visit("keys", "Keys");
  await page.getByText(/a right ~PATTERN is missing/).waitFor();
  await page.getByText(/^6,\d\d\d keys\./).waitFor();
  await visit("users", "Users");
  await page.getByRole("alert").filter({ hasText: "+acl|log" }).waitFor();
  must((await page.getByText("Nothing was denied.").count()) === 0, "it is not known what was denied");
  must(await page.getByRole("button", { name: "New user" }).isDisabled(), "a button that would be refused is grey");
  await visit("slow", "Slow log and hot keys");
  await page.getByRole("alert").filter({ hasText: "+commandlog|get" }).waitFor();
  must((await page.getByText("The log is empty.").count()) === 0, "it is not known whether the log is empty");
  await visit("clients", "Clients");
  await page.getByRole("alert").filter({ hasText: "+client|list" }).waitFor();
  must((await page.getByText(/\d+ clients?$/).count()) === 0, "it is not known how many clients there are");
  await page.locator("nav a.grey", { hasText: "Clients" }).waitFor();
  await visit("overview", "Overview");
  await page.getByRole("alert").filter({ hasText: "+recorder|range" }).waitFor();
  must((await page.locator("canvas").count()) === 0, "there are no axes without figures");
  const denied = await redis("ACL", "LOG", 10000);
  must(denied.length < 60, `${denied.length} denials are in ACL LOG`);
  await shoot("rights");
});
await step("server_that_is_gone_is_said_to_be", async () => {
  // Through a relay, which the browser loses.
  const open = new Set();
  const relay = net.createServer((browser) => {
    const target = net.connect(Number(port), "127.0.0.1");
    for (const one of [browser, target]) {
      open.add(one);
      one.on("error", () => {}).on("close", () => (open.delete(one), browser.destroy(), target.destroy()));
    }
    browser.pipe(target).pipe(browser);
  });
  await new Promise((resolve) => relay.listen(0, "127.0.0.1", resolve));
  const place = relay.address().port;
  const made = await newContext();
  const gone = await made.newPage();
  await gone.goto(`http://127.0.0.1:${place}/#/clients`);
  await gone.getByLabel("User").fill("reader");
  await gone.getByLabel("Password").fill("pw");
  await gone.getByRole("button", { name: "Log in" }).click();
  await gone.locator(".who", { hasText: "reader" }).waitFor();
  relay.close();
  for (const one of open) one.destroy();
  await gone.getByRole("alert").filter({ hasText: /cannot be reached. All figures are of \d{4}-\d\d-\d\d/ }).waitFor();
  await gone.locator(".stale").waitFor();
  if (shots) await gone.screenshot({ path: path.join(shots, "gone.png") });
  await new Promise((resolve) => relay.listen(place, "127.0.0.1", resolve));
  await gone.locator(".stale").waitFor({ state: "detached" });
  must((await gone.locator(".who").textContent()).trim() === "reader", "it is the same user again");
  await gone.reload();
  await gone.getByRole("button", { name: "Log in" }).waitFor();
  must((await gone.getByLabel("User").inputValue()) === "reader", "a page that is loaded anew asks who it is");
  await made.close();
  relay.close();
  for (const one of open) one.destroy();
});
await step("other_sites_cannot_connect", async () => {
  const foreign = await context.newPage();
  await foreign.goto("data:text/html,<p>a page of somebody else</p>");
  const outcome = await foreign.evaluate(
    (url) =>
      new Promise((resolve) => {
        const socket = new WebSocket(url);
        socket.onopen = () => resolve("open");
        socket.onerror = () => resolve("refused");
      }),
    `ws://127.0.0.1:${port}/connect`,
  );
  must(outcome === "refused", outcome);
  const framed = await foreign.evaluate(
    (url) =>
      new Promise((resolve) => {
        const frame = document.createElement("iframe");
        frame.src = url;
        frame.onload = () => resolve(frame.contentDocument === null ? "blocked" : "shown");
        document.body.append(frame);
        setTimeout(() => resolve("blocked"), 2000);
      }),
    site,
  );
  must(framed === "blocked", framed);
  await foreign.close();
});
await step("page_loads_nothing_from_elsewhere_and_complains_of_nothing", async () => {
  // The browser's own lines about a refused login, or another site's attempts, are none of the page's.
  const own = complaints.filter((text) => !/favicon|WebSocket connection to|net::ERR/.test(text));
  must(own.length === 0, own.join("\n"));
});
other.destroy();
await browser.close();
await writeFile(out, JSON.stringify(results));
