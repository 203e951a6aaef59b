// The status page in a browser: starts README's cluster with mutual TLS, watches it train, and looks at all that the page shows.
//
//   node page.mjs BINARY CHROMIUM SCREENSHOTS
//
// It waits for what it expects and never for a time to pass; PATIENCE_MS only ends what would otherwise hang.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [binary, browserPath, shots] = process.argv.slice(2);
const PATIENCE_MS = 120_000;
const VIEWS = [
  { name: "light", viewport: { width: 1280, height: 900 }, colorScheme: "light" },
  { name: "dark", viewport: { width: 1280, height: 900 }, colorScheme: "dark" },
  { name: "phone", viewport: { width: 390, height: 844 }, colorScheme: "light", hasTouch: true },
];

const directory = mkdtempSync(join(tmpdir(), "ferroflow-page-"));
const certs = join(directory, "certs");
mkdirSync(shots, { recursive: true });

// Starts the training; returns its process and the address of its page.
async function start() {
  execFileSync(binary, ["certs", "init", certs]);
  execFileSync(binary, ["certs", "issue", certs, "--ps=2", "--workers=2"]);
  const child = spawn(binary, ["train", "--processes", "--ps=2", "--workers=2", "--http_port=0", "--hidden_units=300", "--train_steps=100000000",
    `--logdir=${join(directory, "run")}`, "--save_checkpoint_secs=1",
    `--tls_cert=${certs}/{job}-{task}.pem`, `--tls_key=${certs}/{job}-{task}.key`, `--tls_ca=${certs}/ca.pem`], { stdio: ["ignore", "pipe", "pipe"] });
  const said = [];
  const url = await new Promise((resolve, reject) => {
    for (const output of [child.stdout, child.stderr]) {
      createInterface({ input: output }).on("line", (line) => {
        said.push(line);
        const found = /are at (http:\/\/[^ ]+)/.exec(line);
        if (found) resolve(found[1]);
      });
    }
    child.on("exit", (code) => reject(new Error(`the training ended with ${code}:\n${said.join("\n")}`)));
  });
  return { child, url };
}

async function open(browser, url, view, complaints) {
  const page = await (await browser.newContext({ ...view, acceptDownloads: true })).newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on("console", (message) => { if (message.type() === "error") complaints.push(message.text()); });
  page.on("pageerror", (error) => complaints.push(error.stack));
  await page.goto(url);
  await page.waitForFunction(() => document.querySelector("#link").textContent === "live");
  return page;
}

const texts = (page, selector) => page.$$eval(selector, (found) => found.map((element) => element.textContent));
const until = (page, condition, argument) => page.waitForFunction(condition, argument, { timeout: PATIENCE_MS });

const top = (page) => page.evaluate(() => window.scrollTo({ top: 0, behavior: "instant" }));

