"use strict";

// Pointer and keyboard. Everything that a pointer can do has a key; the help lists what stands in kKeys.

const kZoomStep = 1.5;
const kPanShare = 0.15;
const kDragSlackPx = 4;

// Keys of the page; those with `onlyTimeline` work while a timeline has the focus, so that others keep their usual meaning.
const kKeys = [
  {keys: ["ArrowLeft", "a"], shown: "← or a", says: "earlier", onlyTimeline: true, run: (app) => app.pan(-kPanShare)},
  {keys: ["ArrowRight", "d"], shown: "→ or d", says: "later", onlyTimeline: true, run: (app) => app.pan(kPanShare)},
  {keys: ["ArrowUp"], shown: "↑", says: "lanes above", onlyTimeline: true, run: (app) => app.scrollLanes(-3)},
  {keys: ["ArrowDown"], shown: "↓", says: "lanes below", onlyTimeline: true, run: (app) => app.scrollLanes(3)},
  {keys: ["PageUp"], shown: "Page up", says: "a page of lanes above", onlyTimeline: true, run: (app) => app.scrollLanes(-Infinity)},
  {keys: ["PageDown"], shown: "Page down", says: "a page of lanes below", onlyTimeline: true, run: (app) => app.scrollLanes(Infinity)},
  {keys: ["+", "=", "w"], shown: "+ or w", says: "zoom in", run: (app) => app.zoom(kZoomStep)},
  {keys: ["-", "s"], shown: "− or s", says: "zoom out", run: (app) => app.zoom(1 / kZoomStep)},
  {keys: ["0", "Home"], shown: "0 or Home", says: "the whole run", run: (app) => app.fit()},
  {keys: ["f"], shown: "f", says: "zoom to the selection", run: (app) => app.zoomToSelection()},
  {keys: ["]"], shown: "]", says: "higher lanes", run: (app) => app.setRowPx(app.rowPx * 1.25)},
  {keys: ["["], shown: "[", says: "lower lanes", run: (app) => app.setRowPx(app.rowPx / 1.25)},
  {keys: ["."], shown: ".", says: "next task of the lane", run: (app) => app.stepTask(1)},
  {keys: [","], shown: ",", says: "task before it in the lane", run: (app) => app.stepTask(-1)},
  {keys: [">"], shown: ">", says: "nearest task of the lane below", run: (app) => app.stepLane(1)},
  {keys: ["<"], shown: "<", says: "nearest task of the lane above", run: (app) => app.stepLane(-1)},
  {keys: ["b"], shown: "b", says: "back to the task whose signal came last", run: (app) => app.followEvent("before")},
  {keys: ["g"], shown: "g", says: "go on to the first task that it let go", run: (app) => app.followEvent("after")},
  {keys: ["c"], shown: "c", says: "critical path on and off", run: (app) => app.setCritical(!app.showCritical)},
  {keys: ["n"], shown: "n", says: "next link of the critical path", run: (app) => app.stepLink(1)},
  {keys: ["p"], shown: "p", says: "link before it", run: (app) => app.stepLink(-1)},
  {keys: ["/"], shown: "/", says: "search; Enter and Shift+Enter walk through what is found", run: (app) => app.found.focus()},
  {keys: ["1", "2", "3"], shown: "1 2 3", says: "graph, ops, critical path", run: (app, key) => app.showTab(Number(key) - 1)},
  {keys: ["x"], shown: "x", says: "the other trace, where two are shown", run: (app) => app.otherPane()},
  {keys: ["t"], shown: "t", says: "light or dark", run: (app) => app.switchTheme()},
  {keys: ["Escape"], shown: "Esc", says: "clear the search, then the selection", run: (app) => app.clear()},
  {keys: ["?"], shown: "?", says: "this help", run: (app) => app.showHelp()},
];

const kPointerHelp = [
  ["wheel", "zoom at the pointer"],
  ["Shift + wheel", "lanes above and below"],
  ["wheel sideways, or drag", "earlier and later; dragging moves lanes too"],
  ["Shift + drag", "zoom to the stretch"],
  ["double click", "zoom to the task"],
  ["click", "select a task, event, link or op"],
  ["drag in the band on top", "move the view"],
];

