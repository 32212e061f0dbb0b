"use strict";

// The state of the page, and who is told when it changes.

const kColourNames = ["back", "band", "text", "dim", "grid", "wait", "muted", "mark", "bar-ink", "critical", "accent", "event", "curve",
                      "shade", "scrollbar"];
const kClosestView = 1e-6;  // of the whole: what is closer cannot be drawn exactly

function byId(id) { return document.getElementById(id); }

class App {
  constructor(traces) {
    this.traces = traces;
    this.shown = [0, traces.length > 1 ? 1 : -1];
    this.styles = new OpStyles(traces);
    this.font = "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
    this.view = {begin: 0, end: 1};
    this.rowPx = 16;
    this.showCritical = true;
    this.selection = null;
    this.hover = null;
    this.stretch = null;
    this.kept = [null, null];
    this.found = new Search(this);
    this.activePane = 0;
    this.tab = 0;
    this.sorting = {};
    this.lastDrawMs = 0;
    this.drawRequest = 0;
    this.timelines = [0, 1].map((pane) => new Timeline(byId(`timeline-${pane}`), pane, this));
    this.setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }

  traceOf(pane) { return this.traces[this.shown[pane]]; }
  shownTraces() { return this.shown.filter((index) => index >= 0).map((index) => this.traces[index]); }
  shownPanes() { return this.shown[1] >= 0 ? [0, 1] : [0]; }
  selectionIn(pane, kind) {
    return this.selection && this.selection.pane === pane && this.selection.kind === kind ? this.selection.index : -1;
  }

  // --- what is shown ---

  showTraces(first, second) {
    this.shown = [first, second === first ? -1 : second];
    this.selection = this.hover = null;
    this.activePane = 0;
    for (const pane of [0, 1]) {
      const section = byId(`pane-${pane}`);
      section.hidden = this.shown[pane] < 0;
      if (section.hidden) continue;
      const trace = this.traceOf(pane);
      this.timelines[pane].setTrace(trace);
      this.timelines[pane].canvas.setAttribute("aria-label", `Timeline of ${trace.name}: ${plural(trace.numTasks, "task")} on ` +
        `${plural(trace.laneNames.length, "lane")}, ${formatNs(trace.spanNs)}. Press ? for the keys.`);
    }
    byId("pick-0").value = String(this.shown[0]);
    byId("pick-1").value = String(this.shown[1]);
    this.endNs = Math.max(1, ...this.shownTraces().map((trace) => trace.spanNs));
    this.view = {begin: 0, end: this.endNs};
    this.showFacts();
    this.resize();
    this.fitRows();
    this.search(byId("search").value);
    this.showPanels();
  }

  showFacts() {
    for (const pane of this.shownPanes()) {
      const trace = this.traceOf(pane);
      byId(`facts-${pane}`).replaceChildren(traceFacts(trace), idleBar(trace, this));
    }
  }

  resize() {
    for (const pane of this.shownPanes()) this.timelines[pane].resize();
    this.requestDraw();
  }

  // Rows high enough to fill the space, unless that makes them very high or very low.
  fitRows() {
    const fitting = Math.min(...this.shownPanes().map((pane) => this.timelines[pane].lanesPx / this.traceOf(pane).rows.length));
    this.setRowPx(Math.min(32, Math.max(5, Math.floor(fitting))));
  }

  setRowPx(rowPx) {
    const before = this.rowPx;
    this.rowPx = Math.min(kMaxRowPx, Math.max(kMinRowPx, Math.round(rowPx) === before ? before + Math.sign(rowPx - before) : Math.round(rowPx)));
    for (const pane of this.shownPanes()) {
      this.timelines[pane].scroll *= this.rowPx / before;
      this.timelines[pane].clampScroll();
    }
    this.requestDraw();
  }

  setView(begin, end) {
    const length = Math.min(Math.max(end - begin, this.endNs * kClosestView), this.endNs);
    // A little beyond both ends, so that what begins or ends there can be seen to.
    const beyond = 0.02 * length, latest = Math.max(0, this.endNs + beyond - length);
    begin = length === this.endNs ? 0 : Math.min(Math.max((begin + end - length) / 2, -beyond), latest);
    this.view = {begin, end: begin + length};
    this.requestDraw();
  }

