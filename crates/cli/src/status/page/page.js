// Draws what /events tells. Every text goes into the page as text, never as markup: names in graphs are chosen by clients.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
// A parameter server with so many times the load of the others' median is warned of.
const UNEVEN = 3;
// A worker is marked as slow when it makes less than this share of the others' median rate.
const SLOW = 0.7;
const WAIT_SHOWN_SECS = 0.5;

const $ = (id) => document.getElementById(id);

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

function draw(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const short = (task) => String(task).replace("/replica:0", "").replace(/^\/job:/, "").replace("/task:", " ");
const jobOf = (task) => (/^\/job:([^/]+)/.exec(task) || [, "?"])[1];
const known = (value) => value !== null && value !== undefined;

function bytes(value) {
  if (!known(value)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function duration(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 1e-3) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 0.01 ? 2 : 1)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds / 3600) % 24} h`;
}

function number(value, digits = 0) {
  return known(value) && Number.isFinite(value) ? value.toLocaleString("en", { maximumFractionDigits: digits }) : "–";
}

const percent = (share) => (known(share) ? `${Math.round(100 * share)} %` : "–");

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2 : 0;
}

// Fills a table. Cells that show the same as before stay as they are, so that a button can be clicked while the page goes on.
function table(id, columns, rows, none) {
  const shown = rows.length ? rows : [{ cells: [none], className: "none" }];
  const old = [...$(id).rows].slice(1), isSame = rows.length && old.length === rows.length && old[0].cells.length === columns.length;
  if (!isSame) {
    const head = make("tr", rows.length ? "" : "none", ...columns.map(([title, kind]) => make("th", kind, title)));
    const body = shown.map(({ cells, className }) => make("tr", className || "", ...cells.map((cell, index) => make("td", rows.length ? columns[index][1] : "empty", cell))));
    return $(id).replaceChildren(head, ...body);
  }
  rows.forEach(({ cells, className }, row) => {
    old[row].className = className || "";
    cells.forEach((cell, index) => {
      const place = old[row].cells[index];
      if (cell instanceof Node) {
        if (place.firstChild !== cell) place.replaceChildren(cell);
      } else if (place.textContent !== String(cell) || place.firstElementChild) {
        place.textContent = cell;
      }
    });
  });
}

// What the tasks had counted the last time, to tell how much it is each second.
const before = new Map();

// What a task has counted, of which the page shows how much it is each second.
const COUNTED = ["cpu_seconds", "variable_uses", "sent_bytes", "received_bytes"];
const counted = (task) => ({
  cpu_seconds: task.cpu_seconds,
  variable_uses: task.variable_uses || 0,
  sent_bytes: task.peers.reduce((sum, peer) => sum + peer.sent_bytes, 0),
  received_bytes: task.peers.reduce((sum, peer) => sum + peer.received_bytes, 0),
});

function rates(task) {
  const last = before.get(task.task), now = { at: task.now_micros, pid: task.pid, counts: counted(task), rates: null };
  const elapsed = last && last.pid === task.pid ? (now.at - last.at) / 1e6 : 0;
  if (elapsed > 0) now.rates = Object.fromEntries(COUNTED.map((name) => [name, Math.max(0, now.counts[name] - last.counts[name]) / elapsed]));
  else if (last && last.pid === task.pid) now.rates = last.rates;
  before.set(task.task, now);
  return now.rates || {};
}

// What the page has seen of a worker since it was opened.
const HISTORY = 240;
const histories = new Map();

function remember(task) {
  const history = histories.get(task.task) || { rates: [], losses: [] };
  histories.set(task.task, history);
  const session = sessionOf(task);
  history.rates.push(task.steps.per_second);
  if (session && known(session.loss)) history.losses.push(session.loss);
  for (const values of [history.rates, history.losses]) if (values.length > HISTORY) values.shift();
  return history;
}

// A line of the last values, which says in words what it shows to those who can't see it.
function sparkline(values, what) {
  if (values.length < 2) return "–";
  const low = Math.min(...values), span = Math.max(...values) - low || 1;
  const points = values.map((value, index) => `${((96 * index) / (values.length - 1) + 2).toFixed(1)},${(20 - (16 * (value - low)) / span).toFixed(1)}`);
  const picture = draw("svg", { class: "spark", viewBox: "0 0 100 24", width: 100, height: 24, role: "img", "aria-label": `${what}, from ${number(values[0], 3)} to ${number(values[values.length - 1], 3)}` });
  picture.append(draw("polyline", { points: points.join(" ") }));
  return picture;
}

const sessionOf = (task) => task.sessions.find((session) => session.steps > 0) || task.sessions[0];
const isWorker = (task) => jobOf(task.task) !== "ps" && task.steps.count > 0;
const isServer = (task) => jobOf(task.task) === "ps" || (task.num_variables > 0 && !isWorker(task));

// What clocks of different tasks may differ by, where they are of one machine.
const CLOCK_MICROS = 1000;

// Tensors that the sender and the receiver both have noted: to each that came belongs the last one of the step and the size that had left
// before and is not taken. What left before the events that a task still has is never taken for one that left later.
function findTransfers(up) {
  const sent = new Map(), transfers = [];
  const key = (step, from, to, size) => `${step} ${from} ${to} ${size}`;
  for (const task of up) {
    for (const [kind, step, subject, at, , size] of task.events) {
      if (kind !== "sent") continue;
      const name = key(step, task.task, subject, size);
      if (!sent.has(name)) sent.set(name, []);
      sent.get(name).push(at);
    }
  }
  for (const task of up) {
    for (const [kind, step, subject, at, , size] of task.events) {
      if (kind !== "recv") continue;
      const times = sent.get(key(step, subject, task.task, size)) || [];
      const index = times.findLastIndex((left) => left <= at + CLOCK_MICROS);
      if (index >= 0) transfers.push({ step, from: subject, to: task.task, left: times.splice(index, 1)[0], came: at, size });
    }
  }
  return transfers;
}

// The shares of a worker's steps: until the last tensor of another task came it waited, of which the time with a tensor under way
// was the network's; what is left it computed.
function sharesOf(task, transfers) {
  const steps = new Map();
  for (const [kind, step, , start, took, , code] of task.events) if (kind === "part" && !code) steps.set(step, { start, took, last: 0, underway: [] });
  for (const [kind, step, , at] of task.events) {
    const found = steps.get(step);
    if (found && kind === "recv" && at <= found.start + found.took) found.last = Math.max(found.last, at - found.start);
  }
  for (const { step, to, left, came } of transfers) {
    const found = steps.get(step);
    if (found && to === task.task && came > left) found.underway.push([Math.max(0, left - found.start), Math.min(found.last, came - found.start)]);
  }
  let whole = 0, waited = 0, network = 0;
  for (const { took, last, underway } of steps.values()) {
    let until = 0;
    for (const [from, to] of underway.sort((a, b) => a[0] - b[0])) {
      network += Math.max(0, to - Math.max(from, until));
      until = Math.max(until, to);
    }
    whole += took;
    waited += last;
  }
  return whole ? { computes: 1 - waited / whole, waits: (waited - network) / whole, network: network / whole } : null;
}

function shareBar(shares) {
  if (!shares) return "–";
  const said = Object.entries(shares).map(([what, share]) => `${what} ${Math.round(100 * share)} %`).join(", ");
  const picture = draw("svg", { class: "shares", viewBox: "0 0 100 10", width: 100, height: 10, preserveAspectRatio: "none", role: "img", "aria-label": said });
  let from = 0;
  for (const [what, share] of Object.entries(shares)) {
    picture.append(draw("rect", { class: what, x: (100 * from).toFixed(1), width: Math.max(0, 100 * share).toFixed(1), y: 0, height: 10 }));
    from += share;
  }
  picture.append(draw("title", {}, said));
  return picture;
}

function showTotals(cluster, tasks, up) {
  const workers = up.filter(isWorker);
  const sessions = workers.map(sessionOf).filter(Boolean);
  const steps = sessions.map((session) => session.global_step).filter(known);
  const losses = sessions.map((session) => session.loss).filter(known);
  const rate = workers.reduce((sum, task) => sum + task.steps.per_second, 0);
  const totals = [
    [`${up.length} / ${cluster.num_tasks}`, "tasks answer"],
    [number(rate, rate < 10 ? 2 : 0), "steps/s in all"],
    [steps.length ? number(Math.max(...steps)) : "–", "global step"],
    [losses.length ? number(losses.reduce((a, b) => a + b, 0) / losses.length, 4) : "–", "loss"],
    [bytes(up.reduce((sum, task) => sum + (task.variable_bytes || 0), 0)), "variables"],
    [bytes(up.reduce((sum, task) => sum + task.resident_bytes, 0)), "memory of all tasks"],
  ];
  $("totals").replaceChildren(...totals.map(([value, label]) => make("div", "total", make("b", "", value), make("span", "", label))));
}

function showTasks(tasks) {
  const jobs = new Map();
  for (const task of tasks) jobs.set(jobOf(task.task), [...(jobs.get(jobOf(task.task)) || []), task]);
  $("tasks").replaceChildren(...[...jobs].map(([job, members]) => make("div", "job", make("h3", "", job), make("div", "cards", ...members.map(taskCard)))));
}

function taskCard(task) {
  const title = [make("b", "", short(task.task)), make("p", "dim", task.address || "")];
  if (task.error) return make("div", "task bad", ...title, make("p", "", task.error));
  if (task.is_foreign) return make("div", "task foreign", ...title, make("p", "", "another program's task: it tells nothing more"));
  const waits = task.waits.filter((wait) => wait.seconds > WAIT_SHOWN_SECS);
  return make("div", waits.length ? "task warn" : "task", ...title,
    make("p", "", `up ${duration(task.uptime_seconds)}, ${bytes(task.resident_bytes)}`),
    make("p", "dim", `incarnation ${task.incarnation}, pid ${task.pid}, ${task.version}`),
    ...waits.slice(0, 2).map((wait) => make("p", "", `waits for ${short(wait.task)} for ${duration(wait.seconds)}`)));
}

function showWaits(tasks) {
  const waits = [];
  for (const task of tasks) for (const wait of task.waits || []) if (wait.seconds > WAIT_SHOWN_SECS) waits.push({ from: task.task, ...wait });
  if (!waits.length) return $("waits").replaceChildren(make("p", "empty", "Nobody waits for another task."));
  waits.sort((a, b) => b.seconds - a.seconds);
  const shown = waits.slice(0, 8), height = 44 * shown.length;
  const picture = draw("svg", { viewBox: `0 0 800 ${height}`, role: "img" });
  shown.forEach((wait, index) => {
    const y = 22 + 44 * index;
    for (const [x, task] of [[0, wait.from], [620, wait.task]]) {
      picture.append(draw("rect", { class: "box", x, y: y - 15, width: 180, height: 30, rx: 6 }), draw("text", { x: x + 10, y: y + 4 }, short(task)));
    }
    picture.append(draw("path", { class: "wait-line", d: `M182 ${y} H612 m-8 -5 l8 5 l-8 5` }));
    picture.append(draw("text", { x: 195, y: y - 6 }, `${wait.who} waits for ${duration(wait.seconds)}`));
    picture.append(draw("text", { x: 195, y: y + 15, class: "dimmed" }, String(wait.why).slice(0, 68)));
  });
  $("waits").replaceChildren(picture, ...(waits.length > shown.length ? [make("p", "hint", `and ${waits.length - shown.length} more`)] : []));
}

function showWorkers(up, transfers, warnings) {
  const workers = up.filter(isWorker);
  const usual = median(workers.map((task) => task.steps.per_second));
  const rows = workers.map((task) => {
    const session = sessionOf(task) || {}, history = remember(task), shares = sharesOf(task, transfers);
    const rate = task.steps.per_second, isSlow = workers.length > 1 && usual > 0 && rate < SLOW * usual;
    if (isSlow) {
      const most = shares && Object.entries(shares).sort((a, b) => b[1] - a[1])[0];
      const why = most ? ` Of its steps it ${{ computes: "computes", waits: "waits for other tasks", network: "waits for the network" }[most[0]]} ${Math.round(100 * most[1])} %.` : "";
      warnings.push([`${short(task.task)} is slow: ${number(rate, 1)} steps/s, the workers' median is ${number(usual, 1)}.${why}`]);
    }
    const failed = Object.values(task.errors.steps).reduce((a, b) => a + b, 0);
    return { className: isSlow ? "slow" : "", cells: [
      short(task.task) + (isSlow ? " (slow)" : ""), number(rate, rate < 10 ? 2 : 0), sparkline(history.rates, "steps/s"), number(session.loss, 4), sparkline(history.losses, "loss"),
      number(session.global_step), shareBar(shares), duration(known(task.steps.median_micros) ? task.steps.median_micros / 1e6 : null),
      duration(known(task.steps.p99_micros) ? task.steps.p99_micros / 1e6 : null), percent(task.rates.cpu_seconds), number(task.steps.count), number(failed)] };
  });
  table("workers", [["worker", ""], ["steps/s", "num"], ["", ""], ["loss", "num"], ["", ""], ["global step", "num"], ["its steps", ""], ["median", "num"], ["99 %", "num"], ["CPU", "num"], ["steps", "num"], ["failed", "num"]], rows, "No task has run a step yet.");
}

