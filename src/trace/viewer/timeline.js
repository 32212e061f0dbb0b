"use strict";

// One trace on one canvas: where things are, the lanes, and what is under the pointer. What lies over the lanes is in overlays.js.
// Drawing walks the tasks in view only; what is narrower than kMinBarPx becomes blocks, whose height says how busy that stretch is.

const kMinBarPx = 2;
const kBlockPx = 3;
const kLabelMinPx = 30;
const kMaxLabels = 1200;
const kGutterPx = 92;
const kRightPx = 12;
const kOverviewPx = 30;
const kAxisPx = 20;
const kAxisStepPx = 90;
const kEventsPx = 16;
const kCriticalPx = 20;
const kMinRowPx = 3;
const kMaxRowPx = 48;

class Timeline {
  constructor(canvas, pane, app) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", {alpha: false});
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
    this.blockBusy = new Float64Array(trace.ops.length);
    this.labels = [];
    this.paints = null;
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
  waitPx() { return this.app.rowPx >= 20 ? 4 : this.app.rowPx >= 12 ? 3 : this.app.rowPx >= 7 ? 2 : 1; }
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
    this.drawGrid();
    this.drawLanes();
    this.clipped(this.lanesTop, this.lanesPx, () => {
      this.drawLabels();
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

  drawGrid() {
    const context = this.context, colours = this.app.colours, {begin, end} = this.app.view;
    const step = axisStep(1 / this.scale, kAxisStepPx);
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
    const {ratio, app} = this, paints = app.paints();
    if (this.paints !== paints) {
      this.paints = paints;
      this.opPaints = paints.ops(this.trace);
    }
    const left = Math.round(this.left * ratio), top = Math.round(this.lanesTop * ratio);
    const width = Math.round(this.right * ratio) - left, height = Math.round(this.height * ratio) - top;
    if (width <= 0 || height <= 0) return;
    if (!this.layer || this.layer.width !== width || this.layer.height !== height) this.layer = new PixelLayer(width, height);
    this.layerTop = top;
    this.labels.length = 0;
    const layer = this.layer, [first, end] = this.rowsInView();
    layer.clear(paints.pixels.back);
    for (let row = first; row < end; row++) {
      if (this.trace.laneOfRow[row] % 2 === 0) continue;
      const y = this.pixelY(this.rowTop(row));
      layer.rect(0, y, width, this.pixelY(this.rowTop(row + 1)) - y, paints.pixels.band);
    }
    const step = axisStep(1 / this.scale, kAxisStepPx);
    for (let i = Math.ceil(app.view.begin / step); i * step <= app.view.end; i++) {
      layer.rect(Math.round(Math.round(this.x(i * step) - this.left) * ratio), 0, Math.max(1, Math.round(ratio)), height, paints.pixels.grid);
    }
    layer.rect(Math.round((this.x(this.trace.spanNs) - this.left) * ratio), 0, Math.max(1, Math.round(ratio)), height, paints.pixels.dim);
    for (let i = first; i < end; i++) {
      this.paintWaits(this.trace.rows[i], this.rowTop(i + 1) - this.waitPx());
      this.paintWork(this.trace.rows[i], this.barTop(i));
    }
    layer.putOn(this.context, left, top);
  }

  // Device pixels of the layer, from pixels of the page.
  pixelY(y) { return Math.round(y * this.ratio) - this.layerTop; }

  paintWork(row, top) {
    const kept = this.app.kept[this.pane];
    const {begin, end} = this.app.view, scale = this.scale * this.ratio;
    const tasks = row.tasks, ready = row.ready, done = row.done, least = kMinBarPx * this.ratio;
    const y = this.pixelY(top), height = Math.max(1, this.pixelY(top + this.barPx()) - y);
    let i = firstAbove(done, begin);
    while (i < tasks.length && ready[i] < end) {
      const x = (ready[i] - begin) * scale, width = (done[i] - ready[i]) * scale;
      if (width >= least) this.paintBar(row, i++, x, y, width, height, kept);
      else i = this.paintBlock(row, i, x, y, height, kept);
    }
  }

  paintBar(row, i, exactX, y, exactWidth, height, kept) {
    const {layer, ratio} = this, {pixels} = this.paints;
    const isMuted = kept !== null && kept[row.tasks[i]] === 0;
    const x = Math.round(exactX);
    // Neighbours have a gap between them where there is room for one.
    let width = Math.max(1, Math.round(exactX + exactWidth) - x);
    if (width > 4 * ratio) width -= Math.max(1, Math.round(ratio));
    const {pixel, tile} = this.opPaints[row.op[i]];
    if (isMuted) layer.rect(x, y, width, height, pixels.muted);
    else if (tile !== null && width >= 8 * ratio && height >= 6 * ratio) layer.tiled(x, y, width, height, tile);
    else layer.rect(x, y, width, height, pixel);
    if (kept !== null && !isMuted) layer.rect(x, y, width, Math.min(Math.ceil(2 * ratio), height), pixels.mark);
    if (width < kLabelMinPx * ratio || height < 9 * ratio || this.labels.length >= kMaxLabels) return;
    // A bar that begins out of view has its label where it becomes visible.
    const shown = Math.max(x / ratio, 0), room = Math.min((x + width) / ratio, this.right - this.left) - shown;
    if (room < kLabelMinPx) return;
    this.labels.push({task: row.tasks[i], x: this.left + shown + 4, y: (y + this.layerTop + height / 2) / ratio, room: room - 7, isMuted});
  }

  // Paints the narrow tasks from i on that begin in one stretch of kBlockPx; returns the next task.
  paintBlock(row, i, x, y, height, kept) {
    const {layer, ratio} = this, {begin, end} = this.app.view, scale = this.scale * ratio;
    const tasks = row.tasks, ready = row.ready, done = row.done, busy = this.blockBusy, first = i;
    const width = Math.round(kBlockPx * ratio), blockX = Math.floor(x / width) * width;
    const blockEnd = Math.min(end, begin + (blockX + width) / scale), widest = kMinBarPx * ratio / scale;
    let total = 0, most = row.op[i], hasKept = false;
    for (; i < tasks.length && ready[i] < blockEnd && done[i] - ready[i] < widest; i++) {
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
    // Rounding may put a task's begin behind the block that it belongs to.
    if (i === first) i++;
    for (let k = first; k < i; k++) busy[row.op[k]] = 0;
    const share = Math.min(1, total * scale / width), filled = Math.min(height, Math.max(1, Math.ceil(height * share - 0.2)));
    const isMuted = kept !== null && !hasKept;
    layer.rect(blockX, y + height - filled, width, filled, isMuted ? this.paints.pixels.muted : this.opPaints[most].pixel);
    if (hasKept) layer.rect(blockX, y, width, Math.min(Math.ceil(2 * ratio), height), this.paints.pixels.mark);
    return i;
  }

  paintWaits(row, top) {
    const {ratio} = this, {begin, end} = this.app.view, scale = this.scale * ratio;
    const ready = row.ready, visible = row.visible, wide = 6 * ratio;
    const y = this.pixelY(top), height = Math.max(1, this.pixelY(top + this.waitPx()) - y);
    let runBegin = 0, runEnd = -1;
    for (let i = firstAbove(ready, begin); i < ready.length && row.visibleFrom[i] < end; i++) {
      if (visible[i] >= ready[i] || visible[i] >= end) continue;
      const x0 = (visible[i] - begin) * scale, x1 = (ready[i] - begin) * scale;
      // Waits that can be told apart stay apart.
      if (x0 > runEnd + 0.5 || (x0 >= runEnd - 0.5 && x1 - x0 >= wide)) {
        this.paintWait(runBegin, runEnd, y, height);
        runBegin = x0;
        runEnd = x1;
      } else {
        runEnd = Math.max(runEnd, x1);
        runBegin = Math.min(runBegin, x0);
      }
    }
    this.paintWait(runBegin, runEnd, y, height);
  }

  paintWait(begin, end, y, height) {
    if (end <= begin) return;
    const x = Math.round(begin), width = Math.max(1, Math.round(end) - x);
    if (width >= 6 * this.ratio && height > this.ratio) this.layer.tiled(x, y, width - Math.round(this.ratio), height, this.paints.wait);
    else this.layer.rect(x, y, width, height, this.paints.pixels.wait);
  }

  drawLabels() {
    const context = this.context;
    const size = this.app.rowPx >= 16 ? 11 : 10, width = (text) => context.measureText(text).width;
    context.font = `${size}px ${this.app.font}`;
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (const {task, x, y, room, isMuted} of this.labels) {
      const op = this.trace.ops[this.trace.op[task]], text = [this.trace.title(task), op.name].find((text) => width(text) <= room);
      if (!text) continue;
      // The strokes of a texture do not run through the text.
      const look = this.app.styles.of(op, this.app.theme);
      if (!isMuted && look.texture !== "none") {
        context.fillStyle = look.colour;
        context.fillRect(x - 2, y - size / 2 - 0.5, width(text) + 4, size + 1);
      }
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
    context.fillStyle = colours.band;
    for (let row = first; row < end; row++) {
      const top = Math.max(this.lanesTop, this.rowTop(row));
      if (this.trace.laneOfRow[row] % 2 === 1) context.fillRect(0, top, this.left, this.rowTop(row + 1) - top);
    }
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