function isTextField(element) {
  return element instanceof HTMLInputElement || element instanceof HTMLSelectElement || element instanceof HTMLTextAreaElement;
}

function handleKey(event, app) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (app.isHelpOpen() || isTextField(event.target)) return;
  const isTimeline = event.target instanceof HTMLCanvasElement;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const entry = kKeys.find((candidate) => candidate.keys.includes(key));
  if (!entry) return;
  if (entry.onlyTimeline && !isTimeline && event.target !== document.body) return;
  event.preventDefault();
  entry.run(app, key);
}

// Pointer and wheel on one timeline.
function listenToTimeline(timeline, app) {
  const {canvas} = timeline;
  let drag = null;  // {kind, x, y, begin, end, scroll, moved}
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : event.deltaMode === WheelEvent.DOM_DELTA_PAGE ? 200 : 1;
    const [x] = at(event), sideways = event.deltaX * unit, upright = event.deltaY * unit;
    if (event.shiftKey) {
      timeline.scroll += sideways || upright;
      timeline.clampScroll();
      app.requestDraw();
    } else if (Math.abs(sideways) > Math.abs(upright)) {
      app.pan(sideways / timeline.plotPx);
    } else {
      app.zoom(2 ** (-upright / 300), timeline.time(Math.max(timeline.left, x)));
    }
  }, {passive: false});

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const [x, y] = at(event), target = timeline.hit(x, y);
    app.activate(timeline.pane);
    drag = {kind: target?.kind === "overview" || target?.kind === "scrollbar" ? target.kind : event.shiftKey ? "stretch" : "pan",
            x, y, ...app.view, scroll: timeline.scroll, moved: false};
    canvas.setPointerCapture(event.pointerId);
    if (drag.kind === "overview") moveOverview(timeline, app, x);
  });

  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (!drag) {
      app.setHover(timeline, timeline.hit(x, y), event.clientX, event.clientY);
      return;
    }
    if (!drag.moved && Math.hypot(x - drag.x, y - drag.y) < kDragSlackPx) return;
    drag.moved = true;
    app.setHover(timeline, null);
    dragTo(timeline, app, drag, x, y);
  });

  const finish = (event) => {
    if (!drag) return;
    const [x, y] = at(event), done = drag;
    drag = null;
    app.setStretch(null);
    if (done.kind === "stretch" && done.moved) {
      const ends = [timeline.time(done.x), timeline.time(x)];
      app.setView(Math.min(...ends), Math.max(...ends));
    } else if (!done.moved && done.kind !== "overview" && done.kind !== "scrollbar" && event.type === "pointerup") {
      const target = timeline.hit(x, y);
      app.select(target && {pane: timeline.pane, kind: target.kind, index: target.index});
    }
  };
  canvas.addEventListener("pointerup", finish);
  canvas.addEventListener("pointercancel", finish);
  canvas.addEventListener("pointerleave", () => app.setHover(timeline, null));
  canvas.addEventListener("dblclick", () => app.zoomToSelection());
  canvas.addEventListener("focus", () => app.activate(timeline.pane));
}

function moveOverview(timeline, app, x) {
  const half = (app.view.end - app.view.begin) / 2, middle = timeline.overviewTime(x);
  app.setView(middle - half, middle + half);
}

function dragTo(timeline, app, drag, x, y) {
  if (drag.kind === "overview") {
    moveOverview(timeline, app, x);
  } else if (drag.kind === "scrollbar") {
    timeline.scroll = drag.scroll + (y - drag.y) * (timeline.maxScroll + timeline.lanesPx) / timeline.lanesPx;
    timeline.clampScroll();
    app.requestDraw();
  } else if (drag.kind === "stretch") {
    app.setStretch({pane: timeline.pane, from: Math.min(drag.x, x), to: Math.max(drag.x, x)});
  } else {
    const moved = (x - drag.x) / timeline.plotPx * (drag.end - drag.begin);
    timeline.scroll = drag.scroll - (y - drag.y);
    timeline.clampScroll();
    app.setView(drag.begin - moved, drag.end - moved);
  }
}