function showServers(up, warnings) {
  const servers = up.filter(isServer);
  const loads = servers.map((task) => ({ task, held: task.variable_bytes || 0, sent: task.rates.sent_bytes, received: task.rates.received_bytes, cpu: task.rates.cpu_seconds, uses: task.rates.variable_uses }));
  for (const load of loads) {
    const uneven = [];
    for (const [field, what, floor] of [["held", "holds", 1e6], ["sent", "sends", 1e5], ["cpu", "computes", 0.1]]) {
      const others = loads.filter((other) => other !== load).map((other) => other[field] || 0), usual = median(others);
      if (!others.length || !(load[field] > floor) || load[field] < UNEVEN * usual) continue;
      uneven.push(`${what} ${usual > 0 ? `${number(load[field] / usual, 1)} times` : "far more than"}`);
    }
    if (uneven.length) warnings.push([`${short(load.task.task)} ${uneven.join(", ")} what the other parameter servers do: shard its variables, or place them in turns.`]);
  }
  const most = Math.max(1, ...loads.map((load) => load.held));
  const rows = loads.map((load) => {
    const bar = make("span", "bar");
    bar.style.width = `${Math.round(80 * load.held / most)}px`;
    const held = document.createDocumentFragment();
    held.append(bar, bytes(load.held));
    return { cells: [short(load.task.task), held, number(load.task.num_variables), bytes(load.sent), bytes(load.received),
      percent(load.cpu), number(load.task.partitions.per_second, 0), number(load.uses, 0)] };
  });
  table("servers", [["task", ""], ["variables' bytes", ""], ["variables", "num"], ["sent/s", "num"], ["received/s", "num"], ["CPU", "num"], ["requests/s", "num"], ["uses/s", "num"]], rows, "No task holds variables.");
  const hottest = servers.flatMap((task) => (task.variables || []).map((variable) => ({ task, ...variable })));
  hottest.sort((a, b) => b.uses - a.uses || b.bytes - a.bytes);
  table("variables", [["hottest variables", "long"], ["on", ""], ["bytes", "num"], ["uses", "num"]],
    hottest.slice(0, 12).map((variable) => ({ cells: [variable.name, short(variable.task.task), bytes(variable.bytes), number(variable.uses)] })), "No variables.");
}

