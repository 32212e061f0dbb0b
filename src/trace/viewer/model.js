"use strict";

// The data of the report: read once, checked, and turned into arrays that drawing can walk. Nothing here knows the page.
// The format is described in README.md of this folder.

const kFormatVersion = 1;
const kLinkKinds = ["compute", "weights", "wait", "queue", "launch"];

// What is wrong with the data, in a sentence for the reader of the page.
class ReportError extends Error {}

function expect(condition, where, what) {
  if (!condition) throw new ReportError(`${where}: ${what}`);
}

function expectArray(value, where) {
  expect(Array.isArray(value), where, "an array is expected");
  return value;
}

function expectText(value, where) {
  expect(typeof value === "string", where, "text is expected");
  return value;
}

// `i` is the place in a column: its text is made only where something is wrong.
function expectTime(value, where, i = -1) {
  if (Number.isFinite(value) && value >= 0) return value;
  throw new ReportError(`${where}${i < 0 ? "" : `[${i}]`}: a number of nanoseconds is expected, not below 0`);
}

function expectIndex(value, size, where, lowest = 0, i = -1) {
  if (Number.isInteger(value) && value >= lowest && value < size) return value;
  throw new ReportError(`${where}${i < 0 ? "" : `[${i}]`}: ${JSON.stringify(value)} is no index below ${size}`);
}

// The first position whose value is larger than the limit; values never decrease.
function firstAbove(values, limit) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

// For each of num_items items the groups that hold it, as slices of one array: groups(item) is a view, not a copy.
class Membership {
  constructor(numItems, lists) {
    this.begin = new Int32Array(numItems + 1);
    for (const list of lists) for (const item of list) this.begin[item + 1]++;
    for (let i = 0; i < numItems; i++) this.begin[i + 1] += this.begin[i];
    this.group = new Int32Array(this.begin[numItems]);
    const next = this.begin.slice(0, numItems);
    lists.forEach((list, group) => { for (const item of list) this.group[next[item]++] = group; });
  }
  groups(item) { return this.group.subarray(this.begin[item], this.begin[item + 1]); }
}

// Tasks of a lane of which no two work at the same time, in order; `done` increases too, so both ends can be searched.
class Row {
  constructor(tasks, trace) {
    this.tasks = Int32Array.from(tasks);
    const column = (values, Kind) => Kind.from(this.tasks, (task) => values[task]);
    this.ready = column(trace.ready, Float64Array);
    this.done = column(trace.done, Float64Array);
    this.visible = column(trace.visible, Float64Array);
    this.op = column(trace.op, Int32Array);
    // The earliest `visible` from here on: waiting parts may overlap, and this says when no later one can be in view.
    this.visibleFrom = this.visible.slice();
    for (let i = this.visibleFrom.length - 2; i >= 0; i--) {
      this.visibleFrom[i] = Math.min(this.visibleFrom[i], this.visibleFrom[i + 1]);
    }
  }
}

class Trace {
  constructor(data, where) {
    expect(data !== null && typeof data === "object", where, "an object is expected");
    for (const name of ["name", "backend", "machine", "graph"]) this[name] = expectText(data[name], `${where}.${name}`);
    where = `trace '${this.name}'`;
    expect(data.shapes !== null && typeof data.shapes === "object", `${where}: shapes`, "an object is expected");
    this.shapes = Object.entries(data.shapes);
    expect(data.clock !== null && typeof data.clock === "object", `${where}: clock`, "an object is expected");
    this.clock = {domain: expectText(data.clock.domain, `${where}: clock.domain`),
                  resolutionNs: expectTime(data.clock.resolution_ns, `${where}: clock.resolution_ns`)};
    this.spanNs = expectTime(data.span_ns, `${where}: span_ns`);
    this.lost = expectTime(data.lost, `${where}: lost`);
    this.laneNames = expectArray(data.lanes, `${where}: lanes`).map((name, i) => expectText(name, `${where}: lanes[${i}]`));
    this.ops = expectArray(data.ops, `${where}: ops`).map((op, i) => {
      expect(op !== null && typeof op === "object", `${where}: ops[${i}]`, "an object is expected");
      return {name: expectText(op.name, `${where}: ops[${i}].name`), kind: expectText(op.kind, `${where}: ops[${i}].kind`)};
    });
    this.readTasks(data.tasks, where);
    this.readEvents(data.events, where);
    this.readCritical(data.critical, where);
    this.idle = expectArray(data.idle, `${where}: idle`).map((part, i) => {
      expect(part !== null && typeof part === "object", `${where}: idle[${i}]`, "an object is expected");
      return {reason: expectText(part.reason, `${where}: idle[${i}].reason`), ns: expectTime(part.ns, `${where}: idle[${i}].ns`)};
    });
    this.makeRows();
    this.sumOps();
    this.linkOps();
    this.searchTexts = null;
  }

