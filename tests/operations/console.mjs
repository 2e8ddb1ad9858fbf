// Drives the console in a real browser, once for all tests: node console.mjs PORT OUT [SHOTS]
// Writes OUT: a JSON object of the steps by their names, each "ok" or what went wrong. Steps build on those before them.
import { createRequire } from "node:module";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";

const [port, out, shots] = process.argv.slice(2);
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
const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, colorScheme: "light" });
const page = await context.newPage();
page.setDefaultTimeout(60000);
const complaints = [];
page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
page.on("pageerror", (error) => complaints.push(String(error)));

async function step(name, run) {
  try {
    await run();
    results[name] = "ok";
  } catch (error) {
    results[name] = String(error.stack ?? error).slice(0, 2000);
    if (shots) await page.screenshot({ path: path.join(shots, `failed-${name}.png`) }).catch(() => {});
  }
}
function must(is, why) {
  if (!is) throw new Error(why);
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
async function visit(name, title) {
  await page.goto(`${site}#/${name}`);
  await page.getByRole("heading", { level: 1, name: title }).waitFor();
}
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
  must((await page.locator("canvas").count()) === 6, "there are six plots");
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
  const folder = page.getByRole("treeitem", { name: /user:/ }).first();
  await folder.waitFor();
  must(/user:\s*300 ·/.test(await folder.textContent()), await folder.textContent());
  await folder.getByRole("button").first().click();
  await page.getByRole("treeitem", { name: /user:1:/ }).first().waitFor();
});
async function choose(key, shown = key, pattern = key) {
  await page.getByLabel("Pattern").fill(pattern);
  await page.getByRole("button", { name: "Scan", exact: true }).click();
  const leaf = page.locator(".leaf", { hasText: shown.split(":").pop() }).first();
  if (!(await leaf.isVisible().catch(() => false))) {
    const folder = page.locator(".folder > button:first-child").first();
    await folder.waitFor();
    await folder.click();
  }
  await leaf.click();
  await page.locator(".detail h2", { hasText: shown }).waitFor();
}
await step("string_is_edited", async () => {
  await choose("edit:string");
  await page.getByLabel("Value").fill("grün");
  await page.getByRole("button", { name: "Save" }).click();
  await toast("Saved");
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
  const input = page.locator("td input");
  await input.fill("changed");
  await input.press("Enter");
  await toast("Saved");
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
  await page.locator("td input").fill("first");
  await page.getByRole("button", { name: "Save" }).click();
  await toast("Saved");
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
  await page.locator("td input").fill("1.5");
  await page.locator("td input").press("Enter");
  await toast("Saved");
});
await step("stream_is_edited_and_shows_its_groups", async () => {
  await choose("edit:stream");
  await page.getByLabel("Field", { exact: true }).fill("k");
  await page.getByLabel("Value", { exact: true }).fill("v2");
  await page.getByRole("button", { name: "Add" }).first().click();
  await page.getByText("2 entries").waitFor();
  await page.locator("summary", { hasText: "workers" }).click();
  await page.getByRole("cell", { name: "joe" }).waitFor();
  await shoot("stream");
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
  await page.getByLabel("Value").waitFor();
  must((await page.getByLabel("Value").inputValue()) === "\\x00\\xff\\\\", await page.getByLabel("Value").inputValue());
});
await step("keys_are_deleted_by_prefix_after_they_were_counted", async () => {
  await page.getByLabel("Pattern").fill("*");
  await page.getByRole("button", { name: "Scan", exact: true }).click();
  const folder = page.locator(".folder", { hasText: "doomed:" });
  await folder.waitFor();
  await folder.hover();
  await folder.getByRole("button", { name: /Delete/ }).click();
  const confirm = page.getByRole("button", { name: "Delete 50 keys" });
  await confirm.waitFor();
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
  await page.getByLabel("Value").fill("77");
  await page.getByRole("button", { name: "Set", exact: true }).click();
  await page.locator(".differs", { hasText: "slowlog-max-len" }).getByText("77").waitFor();
  await page.getByLabel("Filter").fill("");
  await shoot("config");
});
await step("persistence_and_replication", async () => {
  await visit("replication", "Persistence and replication");
  await page.getByText("This is a primary").waitFor();
  await page.getByRole("button", { name: "Save a snapshot" }).click();
  await toast("A snapshot is being written");
  await shoot("replication");
});
await step("users_are_listed_made_and_deleted", async () => {
  await visit("users", "Users");
  await page.getByRole("button", { name: "New user" }).click();
  await page.getByLabel("Name").fill("made");
  await page.getByLabel("Rules").fill("on >pw ~app:* +@read");
  must(!(await page.locator("dialog code").textContent()).includes("pw"), "the password is shown");
  await page.getByRole("button", { name: "Set", exact: true }).click();
  await page.getByRole("cell", { name: "made", exact: true }).waitFor();
  must(!(await page.locator(".strip").textContent()).includes(">pw"), "the line at the foot shows the password");
  await shoot("users");
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
await step("page_fits_a_phone", async () => {
  await page.setViewportSize({ width: 390, height: 844 });
  for (const [name, title] of PAGES) {
    await visit(name, title);
    await page.waitForTimeout(150);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    must(wide <= 0, `${name} is ${wide} pixels too wide`);
  }
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
  await visit("clients", "Clients");
  await page.getByRole("alert").filter({ hasText: "NOPERM" }).waitFor();
  await visit("overview", "Overview");
  await page.getByRole("alert").filter({ hasText: "NOPERM" }).waitFor();
  await shoot("rights");
});
await step("other_sites_cannot_connect", async () => {
  const other = await context.newPage();
  await other.goto("data:text/html,<p>a page of somebody else</p>");
  const outcome = await other.evaluate(
    (url) =>
      new Promise((resolve) => {
        const socket = new WebSocket(url);
        socket.onopen = () => resolve("open");
        socket.onerror = () => resolve("refused");
      }),
    `ws://127.0.0.1:${port}/connect`,
  );
  must(outcome === "refused", outcome);
  const framed = await other.evaluate(
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
  await other.close();
});
await step("page_loads_nothing_from_elsewhere_and_complains_of_nothing", async () => {
  // The browser's own lines about a refused login, or another site's attempts, are none of the page's.
  const own = complaints.filter((text) => !/favicon|WebSocket connection to|net::ERR/.test(text));
  must(own.length === 0, own.join("\n"));
});
await browser.close();
await writeFile(out, JSON.stringify(results));