const KINDS = { step: 0, part: 1, sent: 2, recv: 3 };

let isHeld = false;
$("hold").addEventListener("click", () => {
  isHeld = !isHeld;
  $("hold").textContent = isHeld ? "Go on" : "Hold";
  $("hold").setAttribute("aria-pressed", String(isHeld));
});

function showTimeline(up, transfers) {
  if (isHeld) return;
  const width = 1100, left = 110, row = 52;
  const ends = up.flatMap((task) => task.events.map((event) => event[3] + event[4]));
  if (!ends.length) return $("timeline").replaceChildren(make("p", "empty", "Nothing has run yet."));
  // About ten steps: what the slowest worker's median says.
  const steps = up.flatMap((task) => task.events.filter((event) => event[0] === "step").map((event) => event[4])).sort((a, b) => a - b);
  const span = Math.min(20e6, Math.max(2e3, 10 * (steps[steps.length >> 1] || 1e4)));
  const to = Math.max(...ends), from = to - span;
  const picture = draw("svg", { viewBox: `0 0 ${width} ${row * up.length + 24}`, role: "img" });
  const x = (micros) => left + ((micros - from) / span) * (width - left - 8);
  up.forEach((task, index) => {
    const top = row * index;
    picture.append(draw("text", { x: 8, y: top + 28 }, short(task.task)));
    picture.append(draw("line", { class: "row-line", x1: 0, x2: width, y1: top + row, y2: top + row }));
    for (const [kind, step, subject, start, took, size, code] of task.events) {
      if (start + took < from || !(kind in KINDS)) continue;
      const begin = Math.max(left, x(start)), wide = took ? Math.max(1.5, x(start + took) - begin) : 2.5;
      const mark = draw("rect", { class: code ? "failed" : kind, x: begin.toFixed(1), y: top + 5 + 11 * KINDS[kind], width: wide.toFixed(1), height: 9 });
      const what = { step: "step of session " + subject, part: "partition", sent: `sent ${bytes(size)} to ${short(subject || "")}`, recv: `received ${bytes(size)} from ${short(subject || "")}` }[kind];
      mark.dataset.detail = `${short(task.task)}: ${what}${took ? ", " + duration(took / 1e6) : ""}${code ? ", failed with code " + code : ""} (step ${Number(step).toString(16)})`;
      picture.append(mark);
    }
  });
  // Between the mark of a tensor that left and the one of its arrival, beneath both.
  const rows = new Map(up.map((task, index) => [task.task, index]));
  for (const { from: sender, to: receiver, left: departed, came, size } of transfers) {
    if (departed < from || came < from || !rows.has(sender)) continue;
    const way = draw("line", { class: "way", x1: x(departed).toFixed(1), y1: row * rows.get(sender) + 36, x2: x(came).toFixed(1), y2: row * rows.get(receiver) + 42 });
    way.dataset.detail = `${bytes(size)} from ${short(sender)} to ${short(receiver)}, ${duration((came - departed) / 1e6)} under way by the clocks of both`;
    picture.append(way);
  }
  for (let tick = 0; tick <= 5; tick += 1) {
    const at = left + (tick / 5) * (width - left - 8);
    picture.append(draw("text", { class: "dimmed", x: at, y: row * up.length + 17, "text-anchor": tick === 5 ? "end" : "middle" }, `${tick === 5 ? "" : "−"}${duration((span * (1 - tick / 5)) / 1e6)}`));
  }
  $("timeline").replaceChildren(picture);
}

