"use strict";

// What is searched for in the traces that are shown, and which of the tasks found is the current one.

class Search {
  constructor(app) {
    this.app = app;
    this.query = "";
    this.matches = [];  // {pane, task}; in the order of time within a trace
    this.current = -1;
  }

  run(query) {
    this.query = query.trim();
    this.matches = [];
    this.current = -1;
    if (this.query) {
      for (const pane of this.app.shownPanes()) {
        for (const task of this.app.traceOf(pane).find(this.query)) this.matches.push({pane, task});
      }
    }
    this.showCount();
  }

  showCount() {
    const count = this.matches.length;
    byId("found").textContent = !this.query ? "" : count === 0 ? "no task" :
      this.current < 0 ? plural(count, "task") : `${formatCount(this.current + 1)} of ${formatCount(count)}`;
  }

  // Selects the next task found, or with -1 the one before; from the last on it begins anew.
  step(step) {
    const count = this.matches.length;
    if (count === 0) return;
    this.current = this.current < 0 && step < 0 ? count - 1 : (this.current + step + count) % count;
    const {pane, task} = this.matches[this.current];
    this.app.select({pane, kind: "task", index: task}, this.app.traceOf(pane).hasTimes(task));
    this.showCount();
  }

  focus() {
    byId("search").focus();
    byId("search").select();
  }
}