async function checkTraining(page) {
  // All tasks answer, and the global step goes on.
  await until(page, () => document.querySelector("#totals b")?.textContent === "4 / 4");
  const step = () => Number(document.querySelectorAll("#totals b")[2].textContent.replaceAll(",", ""));
  await until(page, () => Number(document.querySelectorAll("#totals b")[2].textContent.replaceAll(",", "")) > 0);
  const before = await page.evaluate(step);
  await until(page, (before) => Number(document.querySelectorAll("#totals b")[2].textContent.replaceAll(",", "")) > before, before);
  assert.deepEqual(await texts(page, "#tasks .task b"), ["ps 0", "ps 1", "worker 0", "worker 1"]);
  for (const card of await texts(page, "#tasks .task")) assert.match(card, /incarnation [0-9a-f]{16}, pid \d+/);
  // Both workers, each with its loss, its history and its shares.
  await until(page, () => document.querySelectorAll("#workers .spark").length === 4 && document.querySelectorAll("#workers .shares").length === 2);
  const rows = await page.$$eval("#workers tr", (rows) => rows.slice(1).map((row) => [...row.cells].map((cell) => cell.textContent)));
  for (const row of rows) assert.ok(Number(row[3]) > 0, `the loss of ${row}`);
  const shares = await page.$$eval("#workers .shares", (found) => found.map((element) => element.getAttribute("aria-label")));
  for (const said of shares) {
    const percents = [...said.matchAll(/-?\d+/g)].map(Number);
    assert.ok(percents.length === 3 && percents.every((share) => share >= 0) && Math.abs(percents.reduce((a, b) => a + b) - 100) <= 2, said);
  }
  // One of two parameter servers has nearly all of the weights.
  await until(page, () => /ps \d .*holds [\d.,]+ times.* what the other parameter servers do/.test(document.querySelector("#warnings").textContent));
  const variables = await texts(page, "#variables td:first-child");
  assert.ok(variables.length >= 4 && new Set(variables).size >= 4, variables.join());
  // Checkpoints are saved each second, and say what a crash would lose.
  await until(page, () => /model\.ckpt-\d+.*worker|model\.ckpt-\d+.*ps/.test(document.querySelector("#saves").textContent) && /\d steps/.test(document.querySelector("#saves").textContent));
  await until(page, () => /http:\/\//.test(document.querySelector("#lines").textContent));
}

async function checkTimeline(page) {
  // The first tensor left before the events that the sender still has.
  const pairs = await page.evaluate(() => findTransfers([
    { task: "a", events: [["sent", 1, "b", 2000, 0, 8, 0], ["sent", 1, "b", 6000, 0, 8, 0], ["sent", 2, "b", 7000, 0, 8, 0]] },
    { task: "b", events: [["recv", 1, "a", 900, 0, 8, 0], ["recv", 1, "a", 2500, 0, 8, 0], ["recv", 1, "a", 6100, 0, 8, 0], ["recv", 1, "a", 6200, 0, 4, 0]] },
  ]).map(({ left, came }) => [left, came]));
  assert.deepEqual(pairs, [[2000, 2500], [6000, 6100]]);
  const kinds = [".step", ".part", ".sent", ".recv", ".way"];
  await until(page, (kinds) => kinds.every((kind) => document.querySelector(`#timeline ${kind}`)), kinds);
  await page.click("#hold");
  const held = await page.$("#timeline svg");
  const seen = await page.evaluate(() => document.querySelectorAll("#totals b")[2].textContent);
  await until(page, (seen) => document.querySelectorAll("#totals b")[2].textContent !== seen, seen);
  assert.ok(await held.evaluate((picture) => picture.isConnected), "a timeline that is held was drawn anew");
  await page.locator("#timeline .recv").first().hover({ force: true });
  assert.match(await page.textContent("#detail"), /(received|sent|partition|step|under way)/);
  await page.click("#hold");
  await until(page, (held) => !held.isConnected, held);
}

async function checkGraph(page) {
  await page.locator("#sessions tr", { hasText: "worker 0" }).locator("button").first().click();
  await until(page, () => document.querySelectorAll("#legend span").length >= 2);
  assert.ok((await texts(page, "#legend span")).some((device) => device.startsWith("ps 0")), "no node on ps 0");
  await page.fill("#search", "matmul");
  await until(page, () => parseInt(document.querySelector("#found").textContent, 10) >= 2);
  // What is found first is in the middle.
  const box = await page.locator("#graph").boundingBox();
  await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2 + 3);
  await until(page, () => / = MatMul → float \[.*300\], on \/job:worker/.test(document.querySelector("#node").textContent));
  const scale = () => page.evaluate(() => view.scale);
  const before = await scale();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.wheel(0, -300);
  await until(page, (before) => view.scale > before, before);
  await page.click("#time");
  await until(page, () => document.querySelectorAll("#slowest li").length >= 3);
  await page.locator("#slowest button").first().click();
  assert.match(await page.textContent("#node"), /(µs|ms) a step/);
}

async function checkRecording(page) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#record")]);
  const trace = JSON.parse(readFileSync(await download.path(), "utf8"));
  const spans = trace.traceEvents.filter((event) => event.ph === "X");
  assert.ok(new Set(spans.map((event) => event.pid)).size === 4, "spans of four tasks");
  assert.ok(spans.some((event) => event.cat === "MatMul"), "nodes are in the recording");
}

// A parameter server that stands still is named, and so is who waits for it; it is well again when it goes on.
async function checkStandstill(page) {
  const [card] = (await texts(page, "#tasks .task")).filter((card) => card.startsWith("ps 0"));
  const pid = Number(/pid (\d+)/.exec(card)[1]);
  process.kill(pid, "SIGSTOP");
  try {
    await until(page, () => /ps 0 does not answer/.test(document.querySelector("#warnings").textContent));
    await until(page, () => document.querySelector("#tasks .task.bad b")?.textContent === "ps 0");
    await until(page, () => document.querySelector("#waits .wait-line") && /ps 0/.test(document.querySelector("#waits").textContent));
    await top(page);
    await page.screenshot({ path: join(shots, "standstill.jpg"), quality: 80 });
  } finally {
    process.kill(pid, "SIGCONT");
  }
  await until(page, () => !document.querySelector("#tasks .task.bad") && !document.querySelector("#waits .wait-line"));
}

const { child, url } = await start();
const browser = await chromium.launch({ executablePath: browserPath, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
try {
  for (const view of VIEWS) {
    const complaints = [];
    const page = await open(browser, url, view, complaints);
    await checkTraining(page);
    await checkTimeline(page);
    await top(page);
    await page.screenshot({ path: join(shots, `page-${view.name}.jpg`), quality: 80 });
    await page.screenshot({ path: join(shots, `whole-${view.name}.jpg`), quality: 80, fullPage: true });
    await checkGraph(page);
    await page.locator("#graph-section").screenshot({ path: join(shots, `graph-${view.name}.jpg`), quality: 80 });
    const [wide, width] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
    assert.ok(wide <= width, `the page is ${wide} wide, and the window ${width}`);
    if (view.name === "light") {
      await checkRecording(page);
      await checkStandstill(page);
    }
    assert.deepEqual(complaints, []);
    await page.context().close();
    console.log(`   ${view.name}: ok`);
  }
} finally {
  await browser.close();
  child.removeAllListeners("exit");
  const ended = new Promise((resolve) => child.on("exit", resolve));
  child.kill("SIGINT");
  await ended;
  rmSync(directory, { recursive: true, force: true });
}