  readTasks(tasks, where) {
    where = `${where}: tasks`;
    expect(tasks !== null && typeof tasks === "object", where, "an object of columns is expected");
    const numTasks = expectArray(tasks.lane, `${where}.lane`).length;
    const column = (name) => {
      const values = expectArray(tasks[name], `${where}.${name}`);
      expect(values.length === numTasks, `${where}.${name}`, `${values.length} values, but lane has ${numTasks}`);
      return values;
    };
    const times = (name) => Float64Array.from(column(name), (ns, i) => expectTime(ns, `${where}.${name}`, i));
    this.numTasks = numTasks;
    this.lane = Int32Array.from(tasks.lane, (lane, i) => expectIndex(lane, this.laneNames.length, `${where}.lane`, -1, i));
    this.op = Int32Array.from(column("op"), (op, i) => expectIndex(op, this.ops.length, `${where}.op`, 0, i));
    this.tile = column("tile").map((tile) => expectText(tile, `${where}.tile`));
    this.visible = times("visible");
    this.ready = times("ready");
    this.done = times("done");
    const slack = expectArray(tasks.slack, `${where}.slack`);
    this.slack = slack.length === 0 ? null : Float64Array.from(column("slack"), (ns, i) => {
      if (!Number.isFinite(ns)) throw new ReportError(`${where}.slack[${i}]: a number is expected`);
      return ns;
    });
    for (let i = 0; i < numTasks; i++) {
      if (this.visible[i] <= this.ready[i] && this.ready[i] <= this.done[i] && this.done[i] <= this.spanNs) continue;
      throw new ReportError(`${where}, number ${i}: visible <= ready <= done <= span_ns does not hold`);
    }
  }

  readEvents(events, where) {
    this.events = expectArray(events, `${where}: events`).map((event, i) => {
      const here = `${where}: events[${i}]`;
      expect(event !== null && typeof event === "object", here, "an object is expected");
      const list = (name) => Int32Array.from(expectArray(event[name], `${here}.${name}`),
                                             (task) => expectIndex(task, this.numTasks, `${here}.${name}`));
      return {name: expectText(event.name, `${here}.name`), signallers: list("signallers"), waiters: list("waiters")};
    });
    this.waits = new Membership(this.numTasks, this.events.map((event) => event.waiters));
    this.signals = new Membership(this.numTasks, this.events.map((event) => event.signallers));
    for (const event of this.events) {
      event.last = -1;
      for (const task of event.signallers) {
        if (this.hasTimes(task) && (event.last < 0 || this.done[task] > this.done[event.last])) event.last = task;
      }
      event.reached = event.last < 0 ? -1 : this.done[event.last];
    }
    const order = [...this.events.keys()].filter((i) => this.events[i].last >= 0);
    order.sort((a, b) => this.events[a].reached - this.events[b].reached);
    this.eventOrder = Int32Array.from(order);
    this.eventTimes = Float64Array.from(order, (i) => this.events[i].reached);
  }

  readCritical(links, where) {
    this.critical = expectArray(links, `${where}: critical`).map((link, i) => {
      const here = `${where}: critical[${i}]`;
      expect(link !== null && typeof link === "object", here, "an object is expected");
      const begin = expectTime(link.begin, `${here}.begin`), end = expectTime(link.end, `${here}.end`);
      expect(begin <= end, here, "ends before it begins");
      return {task: expectIndex(link.task, this.numTasks, `${here}.task`), kind: expectText(link.kind, `${here}.kind`), begin, end,
              event: expectIndex(link.event, this.events.length, `${here}.event`, -1)};
    });
    this.critical.sort((a, b) => a.begin - b.begin || a.end - b.end);
    this.criticalEnds = Float64Array.from(this.critical, (link) => link.end);
    this.onCritical = new Uint8Array(this.numTasks);
    this.criticalByKind = new Map();
    for (const link of this.critical) {
      this.onCritical[link.task] = 1;
      this.criticalByKind.set(link.kind, (this.criticalByKind.get(link.kind) ?? 0) + link.end - link.begin);
    }
  }

  hasTimes(task) { return this.lane[task] >= 0; }

  // Gives each lane its rows, and each task its row.
  makeRows() {
    const order = [...Array(this.numTasks).keys()].filter((task) => this.hasTimes(task));
    order.sort((a, b) => this.ready[a] - this.ready[b] || this.done[a] - this.done[b] || a - b);
    const lanes = this.laneNames.map(() => []);  // for each lane, for each row: {tasks, end}
    this.rowInLane = new Int32Array(this.numTasks);
    // Stretches in which a lane works, whatever the number of its tasks that do.
    this.work = [];
    const last = lanes.map(() => null);
    for (const task of order) {
      const stretch = last[this.lane[task]];
      if (stretch !== null && this.ready[task] <= stretch.end) stretch.end = Math.max(stretch.end, this.done[task]);
      else this.work.push(last[this.lane[task]] = {begin: this.ready[task], end: this.done[task]});
      const rows = lanes[this.lane[task]];
      let row = rows.findIndex((candidate) => candidate.end <= this.ready[task]);
      if (row < 0) row = rows.push({tasks: [], end: 0}) - 1;
      rows[row].tasks.push(task);
      rows[row].end = this.done[task];
      this.rowInLane[task] = row;
    }
    this.rows = [];
    this.firstRow = new Int32Array(lanes.length + 1);
    this.laneOfRow = [];
    lanes.forEach((rows, lane) => {
      this.firstRow[lane] = this.rows.length;
      for (const row of rows.length > 0 ? rows : [{tasks: []}]) {
        this.rows.push(new Row(row.tasks, this));
        this.laneOfRow.push(lane);
      }
    });
    this.firstRow[lanes.length] = this.rows.length;
    this.positionInRow = new Int32Array(this.numTasks);
    for (const row of this.rows) row.tasks.forEach((task, position) => { this.positionInRow[task] = position; });
  }

