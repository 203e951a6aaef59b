// Draws what /events tells. Every text goes into the page as text, never as markup: names in graphs are chosen by clients.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = ["#3b82d6", "#2f9e62", "#c77d0a", "#9a5bd1", "#cf4a6c", "#1d9aa3", "#7a8a2c", "#a5673f", "#6470c9", "#8a8f98"];
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

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2 : 0;
}

function table(id, columns, rows, none) {
  const head = make("tr", "", ...columns.map(([title, kind]) => make("th", kind, title)));
  const body = rows.map(({ cells, className }) => make("tr", className || "", ...cells.map((cell, index) => make("td", columns[index][1], cell))));
  $(id).replaceChildren(...(rows.length ? [head, ...body] : [make("tr", "", make("td", "empty", none))]));
}

// What the tasks had counted the last time, to tell how much it is each second.
const before = new Map();

function rates(task) {
  const last = before.get(task.task);
  before.set(task.task, { at: task.now_micros, cpu: task.cpu_seconds, uses: task.variable_uses });
  const elapsed = last ? (task.now_micros - last.at) / 1e6 : 0;
  if (elapsed <= 0) return last && last.rates ? last.rates : { cpu: null, uses: null };
  const told = { cpu: (task.cpu_seconds - last.cpu) / elapsed, uses: Math.max(0, task.variable_uses - last.uses) / elapsed };
  before.get(task.task).rates = told;
  return told;
}

const sessionOf = (task) => task.sessions.find((session) => session.steps > 0) || task.sessions[0];
const isWorker = (task) => jobOf(task.task) !== "ps" && task.steps.count > 0;
const isServer = (task) => jobOf(task.task) === "ps" || (task.num_variables > 0 && !isWorker(task));