for (const event of ["pointerover", "click"]) {
  $("timeline").addEventListener(event, (over) => { if (over.target.dataset.detail) $("detail").textContent = over.target.dataset.detail; });
}

// The buttons that open graphs, which stay the same ones.
const openers = new Map();

function opener(task, session) {
  const name = `${task} ${session}`;
  if (!openers.has(name)) {
    const open = make("button", "", "graph");
    open.type = "button";
    open.addEventListener("click", () => openGraph(task, session));
    openers.set(name, open);
  }
  return openers.get(name);
}

function showSessions(up) {
  const rows = [], known = new Set(up.flatMap((task) => task.sessions.map((session) => `${task.task} ${session.number}`)));
  for (const name of openers.keys()) if (!known.has(name)) openers.delete(name);
  for (const task of up) {
    for (const session of task.sessions) {
      const open = opener(task.task, session.number);
      rows.push({ cells: [`${short(task.task)}, session ${session.number}`, session.client, duration(session.age_seconds), duration(session.idle_seconds), number(session.steps), number(session.nodes), bytes(session.memory_bytes), open] });
    }
  }
  table("sessions", [["session", ""], ["client", ""], ["open for", "num"], ["idle for", "num"], ["steps", "num"], ["nodes", "num"], ["memory", "num"], ["", ""]], rows.slice(0, 60), "No session is open.");
}

