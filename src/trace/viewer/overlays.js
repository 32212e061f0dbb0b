"use strict";

// What a timeline draws over and above its lanes: overview, events, critical path, and the arrows around the selection.

const kMaxArrows = 160;
const kCrowdedPx = 8;

function drawOverview(timeline) {
  const {context, app, trace, left, plotPx} = timeline, colours = app.colours;
  const bins = Math.max(1, Math.floor(plotPx / 2));
  timeline.curve ??= trace.busyCurve(bins, app.endNs);
  const bottom = kOverviewPx - 3, height = kOverviewPx - 7, most = Math.max(1, trace.laneNames.length);
  context.fillStyle = colours.band;
  context.fillRect(left, bottom - height, plotPx, height);
  context.beginPath();
  context.moveTo(left, bottom);
  timeline.curve.forEach((busy, i) => {
    const y = bottom - height * Math.min(1, busy / most);
    context.lineTo(left + i * plotPx / bins, y);
    context.lineTo(left + (i + 1) * plotPx / bins, y);
  });
  context.lineTo(left + plotPx, bottom);
  context.fillStyle = colours.curve;
  context.fill();
  const [begin, end] = [app.view.begin, app.view.end].map((ns) => left + Math.min(1, Math.max(0, ns / app.endNs)) * plotPx);
  context.fillStyle = colours.shade;
  context.fillRect(left, bottom - height, begin - left, height);
  context.fillRect(end, bottom - height, left + plotPx - end, height);
  context.strokeStyle = colours.accent;
  context.lineWidth = 1.5;
  context.strokeRect(begin, bottom - height - 0.5, Math.max(2, end - begin), height + 1);
}

// A diamond for an event, a square where several are too close to be told apart.
function drawEvents(timeline) {
  const {context, app, trace} = timeline;
  const times = trace.eventTimes, middle = kOverviewPx + kAxisPx + kEventsPx / 2;
  const selected = app.selectionIn(timeline.pane, "event");
  timeline.clipped(kOverviewPx + kAxisPx, kEventsPx, () => {
    context.fillStyle = app.colours.event;
    context.beginPath();
    let i = firstAbove(times, timeline.time(timeline.left - 6));
    const end = firstAbove(times, timeline.time(timeline.right + 6));
    while (i < end) {
      const x = timeline.x(times[i]);
      let next = firstAbove(times, timeline.time(x + 5));
      if (next <= i) next = i + 1;
      if (next === i + 1) {
        context.moveTo(x, middle - 4.5);
        context.lineTo(x + 4, middle);
        context.lineTo(x, middle + 4.5);
        context.lineTo(x - 4, middle);
      } else {
        context.rect(x - 2, middle - 4.5, Math.max(4, timeline.x(times[next - 1]) - x + 4), 9);
      }
      i = next;
    }
    context.fill();
    if (selected >= 0 && trace.events[selected].last >= 0) {
      context.strokeStyle = app.colours.accent;
      context.lineWidth = 2;
      context.strokeRect(timeline.x(trace.events[selected].reached) - 6, middle - 7, 12, 14);
    }
  });
}

function linksInView(timeline) {
  const {trace, app} = timeline;
  const first = firstAbove(trace.criticalEnds, app.view.begin);
  let end = first;
  while (end < trace.critical.length && trace.critical[end].begin <= app.view.end) end++;
  return [first, end];
}

