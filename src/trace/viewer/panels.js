"use strict";

// What is written beside the timelines: facts of a trace, details of the selection, tables. All text goes in as text nodes.

function html(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function selectButton(pane, kind, index, text) {
  return html("button", {type: "button", class: "jump", "data-select": `${pane} ${kind} ${index}`}, text);
}

function facts(rows) {
  return html("dl", {}, ...rows.filter((row) => row).flatMap(([name, ...value]) => [html("dt", {}, name), html("dd", {}, ...value)]));
}

// --- above a timeline ---

function traceFacts(trace) {
  const shapes = trace.shapes.map(([name, value]) => `${name} = ${value}`).join(", ");
  const parts = [trace.backend !== trace.name ? trace.backend : "", trace.machine, trace.graph, shapes,
                 `${plural(trace.numTasks, "task")} on ${plural(trace.laneNames.length, "lane")}`,
                 `clock ${trace.clock.domain}, ${formatNs(trace.clock.resolutionNs)} steps`];
  const text = parts.filter((part) => part).join(" · ");
  const line = html("p", {class: "facts"}, html("strong", {}, `${trace.name} `), html("b", {}, formatNs(trace.spanNs)),
                    html("span", {title: text}, text));
  if (trace.lost > 0) line.append(html("em", {class: "warning", role: "note"}, `⚠ ${plural(trace.lost, "record")} lost`));
  return line;
}

// Parts of all lane time: work, then the reasons of idleness; what they leave is said too.
function laneTime(trace) {
  const whole = trace.laneNames.length * trace.spanNs;
  const parts = [{reason: "working", ns: trace.working}, ...trace.idle];
  const rest = whole - parts.reduce((sum, part) => sum + part.ns, 0);
  if (rest > 0.001 * whole) parts.push({reason: trace.idle.length > 0 ? "not explained" : "idle", ns: rest});
  return {whole, parts};
}

function idleBar(trace, app) {
  const {whole, parts} = laneTime(trace);
  const total = Math.max(whole, parts.reduce((sum, part) => sum + part.ns, 0));
  const bar = html("div", {class: "idle-bar", role: "img", "aria-label":
    `Lane time: ${parts.map((part) => `${part.reason} ${formatShare(part.ns, whole)}`).join(", ")}`});
  parts.forEach((part, i) => {
    if (part.ns <= 0) return;
    const segment = html("span", {title: `${part.reason}: ${formatNs(part.ns)}, ${formatShare(part.ns, whole)} of all lane time`},
                         // Of a few letters nobody makes a reason; the title and the table have it.
                         part.ns / total < 0.08 ? null : html("b", {}, `${part.reason} ${formatShare(part.ns, whole)}`));
    segment.style.flex = `${part.ns / total} 1 0`;
    segment.style.background = partBackground(i, app.theme);
    bar.append(segment);
  });
  return bar;
}

function partBackground(i, theme) {
  if (i === 0) return kOpColours[theme][0];
  return swatchBackground(kOpColours[theme][[9, 1, 4, 3, 7, 8, 6][(i - 1) % 7]], kTextures[1 + (i - 1) % (kTextures.length - 1)], theme);
}

// --- the details of what is selected ---

function details(app) {
  const {selection} = app;
  if (!selection) {
    return [html("p", {class: "hint"}, "Nothing is selected. Click a task, an event or a link of the critical path, or press ? for the keys.")];
  }
  const trace = app.traceOf(selection.pane);
  const shown = {task: taskDetails, event: eventDetails, link: linkDetails, op: opDetails}[selection.kind];
  return shown(trace, selection.pane, selection.index);
}

function taskDetails(trace, pane, task) {
  const op = trace.ops[trace.op[task]];
  const links = trace.critical.filter((link) => link.task === task);
  const events = (groups, verb) => {
    const list = [...groups];
    const buttons = list.slice(0, 8).map((index) => html("li", {}, selectButton(pane, "event", index, trace.events[index].name),
      trace.events[index].last < 0 ? " no record" : ` reached ${formatNs(trace.events[index].reached)}`));
    if (list.length > 8) buttons.push(html("li", {}, `and ${formatCount(list.length - 8)} more`));
    return list.length > 0 ? [verb, html("ul", {}, ...buttons)] : [verb, "no event"];
  };
  const heading = html("h3", {}, `${trace.title(task)} `, html("small", {}, `#${task} ${op.kind}`));
  if (!trace.hasTimes(task)) {
    return [heading, html("p", {class: "warning"}, "The record of this task was lost."),
            facts([events(trace.waits.groups(task), "waits for"), events(trace.signals.groups(task), "signals")])];
  }
  return [heading, facts([
    ["lane", trace.laneNames[trace.lane[task]]],
    ["visible", formatNs(trace.visible[task])],
    ["ready", formatNs(trace.ready[task]), html("i", {}, ` waited ${formatNs(trace.ready[task] - trace.visible[task])}`)],
    ["done", formatNs(trace.done[task]), html("i", {}, ` worked ${formatNs(trace.done[task] - trace.ready[task])}`)],
    ["slack", trace.slack === null || trace.slack[task] < 0 ? "unknown" : formatNs(trace.slack[task])],
    links.length > 0 ? ["critical", `yes: ${[...new Set(links.map((link) => link.kind))].join(", ")}`] :
      trace.critical.length > 0 ? ["critical", "no"] : null,
    events(trace.waits.groups(task), "waits for"),
    events(trace.signals.groups(task), "signals"),
  ])];
}

function eventDetails(trace, pane, index) {
  const event = trace.events[index];
  const tasks = (list) => {
    const sorted = [...list].sort((a, b) => trace.done[b] - trace.done[a]);
    const items = sorted.slice(0, 10).map((task) => html("li", {}, selectButton(pane, "task", task, trace.title(task)),
      trace.hasTimes(task) ? ` ${formatNs(trace.ready[task])} to ${formatNs(trace.done[task])}` : " no record"));
    if (sorted.length > 10) items.push(html("li", {}, `and ${formatCount(sorted.length - 10)} more`));
    return html("ul", {}, ...items);
  };
  const first = event.signallers.reduce((least, task) => (trace.hasTimes(task) ? Math.min(least, trace.done[task]) : least), Infinity);
  return [html("h3", {}, `Event ${event.name}`), facts([
    ["reached", event.last < 0 ? "unknown: no signaller has a record" : formatNs(event.reached)],
    event.last < 0 ? null : ["last signal", selectButton(pane, "task", event.last, trace.title(event.last))],
    event.last < 0 ? null : ["first signal", formatNs(first), html("i", {}, ` ${formatNs(event.reached - first)} earlier`)],
    [plural(event.signallers.length, "signaller"), tasks(event.signallers)],
    [plural(event.waiters.length, "waiter"), tasks(event.waiters)],
  ])];
}

function linkDetails(trace, pane, index) {
  const link = trace.critical[index], style = linkStyle(link.kind);
  return [html("h3", {}, `Link ${index + 1} of ${formatCount(trace.critical.length)} `, html("small", {}, "critical path")), facts([
    ["kind", `${style.letter}: ${link.kind}, ${style.says}`],
    ["task", selectButton(pane, "task", link.task, trace.title(link.task)), ` #${link.task}`],
    ["begin", formatNs(link.begin)],
    ["end", formatNs(link.end), html("i", {}, ` took ${formatNs(link.end - link.begin)}`)],
    ["share", formatShare(link.end - link.begin, trace.spanNs), " of the run"],
    link.event >= 0 ? ["event", selectButton(pane, "event", link.event, trace.events[link.event].name)] : null,
  ])];
}

function opDetails(trace, pane, index) {
  const op = trace.ops[index];
  const around = (edges, end) => edges.length === 0 ? ["none"] :
    edges.map((edge) => selectButton(pane, "op", edge[end], trace.ops[edge[end]].name));
  return [html("h3", {}, `Op ${op.name} `, html("small", {}, op.kind)), facts([
    ["tasks", formatCount(op.tasks)],
    ["busy", formatNs(op.busy), html("i", {}, ` ${formatShare(op.busy, trace.busy)} of all work`)],
    ["waiting", formatNs(op.wait)],
    ["begin", formatNs(op.begin)],
    ["end", formatNs(op.end), html("i", {}, ` ${formatNs(op.end - op.begin)} from first to last`)],
    ["critical", `${formatNs(op.critical)}, ${formatShare(op.critical, trace.spanNs)} of the run`],
    ["after", ...around(trace.opEdges.filter((edge) => edge.to === index && edge.from !== index), "from")],
    ["before", ...around(trace.opEdges.filter((edge) => edge.from === index && edge.to !== index), "to")],
  ])];
}

// One line for the pointer, the status line and screen readers.
function summary(trace, target) {
  if (target.kind === "task") {
    const task = target.index;
    if (!trace.hasTimes(task)) return [`${trace.title(task)} #${task}`, "no record"];
    const slack = trace.slack !== null && trace.slack[task] >= 0 ? `, slack ${formatNs(trace.slack[task])}` : "";
    return [`${trace.title(task)} #${task}${target.part === "wait" ? " (waiting)" : ""}`,
            `${trace.laneNames[trace.lane[task]]}: waited ${formatNs(trace.ready[task] - trace.visible[task])}, ` +
            `worked ${formatNs(trace.done[task] - trace.ready[task])}, ` +
            `${formatNs(trace.ready[task])} to ${formatNs(trace.done[task])}${slack}`];
  }
  if (target.kind === "event") {
    const event = trace.events[target.index];
    const others = target.also > 0 ? `; ${plural(target.also, "other event")} beside it` : "";
    return [`event ${event.name}`, `${event.last < 0 ? "no record" : `reached ${formatNs(event.reached)}`}: ` +
      `${plural(event.signallers.length, "signaller")}, ${plural(event.waiters.length, "waiter")}${others}`];
  }
  if (target.kind === "link") {
    const link = trace.critical[target.index], style = linkStyle(link.kind);
    return [`${style.letter}: ${link.kind} ${formatNs(link.end - link.begin)}`,
            `${trace.title(link.task)}, ${formatNs(link.begin)} to ${formatNs(link.end)}` +
            (link.event >= 0 ? `, event ${trace.events[link.event].name}` : "")];
  }
  const op = trace.ops[target.index];
  return [`op ${op.name}`, `${plural(op.tasks, "task")}, busy ${formatNs(op.busy)}`];
}

// --- tables ---

// Columns: {name, value(row), text(row), label?}; the rows stand in the order of app.sorting, which a heading's button changes.
function table(app, id, caption, columns, rows) {
  const sorting = app.sorting[id];
  if (sorting) {
    const {value} = columns[sorting.column];
    const known = (a) => (Number.isNaN(a) ? -Infinity : a);
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : Number(known(a) > known(b)) - Number(known(a) < known(b)));
    rows = [...rows].sort((a, b) => sorting.direction * compare(value(a), value(b)));
  }
  const heads = columns.map((column, i) => {
    const isSorted = sorting && sorting.column === i;
    return html("th", {scope: "col", "aria-sort": isSorted ? (sorting.direction > 0 ? "ascending" : "descending") : "none"},
                html("button", {type: "button", "data-sort": `${id} ${i}`},
                     column.name, isSorted ? (sorting.direction > 0 ? " ▲" : " ▼") : ""));
  });
  return html("table", {}, html("caption", {}, caption), html("thead", {}, html("tr", {}, ...heads)),
              html("tbody", {}, ...rows.map((row) => html("tr", {}, ...columns.map((column, i) =>
                html(i === 0 ? "th" : "td", i === 0 ? {scope: "row"} : {}, column.text(row)))))));
}

