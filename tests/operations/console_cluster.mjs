// Drives the console's page of a cluster in a real browser: node console_cluster.mjs PORT OUT [SHOTS]
// Writes OUT as console.mjs does. The test that runs it changes the cluster between the steps, by files of these names beside OUT.
import { createRequire } from "node:module";
import { access, mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";

const [port, out, shots] = process.argv.slice(2);
const require = createRequire(new URL("../../console/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const results = {};
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, colorScheme: "light" });
for (const name of process.env.CONSOLE_FILES ? ["app.js", "style.css"] : []) {
  await context.route(`**/${name}`, async (route) => route.fulfill({ response: await route.fetch(), body: await readFile(path.join(process.env.CONSOLE_FILES, name)) }));
}
const page = await context.newPage();
page.setDefaultTimeout(Number(process.env.CONSOLE_PATIENCE_MS ?? 60000));
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
/** Waits until something is so. */
async function until(is, why) {
  for (let n = 0; n < 600 && !(await is()); n++) await page.waitForTimeout(100);
  must(await is(), why);
}
/** Has the test do something, and waits until it has. */
async function have(name) {
  await writeFile(path.join(path.dirname(out), `${name}.wanted`), "");
  for (let n = 0; n < 600; n++) {
    try {
      await access(path.join(path.dirname(out), `${name}.done`));
      return;
    } catch {
      await page.waitForTimeout(100);
    }
  }
  throw new Error(`the test has not done '${name}'`);
}
async function shoot(name) {
  if (!shots) return;
  await mkdir(shots, { recursive: true });
  await page.waitForTimeout(500);
  await page.screenshot({ path: path.join(shots, `${name}.png`), fullPage: true });
}
/** Runs a command in the terminal; the text of its entry. */
async function type(command) {
  const input = page.getByRole("textbox", { name: "Command", exact: true });
  await input.fill(command);
  await input.press("Enter");
  const entry = page.locator(".entry", { hasText: command }).last();
  await entry.locator(".value").waitFor();
  return entry.textContent();
}
const card = (title) => page.getByRole("region", { name: title, exact: true });

await step("cluster_map_shows_shards_nodes_and_zones", async () => {
  await page.goto(`http://127.0.0.1:${port}/#/cluster`);
  await page.getByRole("heading", { level: 1, name: "Cluster" }).waitFor();
  await page.locator(".tile", { hasText: "Shards" }).getByText("all slots have one").waitFor();
  const band = page.getByRole("img", { name: /16,384 slots: shard 1 has 8,192 slots, shard 2 has 8,192 slots/ });
  await band.waitFor();
  must((await band.locator("rect.tone-a").count()) >= 1 && (await band.locator("rect.tone-b").count()) >= 1, "the band has two colours");
  const zones = page.locator("table.zones");
  for (const zone of ["east", "west"]) await zones.getByRole("columnheader", { name: zone }).waitFor();
  await until(async () => (await zones.locator(".node.primary").count()) === 2, "two primaries");
  await until(async () => (await zones.locator(".node.replica").count()) === 2, "two replicas");
  await until(async () => (await zones.locator(".node", { hasText: "this node" }).count()) === 1, "the node that was asked");
  await page.locator("td[data-name=Data]", { hasText: "in sync" }).first().waitFor();
  await page.locator("td[data-name=Behind]", { hasText: /\d B/ }).first().waitFor();
  await shoot("cluster");
});
await step("keys_of_all_nodes_are_scanned_edited_and_deleted", async () => {
  await page.goto(`http://127.0.0.1:${port}/#/keys?pattern=many:*`);
  await page.getByText(/^400 matching keys.* on 2 nodes/).waitFor();
  // Some of these are here, and some on another node.
  for (const key of ["many:1", "many:2", "many:3", "many:4"]) {
    await page.goto(`http://127.0.0.1:${port}/#/keys?pattern=${key}&key=${key}`);
    const value = page.getByLabel("Value", { exact: true });
    await value.waitFor();
    await value.fill(`edited ${key}`);
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByRole("button", { name: "Save", exact: true, disabled: true }).waitFor();
  }
  await page.goto(`http://127.0.0.1:${port}/#/keys?pattern=doomed:*`);
  await page.getByText(/^100 matching keys/).waitFor();
  await page.locator(".folder", { hasText: "doomed:" }).getByRole("button", { name: /Delete/ }).click();
  await page.getByRole("button", { name: "Delete 100 keys" }).click();
  await page.locator(".toast", { hasText: "100 keys deleted" }).waitFor();
  await shoot("cluster-keys");
});
await step("terminal_follows_to_other_nodes", async () => {
  await page.goto(`http://127.0.0.1:${port}/#/terminal`);
  for (const key of ["many:1", "many:2", "many:3", "many:4"]) {
    const text = await type(`GET ${key}`);
    must(text.includes(`edited ${key}`), text);
  }
  must((await page.locator(".entry", { hasText: "→ MOVED" }).count()) > 0, "a redirection is shown");
  await page.goto(`http://127.0.0.1:${port}/#/cluster`);
});
await step("cluster_map_shows_moves_under_way", async () => {
  await have("move");
  const moves = page.locator(".moves li").first();
  await moves.getByText("100 slots, snapshotting, 5 MiB sent, 1 MiB behind").waitFor();
  await until(async () => (await moves.getByRole("progressbar").getAttribute("value")) === "420", "the bar shows how far it is");
  await until(async () => (await page.locator(".band rect.moving").count()) >= 1, "moving slots are hatched");
  await shoot("cluster-moving");
  await have("end");
  await page.locator(".tile", { hasText: "Moves" }).getByText("nothing moves").waitFor();
});
await step("cluster_map_shows_nodes_that_are_gone", async () => {
  await have("kill");
  await page.locator(".node.gone", { hasText: "gone" }).waitFor();
  await page.locator(".tile.bad", { hasText: "Nodes" }).getByText("1 gone").waitFor();
});
await step("cluster_map_is_readable_in_the_dark", async () => {
  await page.getByRole("button", { name: "Theme: system" }).click();
  await page.getByRole("button", { name: "Theme: light" }).click();
  await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
  // Contrast of texts that stand on grounds of their own.
  const ratios = await page.evaluate(() => {
    const channel = (value) => ((value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const light = (color) => {
      const [r, g, b] = color.match(/[\d.]+/g).map(Number);
      return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    };
    return [...document.querySelectorAll(".node span, .node small")].map((text) => {
      const [one, other] = [light(getComputedStyle(text).color), light(getComputedStyle(text.closest(".node")).backgroundColor)];
      return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    });
  });
  must(ratios.length >= 8 && ratios.every((ratio) => ratio >= 4.5), `contrasts ${ratios.map((ratio) => ratio.toFixed(1))}`);
  await shoot("cluster-dark");
});
await step("axe_finds_nothing", async () => {
  await page.evaluate(await readFile(require.resolve("axe-core/axe.min.js"), "utf8"));
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  must(found.violations.length === 0, found.violations.map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 150)} ${one.nodes[0].failureSummary}`).join("\n"));
});
await step("cluster_map_fits_a_telephone", async () => {
  await page.setViewportSize({ width: 390, height: 844 });
  await page.waitForTimeout(300);
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  must(width <= 390, `the page is ${width} wide`);
  await shoot("cluster-narrow");
});
await step("browser_complains_of_nothing", async () => {
  must(complaints.length === 0, complaints.join("\n"));
});
await browser.close();
await writeFile(out, JSON.stringify(results));
