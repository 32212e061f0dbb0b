"use strict";

// Two drawings of who waits for whom: the ops of a trace, and the tasks around one task. Every node can be reached by keyboard.

const kNodeWidth = 116;
const kNodeHeight = 48;
const kNodeGap = 14;
const kLayerGap = 38;
const kThroughWidth = 18;
const kSweeps = 6;

function svgElement(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// The edges without those that close a circle, which a report on several layers could have.
function withoutCircles(numNodes, edges) {
  const out = Array.from({length: numNodes}, () => []);
  for (const edge of edges) if (edge.from !== edge.to) out[edge.from].push(edge);
  const state = new Uint8Array(numNodes), kept = [];  // 1: on the path, 2: done
  const visit = (node) => {
    const stack = [[node, 0]];
    state[node] = 1;
    while (stack.length > 0) {
      const top = stack[stack.length - 1], edge = out[top[0]][top[1]++];
      if (!edge) {
        state[top[0]] = 2;
        stack.pop();
      } else if (state[edge.to] !== 1) {
        kept.push(edge);
        if (state[edge.to] === 0) {
          state[edge.to] = 1;
          stack.push([edge.to, 0]);
        }
      }
    }
  };
  for (let node = 0; node < numNodes; node++) if (state[node] === 0) visit(node);
  return kept;
}

// The layer of each node: one below the lowest of its producers.
function layersOf(numNodes, edges) {
  const layer = new Int32Array(numNodes);
  for (let changed = true; changed;) {
    changed = false;
    for (const {from, to} of edges) {
      if (layer[to] > layer[from]) continue;
      layer[to] = layer[from] + 1;
      changed = true;
    }
  }
  return layer;
}

// Parts of the graph that nothing connects stand below each other, each laid out by itself.
function layOutGraph(numNodes, edges) {
  const part = Int32Array.from({length: numNodes}, (_, node) => node);
  const root = (node) => {
    while (part[node] !== node) node = part[node] = part[part[node]];
    return node;
  };
  for (const {from, to} of edges) part[Math.max(root(from), root(to))] = Math.min(root(from), root(to));
  const parts = new Map();  // by their first node
  for (let node = 0; node < numNodes; node++) {
    if (!parts.has(root(node))) parts.set(root(node), {nodes: [], edges: []});
    parts.get(root(node)).nodes.push(node);
  }
  for (const edge of edges) parts.get(root(edge.from)).edges.push(edge);
  const layouts = [], places = [], routes = [];
  let width = kNodeWidth, height = 0;
  for (const {nodes, edges} of parts.values()) {
    const number = new Map(nodes.map((node, i) => [node, i]));
    const layout = layOutPart(nodes.length, edges.map((edge) => ({from: number.get(edge.from), to: number.get(edge.to), edge})));
    if (height > 0) height += kLayerGap;
    for (const place of layout.places) place.y += height;
    nodes.forEach((node, i) => { places[node] = layout.places[i]; });
    routes.push(...layout.routes);
    width = Math.max(width, layout.width);
    height += layout.height;
    layouts.push(layout);
  }
  for (const layout of layouts) for (const place of layout.places) place.x += (width - layout.width) / 2;
  return {places, routes, width, height};
}

// Places nodes in layers; an edge over several layers passes each through a place of its own, so that it avoids the nodes there.
function layOutPart(numNodes, givenEdges) {
  const edges = withoutCircles(numNodes, givenEdges);
  const layer = layersOf(numNodes, edges);
  const places = Array.from({length: numNodes}, (_, node) => ({layer: layer[node], width: kNodeWidth, up: [], down: [], x: 0, y: 0}));
  const connect = (from, to) => { from.down.push(to); to.up.push(from); };
  const routes = edges.map((edge) => {
    const route = [places[edge.from]];
    for (let i = layer[edge.from] + 1; i < layer[edge.to]; i++) {
      const place = {layer: i, width: kThroughWidth, up: [], down: [], x: 0, y: 0};
      places.push(place);
      route.push(place);
    }
    route.push(places[edge.to]);
    for (let i = 1; i < route.length; i++) connect(route[i - 1], route[i]);
    return {edge: edge.edge, route};
  });
  const layers = [];
  for (const place of places) (layers[place.layer] ??= []).push(place);
  const number = () => { for (const places of layers) places.forEach((place, i) => { place.order = i; }); };
  number();
  for (let sweep = 0; sweep < kSweeps; sweep++) {
    const down = sweep % 2 === 0;
    for (const places of down ? layers : [...layers].reverse()) {
      for (const place of places) {
        const near = down ? place.up : place.down;
        place.key = near.length === 0 ? place.order : near.reduce((sum, other) => sum + other.order, 0) / near.length;
      }
      places.sort((a, b) => a.key - b.key || a.order - b.order);
      number();
    }
  }
  const widths = layers.map((places) => places.reduce((sum, place) => sum + place.width + kNodeGap, -kNodeGap));
  const width = Math.max(...widths, kNodeWidth);
  layers.forEach((places, i) => {
    let x = (width - widths[i]) / 2;
    for (const place of places) {
      place.x = x + place.width / 2;
      place.y = i * (kNodeHeight + kLayerGap) + kNodeHeight / 2;
      x += place.width + kNodeGap;
    }
  });
  return {places, routes, width, height: Math.max(0, layers.length * (kNodeHeight + kLayerGap) - kLayerGap)};
}

function routePath(route) {
  let path = `M${route[0].x},${route[0].y + kNodeHeight / 2}`;
  let y = route[0].y + kNodeHeight / 2;
  for (let i = 1; i < route.length; i++) {
    const last = i === route.length - 1;
    const top = route[i].y - kNodeHeight / 2 - (last ? 6 : 0), middle = (y + top) / 2;
    path += ` C${route[i - 1].x},${middle} ${route[i].x},${middle} ${route[i].x},${top}`;
    if (!last) path += ` L${route[i].x},${route[i].y + kNodeHeight / 2}`;
    y = route[i].y + kNodeHeight / 2;
  }
  return path;
}

function arrowHead(id) {
  return svgElement("marker", {id, viewBox: "0 0 8 8", refX: 4, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse",
                               orient: "auto"}, svgElement("path", {d: "M0,0 L8,4 L0,8 z", class: "arrow-head"}));
}

function textureFill(app, op) {
  const {colour, texture} = app.styles.of(op, app.theme);
  return {colour, strokes: kTexturePaths[texture], isDots: texture === "dots"};
}

// The strip at a node's left edge that shows its op's colour and texture.
function swatch(app, op, x, y, height, id) {
  const {colour, strokes, isDots} = textureFill(app, op);
  const group = svgElement("g", {"aria-hidden": "true"}, svgElement("rect", {x, y, width: 10, height, fill: colour}));
  if (strokes) {
    group.append(svgElement("pattern", {id, width: 8, height: 8, patternUnits: "userSpaceOnUse"},
                            svgElement("path", {d: strokes, stroke: kTextureInk[app.theme], "stroke-width": isDots ? 2 : 1.2,
                                                "stroke-linecap": isDots ? "round" : "butt"})),
                 svgElement("rect", {x, y, width: 10, height, fill: `url(#${id})`}));
  }
  return group;
}

// Moves what a box shows until the node is in it. (scrollIntoView would move the panel around the box too.)
function scrollBoxTo(box, node) {
  const inner = node.getBoundingClientRect(), outer = box.getBoundingClientRect();
  const margin = 8;
  box.scrollLeft += Math.min(0, inner.left - margin - outer.left) + Math.max(0, inner.right + margin - outer.right);
  box.scrollTop += Math.min(0, inner.top - margin - outer.top) + Math.max(0, inner.bottom + margin - outer.bottom);
}

// A selection changes only which node is marked: what has many ops is not laid out anew.
function showOpGraph(svg, trace, pane, app) {
  const key = `${app.traces.indexOf(trace)} ${pane} ${app.theme} ${app.showCritical}`;
  if (svg.dataset.shows !== key) drawOpGraph(svg, trace, pane, app);
  svg.dataset.shows = key;
  const selected = app.selection?.pane === pane ? app.selection : null;
  const task = selected ? app.selectedTask() : -1;
  const current = selected?.kind === "op" ? selected.index : task >= 0 ? trace.op[task] : -1;
  svg.querySelectorAll(".node").forEach((node, i) => {
    node.setAttribute("aria-pressed", String(selected?.kind === "op" && i === current));
    if (node.classList.contains("current") === (i === current)) return;
    node.classList.toggle("current", i === current);
    if (i === current) scrollBoxTo(svg.parentElement, node);
  });
}

function drawOpGraph(svg, trace, pane, app) {
  const layout = layOutGraph(trace.ops.length, trace.opEdges);
  const shown = Math.max(layout.width, 360), shift = (shown - layout.width) / 2 + 4;
  svg.replaceChildren(svgElement("defs", {}, arrowHead("op-arrow")));
  svg.setAttribute("viewBox", `0 0 ${shown + 8} ${layout.height + 8}`);
  svg.setAttribute("width", shown + 8);
  svg.setAttribute("height", layout.height + 8);
  const root = svgElement("g", {transform: `translate(${shift},4)`});
  svg.append(root);
  for (const {edge, route} of layout.routes) {
    const says = `${trace.ops[edge.from].name} to ${trace.ops[edge.to].name}: ${plural(edge.events, "event")}, ` +
      `${plural(edge.pairs, "pair")} of tasks`;
    const first = route[0], second = route[1];
    const label = svgElement("text", {class: "edge-label", x: first.x + (second.x - first.x) * 0.42 + 3,
                                      y: first.y + kNodeHeight / 2 + kLayerGap * 0.42}, String(edge.events));
    root.append(svgElement("g", {class: "edge"}, svgElement("title", {}, says),
                           svgElement("path", {d: routePath(route), "marker-end": "url(#op-arrow)",
                                               "stroke-width": Math.min(2.5, 1 + Math.log2(edge.events) / 6)}), label));
  }
  trace.ops.forEach((op, i) => root.append(opNode(app, trace, pane, op, i, layout.places[i])));
}

function opNode(app, trace, pane, op, i, place) {
  const x = place.x - kNodeWidth / 2, y = place.y - kNodeHeight / 2;
  const critical = app.showCritical && op.critical > 0;
  const says = `${op.name}, ${op.kind}: ${plural(op.tasks, "task")}, busy ${formatNs(op.busy)}` +
    (critical ? `, ${formatNs(op.critical)} of the critical path` : "");
  const bar = trace.busy > 0 ? (kNodeWidth - 24) * op.busy / trace.busy : 0;
  return svgElement("g", {class: `node${critical ? " critical" : ""}`, tabindex: 0, role: "button", "aria-label": says,
                          "aria-pressed": "false", "data-select": `${pane} op ${i}`},
                    svgElement("title", {}, says),
                    svgElement("rect", {class: "box", x, y, width: kNodeWidth, height: kNodeHeight, rx: 4}),
                    swatch(app, op, x + 1, y + 1, kNodeHeight - 2, `op-texture-${i}`),
                    svgElement("text", {class: "name", x: x + 17, y: y + 15}, shorten(op.name, critical ? 12 : 14)),
                    ...(critical ? [svgElement("text", {class: "badge", x: x + kNodeWidth - 6, y: y + 15}, "◆")] : []),
                    svgElement("text", {class: "small", x: x + 17, y: y + 29}, `${formatCount(op.tasks)} · ${formatNs(op.busy)}`),
                    svgElement("rect", {class: "share-back", x: x + 17, y: y + 37, width: kNodeWidth - 24, height: 4}),
                    svgElement("rect", {class: "share", x: x + 17, y: y + 37, width: Math.max(bar, 1), height: 4}));
}

function shorten(text, most) { return text.length > most ? `${text.slice(0, most - 1)}…` : text; }

// --- the tasks around a task ---

const kAround = 6;

// Predecessors, latest first, and successors, earliest first; each task once.
function neighbours(trace, task) {
  const before = new Set(), after = new Set(), binding = new Set();
  for (const event of trace.waits.groups(task)) {
    for (const other of trace.events[event].signallers) before.add(other);
    if (trace.events[event].last >= 0) binding.add(trace.events[event].last);
  }
  for (const event of trace.signals.groups(task)) for (const other of trace.events[event].waiters) after.add(other);
  return {before: [...before].sort((a, b) => trace.done[b] - trace.done[a] || a - b),
          after: [...after].sort((a, b) => trace.ready[a] - trace.ready[b] || a - b), binding};
}

function drawTaskGraph(svg, trace, pane, task, app) {
  const {before, after, binding} = neighbours(trace, task);
  const perRow = 3, rowHeight = 62, height = 44;
  const shownBefore = before.slice(0, kAround), shownAfter = after.slice(0, kAround);
  const rows = (tasks) => Math.ceil(tasks.length / perRow);
  const width = perRow * (kNodeWidth + kNodeGap) - kNodeGap;
  const middleY = rows(shownBefore) * rowHeight + (before.length > 0 ? 34 : 0);
  const afterY = middleY + height + 34;
  const total = after.length > 0 ? afterY + rows(shownAfter) * rowHeight + 14 : middleY + height + 6;
  svg.replaceChildren(svgElement("defs", {}, arrowHead("task-arrow")));
  svg.setAttribute("viewBox", `-4 -4 ${width + 8} ${total + 8}`);
  svg.setAttribute("width", width + 8);
  svg.setAttribute("height", total + 8);
  const place = (tasks, i, top) => {
    const row = Math.floor(i / perRow), inRow = Math.min(perRow, tasks.length - row * perRow);
    const indent = (width - inRow * (kNodeWidth + kNodeGap) + kNodeGap) / 2;
    return {x: indent + (i % perRow) * (kNodeWidth + kNodeGap), y: top + row * rowHeight};
  };
  const centre = {x: width / 2 - kNodeWidth / 2, y: middleY}, half = kNodeWidth / 2;
  const edge = (path, isStrong) => svg.append(svgElement("path", {class: `task-edge${isStrong ? " strong" : ""}`,
                                                                  "marker-end": "url(#task-arrow)", d: path}));
  const curve = (x0, y0, x1, y1) => ` C${x0},${(y0 + y1) / 2} ${x1},${(y0 + y1) / 2} ${x1},${y1}`;
  // An edge of the far row goes through the gap beside it in the near one.
  const gap = (x, i) => {
    const gaps = [1, 2].map((column) => column * (kNodeWidth + kNodeGap) - kNodeGap / 2);
    return (Math.abs(gaps[0] - x) <= Math.abs(gaps[1] - x) ? gaps[0] : gaps[1]) + (i % perRow - 1) * 3;
  };
  // The latest predecessors and the earliest successors stand next to the task.
  const atBefore = shownBefore.map((_, i) => {
    const at = place(shownBefore, i, 0);
    return {x: at.x, y: (rows(shownBefore) - 1) * rowHeight - at.y};
  });
  const atAfter = shownAfter.map((_, i) => place(shownAfter, i, afterY));
  shownBefore.forEach((other, i) => {
    const x = atBefore[i].x + half, y = atBefore[i].y + height, end = centre.y - 5;
    if (i < perRow) {
      edge(`M${x},${y}${curve(x, y, centre.x + half, end)}`, binding.has(other));
    } else {
      const between = gap(x, i), low = y + rowHeight;
      edge(`M${x},${y}${curve(x, y, between, y + 10)} L${between},${low}${curve(between, low, centre.x + half, end)}`, binding.has(other));
    }
  });
  shownAfter.forEach((other, i) => {
    const x = atAfter[i].x + half, y = centre.y + height, end = atAfter[i].y - 5;
    if (i < perRow) {
      edge(`M${centre.x + half},${y}${curve(centre.x + half, y, x, end)}`, false);
    } else {
      const between = gap(x, i), top = end + 5 - rowHeight, bottom = top + height;
      edge(`M${centre.x + half},${y}${curve(centre.x + half, y, between, top)} L${between},${bottom}${curve(between, bottom, x, end)}`, false);
    }
  });
  const more = (count, y) => svg.append(svgElement("text", {class: "edge-label", x: width / 2, y, "text-anchor": "middle"}, `and ${formatCount(count)} more`));
  if (before.length > kAround) more(before.length - kAround, rows(shownBefore) * rowHeight + 8);
  if (after.length > kAround) more(after.length - kAround, afterY + rows(shownAfter) * rowHeight + 5);
  shownBefore.forEach((other, i) => svg.append(taskNode(app, trace, pane, other, atBefore[i], height, "predecessor")));
  svg.append(taskNode(app, trace, pane, task, centre, height, "selected"));
  shownAfter.forEach((other, i) => svg.append(taskNode(app, trace, pane, other, atAfter[i], height, "successor")));
}

function taskNode(app, trace, pane, task, {x, y}, height, what) {
  const time = trace.hasTimes(task) ? `${formatNs(trace.ready[task])} to ${formatNs(trace.done[task])}` : "no record";
  const says = `${what}: ${trace.title(task)}, #${task}, ${time}`;
  return svgElement("g", {class: `node${what === "selected" ? " current" : ""}`, tabindex: 0, role: "button", "aria-label": says,
                          "data-select": `${pane} task ${task}`},
                    svgElement("title", {}, says),
                    svgElement("rect", {class: "box", x, y, width: kNodeWidth, height, rx: 4}),
                    swatch(app, trace.ops[trace.op[task]], x + 1, y + 1, height - 2, `task-texture-${what}-${task}`),
                    svgElement("text", {class: "name", x: x + 16, y: y + 13}, shorten(trace.ops[trace.op[task]].name, 13)),
                    svgElement("text", {class: "small", x: x + 16, y: y + 25}, shorten(trace.tile[task], 17)),
                    svgElement("text", {class: "small", x: x + 16, y: y + 38},
                               trace.hasTimes(task) ? `done ${formatNs(trace.done[task])}` : "no record"));
}