function opsTable(app) {
  const traces = app.shownTraces(), names = new Map();
  traces.forEach((trace, pane) => trace.ops.forEach((op, index) => {
    if (!names.has(op.name)) names.set(op.name, {name: op.name, ops: [null, null], at: [pane, index]});
    names.get(op.name).ops[pane] ??= op;
  }));
  const figure = (op, member) => (op ? op[member] : NaN);
  const style = (row) => {
    const mark = html("span", {class: "swatch", "aria-hidden": "true"});
    const {colour, texture} = app.styles.of({name: row.name}, app.theme);
    mark.style.background = swatchBackground(colour, texture, app.theme);
    return html("span", {}, mark, selectButton(row.at[0], "op", row.at[1], row.name));
  };
  const columns = [{name: "op", value: (row) => row.name, text: style}];
  const add = (name, value, format) => columns.push({name, value, text: (row) => (Number.isNaN(value(row)) ? kNoValue : format(value(row)))});
  if (traces.length === 1) {
    add("tasks", (row) => figure(row.ops[0], "tasks"), formatCount);
    for (const member of ["busy", "wait", "begin", "end"]) add(member, (row) => figure(row.ops[0], member), (ns) => formatNs(ns));
    return table(app, "ops", `Ops of ${traces[0].name}`, columns, [...names.values()]);
  }
  for (const member of ["busy", "begin", "end"]) {
    columns.push({name: member, value: (row) => figure(row.ops[0], member), text: (row) => {
      const [a, b] = row.ops.map((op) => formatNs(figure(op, member)));
      return html("span", {class: "stacked"}, html("span", {}, a), html("span", {}, b));
    }});
    add("B − A", (row) => figure(row.ops[1], member) - figure(row.ops[0], member), formatDifference);
  }
  return table(app, "ops", `Ops: ${traces[0].name} (A) above, ${traces[1].name} (B) below`, columns, [...names.values()]);
}

