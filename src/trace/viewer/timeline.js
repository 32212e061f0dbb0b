"use strict";

// One trace on one canvas: where things are, the lanes, and what is under the pointer. What lies over the lanes is in overlays.js.
// Drawing walks the tasks in view only, and no more than a few rectangles per pixel of a lane reach the canvas: what is narrower
// than kMinBarPx becomes blocks, whose height says how busy that stretch is.

const kMinBarPx = 2;
const kBlockPx = 3;
const kLabelMinPx = 30;
const kMaxLabels = 1200;
const kCharPx = 6.1;
const kGutterPx = 92;
const kRightPx = 12;
const kOverviewPx = 30;
const kAxisPx = 20;
const kEventsPx = 16;
const kCriticalPx = 20;
const kMinRowPx = 3;
const kMaxRowPx = 48;

// Rectangles by key, kept from frame to frame so that drawing allocates nothing.
class Batches {
  constructor(size) {
    this.values = Array.from({length: size}, () => new Float32Array(256));
    this.used = new Int32Array(size);
  }
  clear() { this.used.fill(0); }
  push(key, x, y, w, h) {
    let values = this.values[key];
    const at = this.used[key];
    if (at + 4 > values.length) {
      values = new Float32Array(values.length * 2);
      values.set(this.values[key]);
      this.values[key] = values;
    }
    values[at] = x;
    values[at + 1] = y;
    values[at + 2] = w;
    values[at + 3] = h;
    this.used[key] = at + 4;
  }
  fill(context, key, style) {
    if (this.used[key] === 0) return;
    context.fillStyle = style;
    const values = this.values[key];
    for (let i = 0; i < this.used[key]; i += 4) context.fillRect(values[i], values[i + 1], values[i + 2], values[i + 3]);
  }
}

