// The graph of a session: layers from inputs to outputs, on a canvas that is moved and zoomed.
"use strict";

const COLOURS = ["#3b82d6", "#2f9e62", "#c77d0a", "#9a5bd1", "#cf4a6c", "#1d9aa3", "#7a8a2c", "#a5673f", "#6470c9", "#8a8f98"];
const view = { session: "", nodes: [], colours: new Map(), scale: 1, x: 20, y: 20, found: new Set(), picked: -1, pointers: new Map() };
const NODE_WIDTH = 150, NODE_HEIGHT = 22, LAYER = 210, GAP = 34;

async function openGraph(task, session) {
  $("graph-section").hidden = false;
  $("graph-name").textContent = `${short(task)}, session ${session}`;
  $("slowest").replaceChildren();
  const wanted = (view.session = `${task} ${session}`);
  const answer = await fetch(`graph?task=${encodeURIComponent(task)}&session=${session}`);
  const told = answer.ok ? await answer.json() : { error: await answer.text() };
  // Another one may have been opened meanwhile.
  if (view.session !== wanted) return;
  if (told.error) { $("node").textContent = told.error; return; }
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
  const depth = new Array(nodes.length).fill(-1);
  view.colours.clear();
  view.nodes = nodes.map(([name, op, device, inputs, shapes]) => ({ name, op, device, inputs, shapes, micros: null }));
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
  const layers = [];
  view.nodes.forEach((node, index) => {
    (layers[depth[index]] ||= []).push(node);
    if (!view.colours.has(node.device)) view.colours.set(node.device, COLOURS[view.colours.size % COLOURS.length]);
  });
  // Beside what they read, so that few lines cross.
  const height = (node) => {
    const read = node.inputs.map((input) => view.nodes[input]).filter((input) => known(input.y));
    return read.length ? read.reduce((sum, input) => sum + input.y, 0) / read.length : 0;
  };
  layers.forEach((members, layer) => {
    const placed = members.map((node) => [height(node), node]).sort((a, b) => a[0] - b[0]);
    placed.forEach(([, node], place) => Object.assign(node, { x: layer * LAYER, y: (place + 1) * GAP }));
  });
  view.found.clear();
  view.picked = -1;
}

function fit() {
  const canvas = $("graph");
  const right = Math.max(...view.nodes.map((node) => node.x), 1) + NODE_WIDTH, bottom = Math.max(...view.nodes.map((node) => node.y), 1) + GAP;
  view.scale = Math.min(1.2, Math.max(0.02, Math.min((canvas.clientWidth - 40) / right, (canvas.clientHeight - 40) / bottom)));
  view.x = 20;
  view.y = Math.max(20, (canvas.clientHeight - bottom * view.scale) / 2);
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
    pen.globalAlpha = view.found.size && !isFound && !isPicked ? 0.25 : 1;
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

function describe() {
  const node = view.nodes[view.picked];
  if (!node) return;
  const inputs = node.inputs.map((input) => view.nodes[input].name).join(", ") || "none";
  const time = known(node.micros) ? `, ${duration(node.micros / 1e6)} a step` : "";
  const shapes = node.shapes && node.shapes.length ? ` → ${node.shapes.join(", ")}` : "";
  $("node").textContent = `${node.name} = ${node.op}${shapes}, on ${node.device || "no device yet"}${time}, inputs: ${inputs}`;
}

// Records steps, and tells how long each node took in them.
async function timeNodes() {
  const wanted = view.session;
  $("time").disabled = true;
  $("slowest").replaceChildren(make("p", "hint", "Recording the next 10 steps…"));
  try {
    const answer = await fetch("trace?steps=10");
    const told = await answer.json();
    if (view.session === wanted) showTimes(told.traceEvents);
  } catch (error) {
    $("slowest").replaceChildren(make("p", "hint", `Nothing was recorded: ${error.message}`));
  } finally {
    $("time").disabled = false;
  }
}

function showTimes(events) {
  const sums = new Map(), steps = new Map();
  for (const event of events) {
    if (!event.args || !event.args.op) continue;
    sums.set(event.name, (sums.get(event.name) || 0) + event.dur);
    if (!steps.has(event.name)) steps.set(event.name, new Set());
    steps.get(event.name).add(event.args.step);
  }
  for (const node of view.nodes) node.micros = sums.has(node.name) ? sums.get(node.name) / steps.get(node.name).size : null;
  const timed = view.nodes.filter((node) => known(node.micros)).sort((a, b) => b.micros - a.micros).slice(0, 8);
  const rows = timed.map((node) => {
    const show = make("button", "", node.name);
    show.type = "button";
    show.addEventListener("click", () => { view.picked = view.nodes.indexOf(node); centre(node); describe(); paint(); });
    return make("li", "", show, ` ${node.op}, ${duration(node.micros / 1e6)} a step`);
  });
  $("slowest").replaceChildren(rows.length ? make("ol", "", ...rows) : make("p", "hint", "None of these nodes ran within a few seconds."));
  describe();
}

function centre(node) {
  view.scale = Math.max(view.scale, 0.6);
  view.x = canvas.clientWidth / 2 - (node.x + NODE_WIDTH / 2) * view.scale;
  view.y = canvas.clientHeight / 2 - node.y * view.scale;
}

const canvas = $("graph");
$("time").addEventListener("click", timeNodes);
for (const [id, factor] of [["closer", 1.4], ["farther", 1 / 1.4]]) {
  $(id).addEventListener("click", () => zoom(factor, canvas.clientWidth / 2, canvas.clientHeight / 2));
}
$("whole").addEventListener("click", fit);
canvas.addEventListener("keydown", (event) => {
  const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }, move = moves[event.key];
  if (move) { view.x += move[0]; view.y += move[1]; paint(); }
  else if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.4 : 1 / 1.4, canvas.clientWidth / 2, canvas.clientHeight / 2);
  else return;
  event.preventDefault();
});
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
    describe();
    paint();
  });
}
$("search").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  view.found.clear();
  if (wanted) view.nodes.forEach((node, index) => { if (node.name.toLowerCase().includes(wanted) || node.op.toLowerCase().includes(wanted)) view.found.add(index); });
  $("found").textContent = wanted ? `${view.found.size} found` : "";
  const [first] = view.found;
  if (first !== undefined) centre(view.nodes[first]);
  paint();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (!$("graph-section").hidden) paint(); });
window.addEventListener("resize", () => { if (!$("graph-section").hidden) paint(); });