function showSaves(up) {
  const rows = [];
  const steps = up.flatMap((task) => task.sessions.map((session) => session.global_step)).filter(known);
  const now = steps.length ? Math.max(...steps) : null;
  for (const task of up) {
    for (const save of [...task.saves.last].reverse().slice(0, 4)) {
      const saved = /-(\d+)(?:_temp_.*)?$/.exec(save.prefix);
      const lost = saved && known(now) && now >= Number(saved[1]) ? `${number(now - Number(saved[1]))} steps` : "–";
      rows.push({ age: save.age_seconds, cells: [save.prefix, short(task.task), duration(save.age_seconds), save.bytes ? bytes(save.bytes) : "–", duration(save.took_seconds), lost] });
    }
  }
  rows.sort((a, b) => a.age - b.age);
  table("saves", [["checkpoint", "long"], ["written by", ""], ["age", "num"], ["size", "num"], ["took", "num"], ["lost if all crashed now", "num"]], rows.slice(0, 10), "Nothing was saved since the tasks began.");
}

function showLines(up) {
  const lines = up.flatMap((task) => task.lines.map(([at, level, text]) => ({ at, level, text, task: task.task })));
  lines.sort((a, b) => a.at - b.at);
  const box = $("lines"), isAtEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 20;
  box.replaceChildren(...lines.slice(-120).map((line) => {
    const level = ["WARN", "ERROR"].includes(line.level) ? line.level : "";
    return make("div", level, `${new Date(line.at / 1e3).toLocaleTimeString("en-GB")} ${short(line.task)}: ${line.text}`);
  }));
  if (!lines.length) box.replaceChildren(make("div", "empty", "No lines."));
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

function show(cluster) {
  const tasks = cluster.tasks, up = tasks.filter((task) => task.events), warnings = [];
  for (const task of up) task.rates = rates(task);
  $("seen").textContent = `as ${short(cluster.seen_by)} sees it`;
  for (const task of tasks) if (task.error) warnings.push([`${short(task.task)} does not answer: ${task.error}`, "bad"]);
  if (cluster.num_tasks > tasks.length) warnings.push([`Only ${tasks.length} of ${cluster.num_tasks} tasks are shown.`]);
  showTotals(cluster, tasks, up);
  showTasks(tasks);
  showWaits(up);
  const transfers = findTransfers(up);
  showWorkers(up, transfers, warnings);
  showServers(up, warnings);
  showTimeline(up, transfers);
  showSessions(up);
  showSaves(up);
  showLines(up);
  $("warnings").replaceChildren(...warnings.map(([text, kind]) => make("p", `warning ${kind || ""}`, text)));
}

$("record").addEventListener("click", () => {
  $("detail").textContent = "Recording the next 10 steps of all tasks. The file that is saved then opens in ui.perfetto.dev or chrome://tracing.";
});

function link(text, className) {
  $("link").textContent = text;
  $("link").className = `pill ${className}`;
}

const source = new EventSource("events");
source.addEventListener("message", (event) => {
  link("live", "good");
  show(JSON.parse(event.data));
});
source.addEventListener("error", () => link("no answer; trying again", "bad"));