  zoom(factor, around = (this.view.begin + this.view.end) / 2) {
    const {begin, end} = this.view;
    // At the ends of what is possible the point under the pointer stays where it is.
    const length = Math.min(Math.max((end - begin) / factor, this.endNs * kClosestView), this.endNs);
    const share = (around - begin) / (end - begin);
    this.setView(around - share * length, around + (1 - share) * length);
  }

  pan(share) {
    const moved = share * (this.view.end - this.view.begin);
    this.setView(this.view.begin + moved, this.view.end + moved);
  }

  fit() { this.setView(0, this.endNs); }

  scrollLanes(rows) {
    const timeline = this.timelines[this.activePane];
    timeline.scroll += Number.isFinite(rows) ? rows * this.rowPx : Math.sign(rows) * timeline.lanesPx * 0.9;
    timeline.clampScroll();
    this.requestDraw();
  }

  zoomToSelection() {
    if (!this.selection) return;
    const [begin, end] = this.timesOf(this.selection);
    const margin = Math.max((end - begin) * 1.5, this.endNs * kClosestView);
    this.setView(begin - margin, end + margin);
  }

  timesOf({pane, kind, index}) {
    const trace = this.traceOf(pane);
    if (kind === "task") return [trace.visible[index], trace.done[index]];
    if (kind === "link") return [trace.critical[index].begin, trace.critical[index].end];
    if (kind === "op") return trace.ops[index].end >= trace.ops[index].begin ? [trace.ops[index].begin, trace.ops[index].end] : [0, trace.spanNs];
    const event = trace.events[index], times = [...event.signallers, ...event.waiters].filter((task) => trace.hasTimes(task));
    return times.length === 0 ? [0, trace.spanNs] : [Math.min(...times.map((task) => trace.ready[task])), Math.max(...times.map((task) => trace.done[task]))];
  }

  setCritical(isShown) {
    this.showCritical = isShown;
    byId("critical").setAttribute("aria-pressed", String(isShown));
    if (!isShown && this.selection?.kind === "link") this.select(null);
    for (const pane of this.shownPanes()) this.timelines[pane].clampScroll();
    this.showPanels();
    this.requestDraw();
    this.say(`Critical path ${isShown ? "on" : "off"}`);
  }

  // --- selection ---

  activate(pane) {
    if (this.activePane === pane) return;
    this.activePane = pane;
    this.showPanels();
  }

  otherPane() {
    if (this.shown[1] < 0) return;
    this.activate(1 - this.activePane);
    this.timelines[this.activePane].canvas.focus();
    this.say(`Trace ${this.traceOf(this.activePane).name}`);
  }

  // With `reveal` the view moves until the selection is in it.
  select(selection, reveal = false) {
    this.selection = selection;
    if (selection) {
      this.activePane = selection.pane;
      if (reveal && selection.kind !== "op") this.reveal(selection);
      this.say(summary(this.traceOf(selection.pane), selection).join(": "));
    }
    this.updateKept();
    this.showPanels();
    this.requestDraw();
  }

  reveal(selection) {
    const trace = this.traceOf(selection.pane), [begin, end] = this.timesOf(selection);
    const task = selection.kind === "task" ? selection.index : selection.kind === "link" ? trace.critical[selection.index].task :
      trace.events[selection.index].last;
    if (task >= 0 && trace.hasTimes(task)) this.timelines[selection.pane].showTask(task);
    const point = selection.kind === "event" && task >= 0 ? trace.done[task] : (begin + end) / 2;
    const length = this.view.end - this.view.begin;
    if (point < this.view.begin + 0.05 * length || point > this.view.end - 0.05 * length) this.setView(point - length / 2, point + length / 2);
  }

  selectedTask() {
    if (!this.selection) return -1;
    const {pane, kind, index} = this.selection;
    return kind === "task" ? index : kind === "link" ? this.traceOf(pane).critical[index].task : -1;
  }