function laneTimeTable(app) {
  const traces = app.shownTraces(), reasons = new Map();
  traces.forEach((trace, pane) => {
    const {whole, parts} = laneTime(trace);
    parts.forEach((part, i) => {
      if (!reasons.has(part.reason)) reasons.set(part.reason, {reason: part.reason, i, parts: []});
      reasons.get(part.reason).parts[pane] = {ns: part.ns, share: formatShare(part.ns, whole)};
    });
  });
  const columns = [{name: "lane time", value: (row) => row.reason, text: (row) => row.reason}];
  traces.forEach((trace, pane) => {
    const mark = traces.length > 1 ? (pane === 0 ? " A" : " B") : "";
    columns.push({name: `time${mark}`, value: (row) => row.parts[pane]?.ns ?? NaN, text: (row) => formatNs(row.parts[pane]?.ns ?? NaN)});
    columns.push({name: `share${mark}`, value: (row) => row.parts[pane]?.ns ?? NaN, text: (row) => row.parts[pane]?.share ?? kNoValue});
  });
  return table(app, "idle", "What the lanes' time went into", columns, [...reasons.values()]);
}

const kMaxLinksListed = 400;

function criticalPanel(app) {
  const pane = app.activePane, trace = app.traceOf(pane);
  if (trace.critical.length === 0) return [html("p", {class: "hint"}, `${trace.name} has no critical path.`)];
  const sum = [...trace.criticalByKind.values()].reduce((total, ns) => total + ns, 0);
  const kinds = [...trace.criticalByKind].sort((a, b) => b[1] - a[1]).map(([kind, ns]) => {
    const style = linkStyle(kind), mark = html("span", {class: "swatch letter", "aria-hidden": "true"}, style.letter);
    mark.style.background = style[app.theme];
    return html("li", {}, mark, `${kind} `, html("b", {}, formatNs(ns)), ` ${formatShare(ns, sum)}`, html("i", {}, ` ${style.says}`));
  });
  const rows = trace.critical.slice(0, kMaxLinksListed).map((link, i) => html("tr", {},
    html("th", {scope: "row"}, selectButton(pane, "link", i, `${linkStyle(link.kind).letter} ${link.kind}`)),
    html("td", {}, trace.title(link.task)), html("td", {}, formatNs(link.begin)), html("td", {}, formatNs(link.end - link.begin))));
  const note = trace.critical.length > kMaxLinksListed ?
    html("p", {class: "hint"}, `The first ${formatCount(kMaxLinksListed)} of ${formatCount(trace.critical.length)} links; n and p walk through all.`) : null;
  return [html("p", {}, `Critical path of ${trace.name}: ${plural(trace.critical.length, "link")}, ${formatNs(sum)}, ` +
                        `${formatShare(sum, trace.spanNs)} of the span.`),
          html("ul", {class: "kinds"}, ...kinds),
          html("table", {}, html("thead", {}, html("tr", {}, ...["link", "task", "begin", "took"].map((name) => html("th", {scope: "col"}, name)))),
               html("tbody", {}, ...rows)), ...(note ? [note] : [])];
}