// How much of a worker's steps passed before the last tensor of another task came, which is the share that it waited at most.
function waitShare(task) {
  const steps = new Map();
  for (const [kind, step, , start, took, , code] of task.events) if (kind === "part" && !code) steps.set(step, { start, took, last: 0 });
  for (const [kind, step, , start] of task.events) {
    const found = steps.get(step);
    if (found && kind === "recv" && start <= found.start + found.took) found.last = Math.max(found.last, start - found.start);
  }
  let whole = 0, waited = 0;
  for (const { took, last } of steps.values()) { whole += took; waited += last; }
  return whole ? waited / whole : null;
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

function showWorkers(up, warnings) {
  const workers = up.filter(isWorker);
  const usual = median(workers.map((task) => task.steps.per_second));
  const rows = workers.map((task) => {
    const session = sessionOf(task) || {};
    const rate = task.steps.per_second, isSlow = workers.length > 1 && usual > 0 && rate < SLOW * usual;
    if (isSlow) warnings.push([`${short(task.task)} is slow: ${number(rate, 1)} steps/s, the workers' median is ${number(usual, 1)}.`]);
    const failed = Object.values(task.errors.steps).reduce((a, b) => a + b, 0);
    const waited = waitShare(task);
    return { className: isSlow ? "slow" : "", cells: [
      short(task.task) + (isSlow ? " (slow)" : ""), number(rate, rate < 10 ? 2 : 0), duration(known(task.steps.median_micros) ? task.steps.median_micros / 1e6 : null),
      duration(known(task.steps.p99_micros) ? task.steps.p99_micros / 1e6 : null), known(waited) ? `${Math.round(100 * waited)} %` : "–",
      known(task.rates.cpu) ? `${Math.round(100 * task.rates.cpu)} %` : "–", number(session.loss, 4), number(session.global_step), number(task.steps.count), number(failed)] };
  });
  table("workers", [["worker", ""], ["steps/s", "num"], ["median", "num"], ["99 %", "num"], ["waits at most", "num"], ["CPU", "num"], ["loss", "num"], ["global step", "num"], ["steps", "num"], ["failed", "num"]], rows, "No task has run a step yet.");
}

function showServers(up, warnings) {
  const servers = up.filter(isServer);
  const traffic = (task, way) => task.peers.reduce((sum, peer) => sum + peer[way], 0);
  const loads = servers.map((task) => ({
    task, held: task.variable_bytes || 0, sent: traffic(task, "sent_bytes"), received: traffic(task, "received_bytes"), cpu: task.rates.cpu, uses: task.rates.uses,
  }));
  for (const [field, what] of [["held", "holds"], ["sent", "sends"], ["cpu", "computes"]]) {
    for (const load of loads) {
      const others = loads.filter((other) => other !== load).map((other) => other[field] || 0);
      const usual = median(others);
      const floor = field === "cpu" ? 0.1 : 1e6;
      if (others.length && load[field] > floor && load[field] >= UNEVEN * usual) {
        const times = usual > 0 ? `${number(load[field] / usual, 1)} times` : "far more than";
        warnings.push([`${short(load.task.task)} ${what} ${times} what the other parameter servers do: shard its variables, or place them in turns.`]);
      }
    }
  }
  const most = Math.max(1, ...loads.map((load) => load.held));
  const rows = loads.map((load) => {
    const bar = make("span", "bar");
    bar.style.width = `${Math.round(80 * load.held / most)}px`;
    const held = document.createDocumentFragment();
    held.append(bar, bytes(load.held));
    return { cells: [short(load.task.task), held, number(load.task.num_variables), bytes(load.sent), bytes(load.received),
      known(load.cpu) ? `${Math.round(100 * load.cpu)} %` : "–", number(load.task.partitions.per_second, 0), number(load.uses, 0)] };
  });
  table("servers", [["task", ""], ["variables' bytes", ""], ["variables", "num"], ["sent", "num"], ["received", "num"], ["CPU", "num"], ["requests/s", "num"], ["uses/s", "num"]], rows, "No task holds variables.");
  const hottest = servers.flatMap((task) => (task.variables || []).map((variable) => ({ task, ...variable })));
  hottest.sort((a, b) => b.uses - a.uses || b.bytes - a.bytes);
  table("variables", [["hottest variables", "long"], ["on", ""], ["bytes", "num"], ["uses", "num"]],
    hottest.slice(0, 12).map((variable) => ({ cells: [variable.name, short(variable.task.task), bytes(variable.bytes), number(variable.uses)] })), "No variables.");
}

const KINDS = { step: 0, part: 1, sent: 2, recv: 3 };

function showTimeline(up) {
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
  for (let tick = 0; tick <= 5; tick += 1) {
    const at = left + (tick / 5) * (width - left - 8);
    picture.append(draw("text", { class: "dimmed", x: at, y: row * up.length + 17, "text-anchor": tick === 5 ? "end" : "middle" }, `${tick === 5 ? "" : "−"}${duration((span * (1 - tick / 5)) / 1e6)}`));
  }
  $("timeline").replaceChildren(picture);
}

for (const event of ["pointerover", "click"]) {
  $("timeline").addEventListener(event, (over) => { if (over.target.dataset.detail) $("detail").textContent = over.target.dataset.detail; });
}

function showSessions(up) {
  const rows = [];
  for (const task of up) {
    for (const session of task.sessions) {
      const open = make("button", "", "graph");
      open.type = "button";
      open.addEventListener("click", () => openGraph(task.task, session.number));
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
  showWorkers(up, warnings);
  showServers(up, warnings);
  showTimeline(up);
  showSessions(up);
  showSaves(up);
  showLines(up);
  $("warnings").replaceChildren(...warnings.map(([text, kind]) => make("p", `warning ${kind || ""}`, text)));
}

// The graph: layers from inputs to outputs, on a canvas that is moved and zoomed.
const view = { nodes: [], colours: new Map(), scale: 1, x: 20, y: 20, found: new Set(), picked: -1, pointers: new Map() };
const NODE_WIDTH = 150, NODE_HEIGHT = 22, LAYER = 210, GAP = 34;

async function openGraph(task, session) {
  $("graph-section").hidden = false;
  $("graph-name").textContent = `${short(task)}, session ${session}`;
  const answer = await fetch(`graph?task=${encodeURIComponent(task)}&session=${session}`);
  if (!answer.ok) { $("node").textContent = await answer.text(); return; }
  const told = await answer.json();
  layOut(told.nodes);
  $("node").textContent = told.total > told.nodes.length ? `The first ${told.nodes.length} of ${told.total} nodes.` : `${told.total} nodes.`;
  $("legend").replaceChildren(...[...view.colours].map(([device, colour]) => {
    const dot = make("i", "");
    dot.style.background = colour;
    return make("span", "", dot, short(device) || "not placed");
  }));
  $("graph-section").scrollIntoView({ behavior: "smooth" });
  fit();
}

function layOut(nodes) {
  const depth = new Array(nodes.length).fill(-1), height = [];
  view.colours.clear();
  view.nodes = nodes.map(([name, op, device, inputs]) => ({ name, op, device, inputs }));
  // Iterative, since a chain may be thousands long; an edge back, as loops have, counts as none.
  for (let root = 0; root < nodes.length; root += 1) {
    const stack = [root];
    while (stack.length) {
      const at = stack[stack.length - 1];
      if (depth[at] >= 0) { stack.pop(); continue; }
      if (depth[at] === -1) {
        depth[at] = -2;
        for (const input of nodes[at][3]) if (depth[input] === -1) stack.push(input);
      } else {
        depth[at] = nodes[at][3].reduce((most, input) => Math.max(most, depth[input] + 1), 0);
        stack.pop();
      }
    }
  }
  view.nodes.forEach((node, index) => {
    const layer = depth[index];
    height[layer] = (height[layer] || 0) + 1;
    node.x = layer * LAYER;
    node.y = height[layer] * GAP;
    if (!view.colours.has(node.device)) view.colours.set(node.device, COLOURS[view.colours.size % COLOURS.length]);
  });
  view.found.clear();
  view.picked = -1;
}

function fit() {
  const canvas = $("graph");
  const right = Math.max(...view.nodes.map((node) => node.x), 1) + NODE_WIDTH, bottom = Math.max(...view.nodes.map((node) => node.y), 1) + GAP;
  view.scale = Math.min(1.2, Math.max(0.05, Math.min((canvas.clientWidth - 40) / right, (canvas.clientHeight - 40) / bottom)));
  view.x = 20;
  view.y = 20;
  paint();
}

function paint() {
  const canvas = $("graph"), ratio = window.devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  const style = getComputedStyle(document.documentElement), dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, ratio * view.x, ratio * view.y);
  pen.lineWidth = 1 / view.scale;
  pen.strokeStyle = dark ? "#4a5361" : "#c3c9d1";
  pen.beginPath();
  for (const node of view.nodes) {
    for (const input of node.inputs) {
      const source = view.nodes[input];
      if (!source) continue;
      pen.moveTo(source.x + NODE_WIDTH, source.y + NODE_HEIGHT / 2);
      pen.lineTo(node.x, node.y + NODE_HEIGHT / 2);
    }
  }
  pen.stroke();
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  view.nodes.forEach((node, index) => {
    const isFound = view.found.has(index), isPicked = view.picked === index;
    pen.globalAlpha = view.found.size && !isFound ? 0.25 : 1;
    pen.fillStyle = view.colours.get(node.device);
    pen.fillRect(node.x, node.y, NODE_WIDTH, NODE_HEIGHT);
    if (isFound || isPicked) {
      pen.strokeStyle = style.getPropertyValue("color") || (dark ? "#fff" : "#000");
      pen.lineWidth = 3;
      pen.strokeRect(node.x, node.y, NODE_WIDTH, NODE_HEIGHT);
    }
    if (view.scale > 0.45) {
      pen.fillStyle = "#fff";
      const label = node.name.length > 24 ? "…" + node.name.slice(-23) : node.name;
      pen.fillText(label, node.x + 5, node.y + NODE_HEIGHT / 2, NODE_WIDTH - 10);
    }
  });
  pen.globalAlpha = 1;
}

function zoom(factor, x, y) {
  const scale = Math.min(4, Math.max(0.02, view.scale * factor));
  view.x = x - ((x - view.x) * scale) / view.scale;
  view.y = y - ((y - view.y) * scale) / view.scale;
  view.scale = scale;
  paint();
}

const canvas = $("graph");
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, event.offsetX, event.offsetY);
}, { passive: false });
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  view.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY, moved: 0 });
});
canvas.addEventListener("pointermove", (event) => {
  const pointer = view.pointers.get(event.pointerId);
  if (!pointer) return;
  const others = [...view.pointers].filter(([id]) => id !== event.pointerId).map(([, other]) => other);
  if (others.length === 1) {
    const [other] = others;
    const was = Math.hypot(pointer.x - other.x, pointer.y - other.y), is = Math.hypot(event.offsetX - other.x, event.offsetY - other.y);
    if (was > 0) zoom(is / was, (event.offsetX + other.x) / 2, (event.offsetY + other.y) / 2);
  } else {
    view.x += event.offsetX - pointer.x;
    view.y += event.offsetY - pointer.y;
    paint();
  }
  pointer.moved += Math.abs(event.offsetX - pointer.x) + Math.abs(event.offsetY - pointer.y);
  Object.assign(pointer, { x: event.offsetX, y: event.offsetY });
});
for (const end of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(end, (event) => {
    const pointer = view.pointers.get(event.pointerId);
    view.pointers.delete(event.pointerId);
    if (!pointer || pointer.moved > 6 || end === "pointercancel") return;
    const x = (event.offsetX - view.x) / view.scale, y = (event.offsetY - view.y) / view.scale;
    view.picked = view.nodes.findIndex((node) => x >= node.x && x <= node.x + NODE_WIDTH && y >= node.y && y <= node.y + NODE_HEIGHT);
    const node = view.nodes[view.picked];
    if (node) $("node").textContent = `${node.name} = ${node.op}, on ${node.device || "no device yet"}, inputs: ${node.inputs.map((input) => view.nodes[input].name).join(", ") || "none"}`;
    paint();
  });
}
$("search").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  view.found.clear();
  if (wanted) view.nodes.forEach((node, index) => { if (node.name.toLowerCase().includes(wanted) || node.op.toLowerCase().includes(wanted)) view.found.add(index); });
  $("found").textContent = wanted ? `${view.found.size} found` : "";
  const [first] = view.found;
  if (first !== undefined) {
    view.scale = Math.max(view.scale, 0.6);
    view.x = canvas.clientWidth / 2 - view.nodes[first].x * view.scale;
    view.y = canvas.clientHeight / 2 - view.nodes[first].y * view.scale;
  }
  paint();
});
window.addEventListener("resize", () => { if (!$("graph-section").hidden) paint(); });

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