// The links as one line of typed segments; those below a pixel are merged with what is longest around them.
function drawCriticalStrip(timeline) {
  const {context, app, trace} = timeline, [first, end] = linksInView(timeline);
  const top = timeline.criticalTop + 2, height = kCriticalPx - 5;
  const selected = app.selectionIn(timeline.pane, "link");
  timeline.clipped(timeline.criticalTop, kCriticalPx, () => {
    context.font = `bold 10px ${app.font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    let i = first;
    while (i < end) {
      let best = i;
      const x0 = timeline.x(trace.critical[i].begin);
      let x1 = timeline.x(trace.critical[i].end), next = i + 1;
      while (x1 - x0 < 1.5 && next < end && timeline.x(trace.critical[next].begin) - x0 < 1.5) {
        const link = trace.critical[next];
        if (link.end - link.begin > trace.critical[best].end - trace.critical[best].begin) best = next;
        x1 = Math.max(x1, timeline.x(link.end));
        next++;
      }
      const style = linkStyle(trace.critical[best].kind), width = Math.max(1, x1 - x0 - (x1 - x0 > 4 ? 1 : 0));
      context.fillStyle = style[app.theme];
      context.fillRect(x0, top, width, height);
      const pattern = width >= 6 ? app.paints().pattern(context, style.texture) : null;
      if (pattern) {
        context.fillStyle = pattern;
        context.fillRect(x0, top, width, height);
      }
      if (width >= 13) {
        const middle = (Math.max(x0, timeline.left) + Math.min(x0 + width, timeline.right)) / 2;
        context.fillStyle = style[app.theme];
        context.fillRect(middle - 5, top + 1, 10, height - 2);
        context.fillStyle = app.colours.barInk;
        context.fillText(style.letter, middle, top + height / 2 + 0.5);
      }
      i = next;
    }
    if (selected >= 0) {
      const link = trace.critical[selected];
      context.strokeStyle = app.colours.accent;
      context.lineWidth = 2;
      context.strokeRect(timeline.x(link.begin), top - 1, Math.max(3, timeline.x(link.end) - timeline.x(link.begin)), height + 2);
    }
  });
}

// Frames around the tasks of the critical path, and a line that leads through them, dashed where it waits. Where links crowd, the line
// would hide the lanes: then only the places are marked that the path passes.
function drawCriticalTasks(timeline) {
  const [first, end] = linksInView(timeline);
  if (first === end) return;
  const isCrowded = end - first > timeline.plotPx / kCrowdedPx;
  (isCrowded ? markCriticalTasks : frameCriticalTasks)(timeline, first, end);
}

function markCriticalTasks(timeline, first, end) {
  const {context, app, trace} = timeline, barPx = timeline.barPx(), thick = Math.min(barPx, 3);
  context.fillStyle = app.colours.critical;
  for (let i = first; i < end; i++) {
    const link = trace.critical[i];
    if (!isWork(link) || !trace.hasTimes(link.task)) continue;
    const x = timeline.x(link.begin), y = timeline.barTop(trace.rowOf(link.task));
    if (y > timeline.height || y < timeline.lanesTop - thick) continue;
    context.fillRect(x, y, Math.max(2, timeline.x(link.end) - x), thick);
  }
}

function isWork(link) { return link.kind === "compute" || link.kind === "weights"; }

function frameCriticalTasks(timeline, first, end) {
  const {context, app, trace} = timeline;
  const barPx = timeline.barPx(), bars = new Path2D(), solid = new Path2D(), dashed = new Path2D();
  let last = null, framed = -1;  // where the line has come to
  for (let i = first; i < end; i++) {
    const link = trace.critical[i];
    if (!trace.hasTimes(link.task)) continue;
    const top = timeline.barTop(trace.rowOf(link.task)), y = top + barPx / 2;
    const x0 = timeline.x(link.begin), x1 = timeline.x(link.end);
    if (last !== null && Math.abs(last.y - y) >= 1) {
      solid.moveTo(last.x, last.y);
      solid.lineTo(x0, y);
    }
    if (!isWork(link)) {
      dashed.moveTo(x0, y);
      dashed.lineTo(x1, y);
    } else if (framed !== link.task) {
      const begin = timeline.x(trace.ready[link.task]);
      bars.rect(begin + 0.5, top + 0.5, Math.max(2, timeline.x(trace.done[link.task]) - begin - 2), barPx - 1);
      framed = link.task;
    }
    last = {x: x1, y};
  }
  // A halo, so that the lines stay visible over any op's colour.
  for (const [style, width] of [[app.colours.back, 3.5], [app.colours.critical, 1.75]]) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.setLineDash([]);
    if (style !== app.colours.back) context.stroke(bars);
    context.stroke(solid);
    context.setLineDash([4, 3]);
    context.stroke(dashed);
  }
  context.setLineDash([]);
}

// Arrows from the tasks that the selected one waited for, and to those that it let go; only the last signaller's is strong.
function drawSelection(timeline) {
  const {app, trace, pane} = timeline;
  for (const [target, strength] of [[app.hover, 1], [app.selection, 2]]) {
    if (!target || target.pane !== pane) continue;
    if (target.kind === "task" && trace.hasTimes(target.index)) {
      if (strength === 2) drawTaskArrows(timeline, target.index);
      frameTask(timeline, target.index, strength);
    } else if (target.kind === "event" && strength === 2) {
      drawEventArrows(timeline, target.index);
    } else if (target.kind === "link" && trace.hasTimes(trace.critical[target.index].task)) {
      frameTask(timeline, trace.critical[target.index].task, strength);
    }
  }
}

function frameTask(timeline, task, strength) {
  const {context, app, trace} = timeline, row = trace.rowOf(task);
  const x = timeline.x(trace.ready[task]), width = Math.max(3, timeline.x(trace.done[task]) - x);
  const top = timeline.barTop(row), height = timeline.barPx();
  for (const [style, line] of [[app.colours.back, strength * 2 + 1.5], [app.colours.accent, strength + 0.5]]) {
    context.strokeStyle = style;
    context.lineWidth = line;
    context.strokeRect(x - 0.5, top - 0.5, width, height + 1);
  }
  const begin = timeline.x(trace.visible[task]);
  if (strength === 2 && x - begin > 2) {
    context.strokeStyle = app.colours.accent;
    context.lineWidth = 1.5;
    context.strokeRect(begin, timeline.rowTop(row + 1) - timeline.waitPx() - 0.5, x - begin, timeline.waitPx());
  }
}

function arrow(path, x0, y0, x1, y1) {
  const bend = Math.max(12, Math.min(60, Math.abs(x1 - x0) / 2));
  path.moveTo(x0, y0);
  path.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  path.moveTo(x1 - 5, y1 - 3);
  path.lineTo(x1, y1);
  path.lineTo(x1 - 5, y1 + 3);
}

function drawTaskArrows(timeline, task) {
  const {trace} = timeline, weak = new Path2D(), strong = new Path2D(), out = new Path2D();
  const middle = (other) => timeline.barTop(trace.rowOf(other)) + timeline.barPx() / 2;
  const connect = (path, from, to) => arrow(path, timeline.x(trace.done[from]), middle(from), timeline.x(trace.ready[to]), middle(to));
  let numWeak = 0, numOut = 0;
  for (const index of trace.waits.groups(task)) {
    const event = trace.events[index];
    if (event.last >= 0) connect(strong, event.last, task);
    for (const from of event.signallers) if (from !== event.last && trace.hasTimes(from) && numWeak++ < kMaxArrows) connect(weak, from, task);
  }
  for (const index of trace.signals.groups(task)) {
    for (const to of trace.events[index].waiters) if (trace.hasTimes(to) && numOut++ < kMaxArrows) connect(out, task, to);
  }
  strokeArrows(timeline, {strong, weak, numWeak, out, numOut});
}

function drawEventArrows(timeline, index) {
  const {trace} = timeline, event = trace.events[index], x = event.last >= 0 ? timeline.x(event.reached) : 0;
  if (event.last < 0) return;
  const weak = new Path2D(), out = new Path2D(), middle = (task) => timeline.barTop(trace.rowOf(task)) + timeline.barPx() / 2;
  // The event itself hangs above the lanes.
  const top = timeline.lanesTop + 2;
  for (const from of event.signallers.slice(0, kMaxArrows)) {
    if (trace.hasTimes(from)) arrow(weak, timeline.x(trace.done[from]), middle(from), x, top);
  }
  for (const to of event.waiters.slice(0, kMaxArrows)) {
    if (trace.hasTimes(to)) arrow(out, x, top, timeline.x(trace.ready[to]), middle(to));
  }
  strokeArrows(timeline, {strong: new Path2D(), weak, numWeak: event.signallers.length, out, numOut: event.waiters.length});
}

// Many arrows are drawn faintly, so that the lanes can be seen through them.
function strokeArrows(timeline, {strong, weak, numWeak, out, numOut}) {
  const {context, app} = timeline;
  const stroke = (path, width, dash, alpha) => {
    context.globalAlpha = alpha;
    context.strokeStyle = app.colours.accent;
    context.lineWidth = width;
    context.setLineDash(dash);
    context.stroke(path);
  };
  const faint = (count, most) => Math.min(most, 0.16 + 5 / Math.max(1, count));
  stroke(weak, 1, [], faint(numWeak, 0.6));
  stroke(out, 1, [5, 3], faint(numOut, 0.8));
  stroke(strong, 2.2, [], 1);
  context.setLineDash([]);
  context.globalAlpha = 1;
}