  // Without a selection, the first task in view of the uppermost lane in view.
  firstTaskInView() {
    const timeline = this.timelines[this.activePane], [first, end] = timeline.rowsInView();
    for (let i = first; i < end; i++) {
      const row = timeline.trace.rows[i], at = firstAbove(row.done, this.view.begin);
      if (at < row.tasks.length) return row.tasks[at];
    }
    return -1;
  }

  selectTask(task) {
    if (task >= 0) this.select({pane: this.activePane, kind: "task", index: task}, true);
  }

  stepTask(step) {
    const trace = this.traceOf(this.activePane), task = this.selectedTask();
    if (task < 0 || !trace.hasTimes(task)) return this.selectTask(this.firstTaskInView());
    return this.selectTask(trace.rows[trace.rowOf(task)].tasks[trace.positionInRow[task] + step] ?? task);
  }

  stepLane(step) {
    const trace = this.traceOf(this.activePane), task = this.selectedTask();
    if (task < 0 || !trace.hasTimes(task)) return this.selectTask(this.firstTaskInView());
    for (let i = trace.rowOf(task) + step; i >= 0 && i < trace.rows.length; i += step) {
      const row = trace.rows[i];
      if (row.tasks.length > 0) return this.selectTask(row.tasks[Math.min(firstAbove(row.done, trace.ready[task]), row.tasks.length - 1)]);
    }
    return undefined;
  }

  followEvent(where) {
    const trace = this.traceOf(this.activePane), task = this.selectedTask();
    if (task < 0) return;
    const {before, after} = neighbours(trace, task);
    const next = (where === "before" ? before : after).find((other) => trace.hasTimes(other));
    if (next === undefined) this.say(where === "before" ? "It waits for no task" : "No task waits for it");
    else this.selectTask(next);
  }

  stepLink(step) {
    const trace = this.traceOf(this.activePane);
    if (trace.critical.length === 0) return;
    if (!this.showCritical) this.setCritical(true);
    const current = this.selectionIn(this.activePane, "link");
    const at = current < 0 ? (step > 0 ? 0 : trace.critical.length - 1) : Math.min(Math.max(current + step, 0), trace.critical.length - 1);
    this.select({pane: this.activePane, kind: "link", index: at}, true);
  }

  clear() {
    if (byId("search").value) {
      byId("search").value = "";
      this.search("");
    } else {
      this.select(null);
    }
  }

  setHover(timeline, target, clientX = 0, clientY = 0) {
    const isThing = target && target.index !== undefined;
    const tip = byId("tip");
    timeline.canvas.style.cursor = isThing ? "pointer" : target ? "default" : "grab";
    tip.hidden = !isThing;
    if (isThing) {
      const [title, text] = summary(timeline.trace, target);
      tip.replaceChildren(html("b", {}, title), html("span", {}, text));
      const box = tip.getBoundingClientRect();
      tip.style.left = `${Math.max(4, Math.min(clientX + 14, innerWidth - box.width - 8))}px`;
      tip.style.top = `${clientY + 18 + box.height > innerHeight ? clientY - box.height - 10 : clientY + 18}px`;
    }
    const before = this.hover;
    this.hover = isThing ? {pane: timeline.pane, kind: target.kind, index: target.index} : null;
    if (before?.kind !== this.hover?.kind || before?.index !== this.hover?.index) this.requestDraw();
  }

  setStretch(stretch) {
    this.stretch = stretch;
    for (const pane of [0, 1]) {
      const mark = byId(`stretch-${pane}`);
      mark.hidden = stretch?.pane !== pane;
      if (mark.hidden) continue;
      mark.style.left = `${stretch.from}px`;
      mark.style.width = `${stretch.to - stretch.from}px`;
    }
  }

  // --- what stands out ---

  search(query) {
    this.found.run(query);
    this.updateKept();
    this.requestDraw();
  }

  // What the search found, else the tasks of the selected op, else everything.
  updateKept() {
    const name = this.selection?.kind === "op" ? this.traceOf(this.selection.pane).ops[this.selection.index].name : null;
    for (const pane of [0, 1]) {
      this.kept[pane] = null;
      if (this.shown[pane] < 0 || (!this.found.query && name === null)) continue;
      const trace = this.traceOf(pane), kept = new Uint8Array(trace.numTasks);
      if (this.found.query) {
        for (const match of this.found.matches) if (match.pane === pane) kept[match.task] = 1;
      } else {
        for (let task = 0; task < trace.numTasks; task++) kept[task] = trace.ops[trace.op[task]].name === name ? 1 : 0;
      }
      this.kept[pane] = kept;
    }
  }