class Timeline {
  constructor(canvas, pane, app) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.pane = pane;
    this.app = app;
    this.trace = null;
    this.scroll = 0;
    this.width = 0;
    this.height = 0;
  }

  setTrace(trace) {
    this.trace = trace;
    this.scroll = 0;
    // One batch per op, then the muted ones, then the marks over what a search found.
    this.muted = trace.ops.length;
    this.marks = trace.ops.length + 1;
    this.bars = new Batches(trace.ops.length + 2);
    this.textured = new Batches(kTextures.length);
    this.waits = new Batches(2);
    this.blockBusy = new Float64Array(trace.ops.length);
    this.labels = [];
    this.curve = null;
  }

  // Takes the size that the page gives the canvas.
  resize() {
    const box = this.canvas.getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    this.width = box.width;
    this.height = box.height;
    const width = Math.max(1, Math.round(box.width * ratio)), height = Math.max(1, Math.round(box.height * ratio));
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.ratio = ratio;
    this.curve = null;
    this.clampScroll();
  }

  // --- geometry ---

  get left() { return kGutterPx; }
  get right() { return this.width - kRightPx; }
  get plotPx() { return Math.max(1, this.right - this.left); }
  get lanesTop() { return kOverviewPx + kAxisPx + kEventsPx + (this.app.showCritical ? kCriticalPx : 0); }
  get criticalTop() { return kOverviewPx + kAxisPx + kEventsPx; }
  get lanesPx() { return Math.max(0, this.height - this.lanesTop); }
  get maxScroll() { return Math.max(0, this.trace.rows.length * this.app.rowPx - this.lanesPx + 4); }
  get scale() { return this.plotPx / (this.app.view.end - this.app.view.begin); }

  x(ns) { return this.left + (ns - this.app.view.begin) * this.scale; }
  time(x) { return this.app.view.begin + (x - this.left) / this.scale; }
  rowTop(row) { return this.lanesTop + row * this.app.rowPx - this.scroll; }
  overviewTime(x) { return (x - this.left) / this.plotPx * this.app.endNs; }
  waitPx() { return this.app.rowPx >= 12 ? 4 : this.app.rowPx >= 7 ? 2 : 1; }
  barPx() { return Math.max(1, this.app.rowPx - this.waitPx() - (this.app.rowPx >= 6 ? 2 : 0)); }
  barTop(row) { return this.rowTop(row) + (this.app.rowPx >= 6 ? 1 : 0); }

  clampScroll() {
    if (this.trace) this.scroll = Math.min(Math.max(0, this.scroll), this.maxScroll);
  }

  showTask(task) {
    const row = this.trace.rowOf(task);
    const top = row * this.app.rowPx;
    if (top < this.scroll) this.scroll = top - 2 * this.app.rowPx;
    else if (top + this.app.rowPx > this.scroll + this.lanesPx) this.scroll = top + 3 * this.app.rowPx - this.lanesPx;
    this.clampScroll();
  }

  // --- drawing ---

  draw() {
    if (!this.trace || this.width === 0) return;
    const context = this.context, colours = this.app.colours;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = colours.back;
    context.fillRect(0, 0, this.width, this.height);
    this.drawBands();
    this.drawGrid();
    this.clipped(this.lanesTop, this.lanesPx, () => {
      this.drawLanes();
      if (this.app.showCritical) drawCriticalTasks(this);
      drawSelection(this);
    });
    drawEvents(this);
    if (this.app.showCritical) drawCriticalStrip(this);
    this.drawGutter();
    drawOverview(this);
    this.drawScrollbar();
  }

  clipped(top, height, drawing) {
    const context = this.context;
    context.save();
    context.beginPath();
    context.rect(this.left, top, this.right - this.left, height);
    context.clip();
    drawing();
    context.restore();
  }

  rowsInView() {
    const first = Math.max(0, Math.floor(this.scroll / this.app.rowPx));
    const end = Math.min(this.trace.rows.length, Math.ceil((this.scroll + this.lanesPx) / this.app.rowPx));
    return [first, end];
  }

  drawBands() {
    const context = this.context, [first, end] = this.rowsInView();
    context.save();
    context.beginPath();
    context.rect(0, this.lanesTop, this.right, this.lanesPx);
    context.clip();
    context.fillStyle = this.app.colours.band;
    for (let row = first; row < end; row++) {
      if (this.trace.laneOfRow[row] % 2 === 1) context.fillRect(0, this.rowTop(row), this.right, this.app.rowPx);
    }
    context.restore();
  }

  drawGrid() {
    const context = this.context, colours = this.app.colours, {begin, end} = this.app.view;
    const step = axisStep(1 / this.scale, 90);
    context.font = "11px " + this.app.font;
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (let i = Math.ceil(begin / step); i * step <= end; i++) {
      const x = Math.round(this.x(i * step));
      context.fillStyle = colours.grid;
      context.fillRect(x, kOverviewPx + kAxisPx - 5, 1, this.height);
      const label = axisLabel(i * step, step);
      if (x + 4 + context.measureText(label).width > this.right) continue;
      context.fillStyle = colours.dim;
      context.fillText(label, x + 4, kOverviewPx + kAxisPx / 2 + 1);
    }
    const x = this.x(this.trace.spanNs);
    if (x <= this.right + 1 && x > this.left) {
      context.fillStyle = colours.dim;
      context.fillRect(x, kOverviewPx + kAxisPx, 1, this.height);
    }
  }

  drawLanes() {
    this.bars.clear();
    this.textured.clear();
    this.waits.clear();
    this.labels.length = 0;
    const [first, end] = this.rowsInView();
    for (let i = first; i < end; i++) {
      this.collectWork(this.trace.rows[i], this.barTop(i));
      this.collectWaits(this.trace.rows[i], this.rowTop(i + 1) - this.waitPx());
    }
    const context = this.context, {theme, colours} = this.app;
    this.waits.fill(context, 0, colours.wait);
    this.waits.fill(context, 1, this.app.waitPattern(context));
    this.bars.fill(context, this.muted, colours.muted);
    this.trace.ops.forEach((op, i) => this.bars.fill(context, i, this.app.styles.of(op, theme).colour));
    kTextures.forEach((texture, i) => this.textured.fill(context, i, this.app.patterns.get(context, texture)));
    this.bars.fill(context, this.marks, colours.mark);
    this.drawLabels();
  }

  collectWork(row, top) {
    const kept = this.app.kept[this.pane];
    const {begin, end} = this.app.view, scale = this.scale, left = this.left, height = this.barPx();
    const tasks = row.tasks, ready = row.ready, done = row.done;
    let i = firstAbove(done, begin);
    while (i < tasks.length && ready[i] < end) {
      const x = left + (ready[i] - begin) * scale, width = (done[i] - ready[i]) * scale;
      if (width >= kMinBarPx) this.collectBar(row, i++, x, top, width, height, kept);
      else i = this.collectBlock(row, i, x, top, height, kept);
    }
  }

  collectBar(row, i, x, top, width, height, kept) {
    const isMuted = kept !== null && kept[row.tasks[i]] === 0;
    const drawn = width > 4 ? width - 1 : width;
    this.bars.push(isMuted ? this.muted : row.op[i], x, top, drawn, height);
    if (kept !== null && !isMuted) this.bars.push(this.marks, x, top, drawn, Math.min(2, height));
    if (width >= 8 && height >= 6 && !isMuted) {
      const texture = this.app.styles.of(this.trace.ops[row.op[i]], this.app.theme).texture;
      if (texture !== "none") this.textured.push(kTextures.indexOf(texture), x, top, drawn, height);
    }
    // A bar that begins out of view has its label where it becomes visible.
    const shown = Math.max(x, this.left), room = Math.min(x + drawn, this.right) - shown;
    if (room >= kLabelMinPx && height >= 9 && this.labels.length < kMaxLabels) {
      this.labels.push({task: row.tasks[i], x: shown + 4, y: top + height / 2, room: room - 7, isMuted});
    }
  }

  // Draws the narrow tasks from i on that begin in one stretch of kBlockPx; returns the next task.
  collectBlock(row, i, x, top, height, kept) {
    const {begin, end} = this.app.view, scale = this.scale, left = this.left;
    const tasks = row.tasks, ready = row.ready, done = row.done, busy = this.blockBusy;
    const blockX = Math.floor(x / kBlockPx) * kBlockPx;
    const blockEnd = begin + (blockX + kBlockPx - left) / scale, widest = kMinBarPx / scale;
    let total = 0, most = row.op[i], hasKept = false;
    const first = i;
    for (; i < tasks.length && ready[i] < blockEnd && ready[i] < end && done[i] - ready[i] < widest; i++) {
      const op = row.op[i];
      // Where some tasks stand out, their op gives the colour.
      if (kept !== null && kept[tasks[i]] === 1) {
        if (!hasKept) most = op;
        hasKept = true;
      }
      busy[op] += done[i] - ready[i];
      total += done[i] - ready[i];
      if (!hasKept && busy[op] > busy[most]) most = op;
    }
    for (let k = first; k < i; k++) busy[row.op[k]] = 0;
    // In quarters, so that neighbours meet in few heights.
    const quarters = Math.min(4, Math.max(1, Math.ceil(4 * total * scale / kBlockPx - 0.2)));
    const filled = Math.max(1, height * quarters / 4);
    const isMuted = kept !== null && !hasKept;
    this.bars.push(isMuted ? this.muted : most, blockX, top + height - filled, kBlockPx, filled);
    if (hasKept) this.bars.push(this.marks, blockX, top, kBlockPx, Math.min(2, height));
    return i;
  }

  collectWaits(row, top) {
    const {begin, end} = this.app.view, scale = this.scale, left = this.left, height = this.waitPx();
    const ready = row.ready, visible = row.visible;
    let runBegin = 0, runEnd = -1;
    const flush = () => {
      if (runEnd <= runBegin) return;
      const isWide = runEnd - runBegin >= 6;
      this.waits.push(isWide && height >= 2 ? 1 : 0, runBegin, top, Math.max(0.5, runEnd - runBegin - (isWide ? 1 : 0)), height);
    };
    for (let i = firstAbove(ready, begin); i < ready.length && row.visibleFrom[i] < end; i++) {
      if (visible[i] >= ready[i] || visible[i] >= end) continue;
      const x0 = left + (visible[i] - begin) * scale, x1 = left + (ready[i] - begin) * scale;
      // Waits that can be told apart stay apart.
      if (x0 > runEnd + 0.5 || (x0 >= runEnd - 0.5 && x1 - x0 >= 6)) {
        flush();
        runBegin = x0;
        runEnd = x1;
      } else {
        runEnd = Math.max(runEnd, x1);
        runBegin = Math.min(runBegin, x0);
      }
    }
    flush();
  }

  drawLabels() {
    const context = this.context;
    const size = this.app.rowPx >= 16 ? 11 : 10;
    context.font = `${size}px ${this.app.font}`;
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (const {task, x, y, room, isMuted} of this.labels) {
      const name = this.trace.ops[this.trace.op[task]].name, title = this.trace.title(task);
      const fits = Math.floor(room / (kCharPx * size / 11));
      const text = title.length <= fits ? title : name.length <= fits ? name : "";
      if (!text) continue;
      context.fillStyle = isMuted ? this.app.colours.dim : this.app.colours.barInk;
      context.fillText(text, x, y + 0.5);
    }
  }

  drawGutter() {
    const context = this.context, colours = this.app.colours, rowPx = this.app.rowPx, [first, end] = this.rowsInView();
    context.font = "11px " + this.app.font;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillStyle = colours.dim;
    context.fillText("events", this.left - 8, kOverviewPx + kAxisPx + kEventsPx / 2);
    if (this.app.showCritical) context.fillText("critical path", this.left - 8, this.criticalTop + kCriticalPx / 2);
    context.fillText("lanes busy", this.left - 8, kOverviewPx / 2);
    context.fillStyle = colours.text;
    let free = this.lanesTop;
    for (let row = first; row < end; row++) {
      const lane = this.trace.laneOfRow[row];
      if (row !== this.trace.firstRow[lane]) continue;
      const middle = this.rowTop(row) + rowPx / 2;
      if (middle - 5 < free || middle + 5 > this.height) continue;
      context.fillText(this.fitText(this.trace.laneNames[lane], this.left - 14), this.left - 8, middle);
      free = middle + 6;
    }
    context.fillStyle = colours.grid;
    context.fillRect(this.left - 1, kOverviewPx, 1, this.height);
    context.fillRect(0, this.lanesTop - 1, this.right, 1);
  }

  fitText(text, room) {
    if (this.context.measureText(text).width <= room) return text;
    while (text.length > 1 && this.context.measureText(`${text}…`).width > room) text = text.slice(0, -1);
    return `${text}…`;
  }

  drawScrollbar() {
    if (this.maxScroll <= 4) return;
    const whole = this.lanesPx + this.maxScroll;
    const height = Math.max(18, this.lanesPx * this.lanesPx / whole);
    const top = this.lanesTop + (this.lanesPx - height) * this.scroll / this.maxScroll;
    this.context.fillStyle = this.app.colours.scrollbar;
    this.context.fillRect(this.width - 8, top, 6, height);
  }

  // --- what is at a point ---

  // {kind: "task" | "event" | "link" | "overview" | "scrollbar", index, part?, also?}, or null.
  hit(x, y) {
    if (!this.trace) return null;
    if (y < kOverviewPx) return x >= this.left ? {kind: "overview"} : null;
    if (x > this.right && y >= this.lanesTop) return this.maxScroll > 4 ? {kind: "scrollbar"} : null;
    if (x < this.left || x > this.right) return null;
    if (y >= kOverviewPx + kAxisPx && y < this.criticalTop) return this.hitEvent(x);
    if (y >= this.criticalTop && y < this.lanesTop) return this.hitLink(x);
    if (y >= this.lanesTop) return this.hitTask(x, y);
    return null;
  }

  hitTask(x, y) {
    const index = Math.floor((y - this.lanesTop + this.scroll) / this.app.rowPx);
    const row = this.trace.rows[index];
    if (!row || row.tasks.length === 0) return null;
    const time = this.time(x), tolerance = 3 / this.scale;
    if (y >= this.rowTop(index + 1) - this.waitPx() - 1) {
      for (let i = firstAbove(row.ready, time); i < row.tasks.length && row.visibleFrom[i] <= time; i++) {
        if (row.visible[i] <= time) return {kind: "task", index: row.tasks[i], part: "wait"};
      }
    }
    const i = firstAbove(row.done, time);
    let best = -1, distance = tolerance;
    for (const candidate of [i, i - 1]) {
      if (candidate < 0 || candidate >= row.tasks.length) continue;
      const away = Math.max(0, row.ready[candidate] - time, time - row.done[candidate]);
      if (away <= distance && (best < 0 || away < distance)) {
        best = candidate;
        distance = away;
      }
    }
    return best < 0 ? null : {kind: "task", index: row.tasks[best], part: "work"};
  }

  hitEvent(x) {
    const times = this.trace.eventTimes, tolerance = 5 / this.scale, time = this.time(x);
    const first = firstAbove(times, time - tolerance), end = firstAbove(times, time + tolerance);
    if (first === end) return null;
    let best = first;
    for (let i = first; i < end; i++) if (Math.abs(times[i] - time) < Math.abs(times[best] - time)) best = i;
    return {kind: "event", index: this.trace.eventOrder[best], also: end - first - 1};
  }

  hitLink(x) {
    const links = this.trace.critical, i = firstAbove(this.trace.criticalEnds, this.time(x));
    if (i >= links.length || links[i].begin > this.time(x + 2)) return null;
    return {kind: "link", index: i};
  }
}