  rowOf(task) { return this.firstRow[this.lane[task]] + this.rowInLane[task]; }

  sumOps() {
    for (const op of this.ops) Object.assign(op, {tasks: 0, busy: 0, wait: 0, begin: Infinity, end: -Infinity, critical: 0});
    for (let task = 0; task < this.numTasks; task++) {
      const op = this.ops[this.op[task]];
      op.tasks++;
      if (!this.hasTimes(task)) continue;
      op.busy += this.done[task] - this.ready[task];
      op.wait += this.ready[task] - this.visible[task];
      op.begin = Math.min(op.begin, this.ready[task]);
      op.end = Math.max(op.end, this.done[task]);
    }
    for (const link of this.critical) this.ops[this.op[link.task]].critical += link.end - link.begin;
    this.busy = this.ops.reduce((sum, op) => sum + op.busy, 0);
    this.working = this.work.reduce((sum, stretch) => sum + stretch.end - stretch.begin, 0);
  }

  // Edges between ops, from the events between their tasks.
  linkOps() {
    const edges = new Map();
    for (const event of this.events) {
      const count = (tasks) => {
        const counts = new Map();
        for (const task of tasks) counts.set(this.op[task], (counts.get(this.op[task]) ?? 0) + 1);
        return counts;
      };
      const from = count(event.signallers), to = count(event.waiters);
      for (const [producer, numSignallers] of from) {
        for (const [consumer, numWaiters] of to) {
          const key = producer * this.ops.length + consumer;
          if (!edges.has(key)) edges.set(key, {from: producer, to: consumer, events: 0, pairs: 0});
          const edge = edges.get(key);
          edge.events++;
          edge.pairs += numSignallers * numWaiters;
        }
      }
    }
    this.opEdges = [...edges.values()];
  }

  // How many lanes work, on average, in each of numBins equal parts of [0, endNs).
  busyCurve(numBins, endNs) {
    const curve = new Float64Array(numBins);
    const scale = numBins / endNs;
    for (const stretch of this.work) {
      const begin = stretch.begin * scale, end = stretch.end * scale;
      const first = Math.min(Math.floor(begin), numBins - 1), last = Math.min(Math.floor(end), numBins - 1);
      if (first === last) {
        curve[first] += end - begin;
        continue;
      }
      curve[first] += first + 1 - begin;
      for (let bin = first + 1; bin < last; bin++) curve[bin] += 1;
      curve[last] += end - last;
    }
    return curve;
  }

  title(task) {
    const tile = this.tile[task];
    return this.ops[this.op[task]].name + (tile ? ` ${tile}` : "");
  }

  // Tasks that have every word of the query in their number, op, kind, tile or lane; in the order of time.
  find(query) {
    const words = query.toLowerCase().split(/\s+/).filter((word) => word);
    if (words.length === 0) return [];
    if (this.searchTexts === null) {
      const ops = this.ops.map((op) => `${op.name} ${op.kind}`.toLowerCase());
      const lanes = this.laneNames.map((name) => name.toLowerCase());
      this.searchTexts = this.tile.map((tile, task) =>
        ` ${ops[this.op[task]]} ${tile.toLowerCase()} ${lanes[this.lane[task]] ?? "no record"} #${task} `);
    }
    const found = [];
    for (let task = 0; task < this.numTasks; task++) {
      const text = this.searchTexts[task];
      // A number is looked for as a whole: #1 is not #10.
      if (words.every((word) => text.includes(word.startsWith("#") ? `${word} ` : word))) found.push(task);
    }
    return found.sort((a, b) => this.ready[a] - this.ready[b] || a - b);
  }
}

// The traces in the text, or a ReportError.
function readReport(text) {
  text = text.trim();
  // Without data, what stands there is the comment that marks the place.
  if (text === "" || text.startsWith("/*")) throw new ReportError("This page holds no trace: it is the empty viewer.");
  let data;
  try {
    data = JSON.parse(text);
  } catch (error) {
    throw new ReportError(`The data of this page are damaged: ${error.message}`);
  }
  expect(data !== null && typeof data === "object" && "version" in data, "The data of this page", "an object with a version is expected");
  if (data.version !== kFormatVersion) {
    throw new ReportError(`The data of this page have version ${JSON.stringify(data.version)}; this viewer reads version ${kFormatVersion}.`);
  }
  const traces = expectArray(data.traces, "traces").map((trace, i) => new Trace(trace, `traces[${i}]`));
  expect(traces.length > 0, "traces", "there is none");
  return traces;
}