  // --- panels ---

  showTab(tab) {
    this.tab = tab;
    [...byId("tabs").children].forEach((button, i) => {
      button.setAttribute("aria-selected", String(i === tab));
      button.tabIndex = i === tab ? 0 : -1;
    });
    ["graph-panel", "ops-panel", "critical-panel"].forEach((id, i) => { byId(id).hidden = i !== tab; });
    this.showPanels();
  }

  showPanels() {
    // The element that has the focus is made anew: its successor gets it.
    const focused = document.activeElement?.closest?.("aside [data-select], aside [data-sort]");
    const key = focused && (focused.dataset.select ? `[data-select="${focused.dataset.select}"]` : `[data-sort="${focused.dataset.sort}"]`);
    const panel = focused?.closest("[role=tabpanel], #details");
    const pane = this.activePane, trace = this.traceOf(pane);
    // What takes room comes first: the op graph scrolls to its marked node last.
    byId("details").replaceChildren(...details(this));
    if (this.tab === 0) {
      byId("graph-title").textContent = `Ops of ${trace.name}`;
      const task = this.selection?.pane === pane ? this.selectedTask() : -1;
      byId("task-graph-box").hidden = task < 0;
      if (task >= 0) drawTaskGraph(byId("task-graph"), trace, pane, task, this);
      showOpGraph(byId("op-graph"), trace, pane, this);
    } else if (this.tab === 1) {
      byId("ops-panel").replaceChildren(opsTable(this), laneTimeTable(this));
    } else {
      byId("critical-panel").replaceChildren(...criticalPanel(this));
    }
    if (key) panel?.querySelector(key)?.focus({preventScroll: true});
  }

  sortTable(id, column) {
    const before = this.sorting[id];
    this.sorting[id] = {column, direction: before?.column === column ? -before.direction : 1};
    this.showPanels();
  }

  // --- theme, help, status ---

  setTheme(theme) {
    this.theme = theme;
    document.documentElement.dataset.theme = theme;
    const style = getComputedStyle(document.documentElement);
    this.colours = {};
    for (const name of kColourNames) {
      this.colours[name.replace(/-(.)/, (_, letter) => letter.toUpperCase())] = style.getPropertyValue(`--${name}`).trim();
    }
    byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
    byId("theme").setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colours`);
  }

  switchTheme() {
    this.setTheme(this.theme === "dark" ? "light" : "dark");
    this.showFacts();
    this.showPanels();
    this.requestDraw();
  }

  // The looks for the current theme and screen.
  paints() {
    const ratio = window.devicePixelRatio || 1;
    if (!this.currentPaints || this.currentPaints.theme !== this.theme || this.currentPaints.ratio !== ratio) {
      this.currentPaints = new Paints(this.theme, ratio, this.colours, this.styles);
    }
    return this.currentPaints;
  }

  isHelpOpen() { return byId("help").open; }
  showHelp() { byId("help").showModal(); }
  say(text) { byId("status").textContent = text; }

  // --- drawing ---

  requestDraw() {
    if (this.drawRequest === 0) this.drawRequest = requestAnimationFrame(() => this.draw());
  }

  draw() {
    if (this.drawRequest !== 0) cancelAnimationFrame(this.drawRequest);
    this.drawRequest = 0;
    const begin = performance.now();
    for (const pane of this.shownPanes()) {
      const timeline = this.timelines[pane];
      // A window on another screen may keep its size while its pixels change theirs.
      if (timeline.ratio !== (window.devicePixelRatio || 1)) timeline.resize();
      timeline.draw();
    }
    this.lastDrawMs = performance.now() - begin;
    byId("draw-time").textContent = `${formatNs(this.view.end - this.view.begin)} in view, drawn in ${this.lastDrawMs.toFixed(1)} ms`;
  }
}
