"use strict";

// Reads the data, connects the page's elements with the state, and draws for the first time.

function showMessage(text) {
  byId("report").hidden = true;
  byId("toolbar").hidden = true;
  byId("message").hidden = false;
  byId("message-text").textContent = text;
}

function fillHelp() {
  const row = (name, says) => html("tr", {}, html("th", {scope: "row"}, html("kbd", {}, name)), html("td", {}, says));
  byId("help-keys").replaceChildren(...kKeys.map((entry) => row(entry.shown, entry.says)));
  byId("help-pointer").replaceChildren(...kPointerHelp.map(([name, says]) => row(name, says)));
}

function listenToPage(app) {
  document.addEventListener("keydown", (event) => {
    // What is drawn as a button is one by keyboard too.
    const node = event.target.closest?.("svg [data-select]");
    if (node && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      node.dispatchEvent(new MouseEvent("click", {bubbles: true}));
    } else {
      handleKey(event, app);
    }
  });
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-select], [data-sort]");
    if (!target) return;
    if (target.dataset.sort) {
      const [id, column] = target.dataset.sort.split(" ");
      app.sortTable(id, Number(column));
      return;
    }
    const [pane, kind, index] = target.dataset.select.split(" ");
    const isAgain = kind === "op" && app.selectionIn(Number(pane), "op") === Number(index);
    app.select(isAgain ? null : {pane: Number(pane), kind, index: Number(index)}, true);
  });
  const on = (id, run) => byId(id).addEventListener("click", run);
  on("zoom-in", () => app.zoom(kZoomStep));
  on("zoom-out", () => app.zoom(1 / kZoomStep));
  on("fit", () => app.fit());
  on("critical", () => app.setCritical(!app.showCritical));
  on("theme", () => app.switchTheme());
  on("show-help", () => app.showHelp());
  on("close-help", () => byId("help").close());
  byId("help").addEventListener("click", (event) => { if (event.target === byId("help")) byId("help").close(); });
  byId("search").addEventListener("input", (event) => app.search(event.target.value));
  byId("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") app.found.step(event.shiftKey ? -1 : 1);
    if (event.key !== "Escape") return;
    app.clear();
    app.timelines[app.activePane].canvas.focus();
  });
  [...byId("tabs").children].forEach((button, i) => button.addEventListener("click", () => app.showTab(i)));
  byId("tabs").addEventListener("keydown", (event) => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step) return;
    event.preventDefault();
    app.showTab((app.tab + step + 3) % 3);
    byId("tabs").children[app.tab].focus();
  });
  const pick = () => app.showTraces(Number(byId("pick-0").value), Number(byId("pick-1").value));
  byId("pick-0").addEventListener("change", pick);
  byId("pick-1").addEventListener("change", pick);
  new ResizeObserver(() => app.resize()).observe(byId("timelines"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
    if ((app.theme === "dark") !== event.matches) app.switchTheme();
  });
}

function start() {
  let traces;
  fillHelp();
  try {
    traces = readReport(byId("trace-data").textContent);
  } catch (error) {
    showMessage(error instanceof ReportError ? error.message : `This page cannot show its data: ${error.message}`);
    if (!(error instanceof ReportError)) throw error;
    return;
  }
  // The text is read; a large one need not stay.
  byId("trace-data").textContent = "";
  const app = new App(traces);
  window.megartpReport = app;  // for tests, and for whoever opens the console
  const options = (traces) => traces.map((trace, i) => html("option", {value: i}, trace.name));
  byId("pick-0").replaceChildren(...options(traces));
  byId("pick-1").replaceChildren(html("option", {value: -1}, "none"), ...options(traces));
  byId("picks").hidden = traces.length < 2;
  document.title = `${traces.map((trace) => trace.name).join(", ")} – MegaRTP trace`;
  listenToPage(app);
  for (const timeline of app.timelines) listenToTimeline(timeline, app);
  app.showTraces(...app.shown);
  app.showTab(0);
  app.draw();
}

start();
