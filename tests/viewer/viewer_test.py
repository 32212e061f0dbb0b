#!/usr/bin/env python3
"""The HTML report, driven in a headless Chromium with made-up traces of 732 and of 100,000 tasks.

usage: viewer_test.py VIEWER_HTML [--screenshots FOLDER] [unittest arguments...]

Exit status 77: no Chromium. With --screenshots, pictures in light and dark go to the folder.
"""

import copy
import json
import os
import sys
import tempfile
import unittest

from devtools import Browser, find_browser
from trace_data import LAYER_TASKS, OPS, make_report, make_trace

MARKER = "/*MEGARTP_TRACE_DATA*/"
LARGE = 100_000
MAX_REDRAW_MS = 50
APP = "window.megartpReport"


class Viewer:
    """What the tests share: the page, traces, one browser."""
    page = ""
    screenshots = None
    folder = None
    browser = None
    mega = make_trace("mega", lost=2)
    cmp = make_trace("cmp", seed=2, speed=1.3, lanes=20, backend="cmp")
    large = None

    @classmethod
    def write(cls, name, report):
        """A page on disk with this report in it; text goes in as it is."""
        text = report if isinstance(report, str) else json.dumps(report, separators=(",", ":")).replace("<", "\\u003c")
        path = os.path.join(cls.folder.name, name + ".html")
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as f:
                f.write(cls.page.replace(MARKER, text))
        return path


class PageTest(unittest.TestCase):
    def setUp(self):
        self.browser = Viewer.browser
        self.browser.complaints.clear()
        self.browser.resize(1400, 860)
        self.browser.prefer("light")

    def tearDown(self):
        self.assertEqual(self.browser.complaints, [])

    def open(self, name, *traces):
        self.browser.open(Viewer.write(name, make_report(*traces)))
        self.browser.frame()

    def open_mega(self):
        self.open("mega", Viewer.mega)

    def open_both(self):
        self.open("both", Viewer.mega, Viewer.cmp)

    def open_large(self):
        if Viewer.large is None:
            Viewer.large = make_trace("large", LARGE, lanes=148)
        self.open("large", Viewer.large)

    def run_js(self, expression):
        return self.browser.evaluate(expression)

    def app(self, expression):
        return self.run_js(f"{APP}.{expression}")

    def text(self, element):
        return self.run_js(f"document.getElementById('{element}').textContent")

    def view(self):
        view = self.app("view")
        return view["begin"], view["end"]

    def keys(self, *keys):
        for key in keys:
            self.browser.key(key, shift=key in ("?", "<", ">", "+"))
        self.browser.frame()

    def place_of_task(self, task, pane=0, part="work"):
        """Where the middle of a task is drawn, in pixels of the window."""
        return self.run_js(f"""(() => {{
          const timeline = {APP}.timelines[{pane}], trace = timeline.trace, box = timeline.canvas.getBoundingClientRect();
          const row = trace.rowOf({task}), waits = {json.dumps(part == "wait")};
          const time = waits ? (trace.visible[{task}] + trace.ready[{task}]) / 2 : (trace.ready[{task}] + trace.done[{task}]) / 2;
          const y = waits ? timeline.rowTop(row + 1) - timeline.waitPx() / 2 : timeline.barTop(row) + timeline.barPx() / 2;
          return [box.left + timeline.x(time), box.top + y];
        }})()""")

    def canvas_sum(self, pane=0):
        """A number that changes when the drawing does."""
        return self.run_js(f"""(() => {{
          const canvas = document.getElementById('timeline-{pane}');
          const data = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
          let sum = 0;
          for (let i = 0; i < data.length; i++) sum = (Math.imul(sum, 31) + data[i]) | 0;
          return sum;
        }})()""")

    def colour_at(self, x, y, pane=0):
        return self.run_js(f"""(() => {{
          const canvas = document.getElementById('timeline-{pane}'), box = canvas.getBoundingClientRect();
          const at = canvas.getContext('2d').getImageData({x} - box.left, {y} - box.top, 1, 1).data;
          return '#' + [...at].slice(0, 3).map((v) => v.toString(16).padStart(2, '0')).join('');
        }})()""")


class Loading(PageTest):
    def test_says_what_the_trace_is(self):
        self.open_mega()
        facts = self.text("facts-0")
        for word in ("mega", "NVIDIA H200", "glm52-attention-pre", "M = 16, KV = 8192", "732 tasks on 16 lanes", "globaltimer, 32 ns",
                     "2 records lost"):
            self.assertIn(word, facts)
        bar = self.run_js("document.querySelector('#facts-0 .idle-bar').getAttribute('aria-label')")
        for part in Viewer.mega["idle"]:
            self.assertRegex(bar, part["reason"] + r" \d+\.\d %")
        self.assertFalse(self.run_js("document.getElementById('report').hidden"))
        self.assertEqual(self.view(), (0, Viewer.mega["span_ns"]))

    def test_bars_stand_where_their_tasks_are(self):
        self.open_mega()
        self.run_js(f"{APP}.setCritical(false)")
        tasks = Viewer.mega["tasks"]
        for task in (0, 100, 300, 500, 731):
            # Near the bar's left end, above its label: with textures off there, the op's own colour.
            self.app(f"setView({tasks['ready'][task] - 200}, {tasks['done'][task] + 200})")
            self.app(f"timelines[0].showTask({task})")
            self.browser.frame()
            x, y = self.place_of_task(task)
            want = self.run_js(f"{APP}.styles.of({APP}.traces[0].ops[{tasks['op'][task]}], 'light').colour")
            shown = {self.colour_at(x + dx, y + dy) for dx in range(0, 8) for dy in range(-8, 9, 2)}
            self.assertIn(want, shown, f"task {task}")
            self.app(f"setView({tasks['done'][task] + 20}, {tasks['done'][task] + 120})")  # behind it, before the next one
            self.browser.frame()
            x0 = self.run_js(f"{APP}.timelines[0].x({tasks['done'][task] + 70})")
            box = self.run_js("document.getElementById('timeline-0').getBoundingClientRect().left")
            self.assertNotEqual(self.colour_at(box + x0, y), want, f"behind task {task}")

    def test_text_of_the_data_stays_text(self):
        trace = copy.deepcopy(Viewer.mega)
        trace["name"] = "</script><b id=evil>&amp;"
        trace["tasks"]["tile"][5] = "<img src=x onerror=alert(1)>"
        self.open("evil", trace)
        self.app("select({pane: 0, kind: 'task', index: 5}, true)")
        self.assertIn("<img src=x", self.text("details"))
        self.assertIn("</script><b id=evil>&amp;", self.text("facts-0"))
        self.assertEqual(self.run_js("document.querySelectorAll('#evil, img').length"), 0)

    def test_overlapping_tasks_of_a_lane_get_rows_of_their_own(self):
        trace = copy.deepcopy(Viewer.mega)
        trace["lanes"] = ["SM 0", "SM 1", "empty"]
        trace["tasks"]["lane"] = [lane % 2 if lane >= 0 else lane for lane in trace["tasks"]["lane"]]
        self.open("overlap", trace)
        rows = self.run_js(f"[...{APP}.traces[0].firstRow]")
        self.assertGreaterEqual(rows[1], 8)
        self.assertEqual(rows[3] - rows[2], 1)
        self.assertTrue(self.run_js(f"""{APP}.traces[0].rows.every((row) =>
            row.tasks.every((_, i) => i === 0 || row.ready[i] >= row.done[i - 1]))"""))

    def test_smallest_trace(self):
        trace = {"name": "nothing", "backend": "null", "machine": "", "graph": "", "shapes": {}, "clock": {"domain": "none", "resolution_ns": 1},
                 "span_ns": 0, "lost": 0, "lanes": [], "ops": [], "events": [], "critical": [], "idle": [],
                 "tasks": {name: [] for name in ("lane", "op", "tile", "visible", "ready", "done", "slack")}}
        self.open("nothing", trace)
        self.keys("+", "n", ".", ">", "b", "1", "2", "3", "f", "0")
        self.assertIn("nothing", self.text("facts-0"))


class BadData(PageTest):
    def message(self, name, report):
        self.browser.open(Viewer.write(name, report))
        self.assertFalse(self.run_js("document.getElementById('message').hidden"))
        self.assertTrue(self.run_js("document.getElementById('report').hidden"))
        return self.text("message-text")

    def test_each_has_its_sentence(self):
        def spoiled(**changes):
            trace = copy.deepcopy(Viewer.mega)
            for name, value in changes.items():
                if name in trace["tasks"]:
                    trace["tasks"][name] = value
                else:
                    trace[name] = value
            return make_report(trace)
        tasks = Viewer.mega["tasks"]
        cases = [
            (MARKER, "holds no trace"),
            ("", "holds no trace"),
            ('{"version": 1,', "damaged"),
            ("null", "an object with a version"),
            ({"version": 2, "traces": []}, "version 2; this viewer reads version 1"),
            ({"version": 1, "traces": []}, "traces: there is none"),
            ({"version": 1}, "traces: an array is expected"),
            ({"version": 1, "traces": [None]}, "traces[0]: an object is expected"),
            (spoiled(span_ns="long"), "trace 'mega': span_ns: a number of nanoseconds"),
            (spoiled(tile=tasks["tile"][1:]), "tasks.tile: 731 values, but lane has 732"),
            (spoiled(op=[8] * 732), "tasks.op[0]: 8 is no index below 8"),
            (spoiled(done=[0] * 732), "visible <= ready <= done <= span_ns does not hold"),
            (spoiled(events=[{"name": "e", "signallers": [732], "waiters": []}]), "events[0].signallers: 732 is no index below 732"),
            (spoiled(critical=[{"task": 0, "kind": "wait", "begin": 5, "end": 4, "event": -1}]), "critical[0]: ends before it begins"),
            (spoiled(idle=None), "trace 'mega': idle: an array is expected"),
        ]
        for i, (report, sentence) in enumerate(cases):
            with self.subTest(sentence):
                self.assertIn(sentence, self.message(f"bad-{i}", report))


class Moving(PageTest):
    def setUp(self):
        super().setUp()
        self.open_mega()
        self.span = Viewer.mega["span_ns"]

    def test_keys(self):
        self.keys("+", "+")
        begin, end = self.view()
        self.assertAlmostEqual(end - begin, self.span / 2.25, delta=1)
        self.keys("ArrowRight")
        self.assertGreater(self.view()[0], begin)
        self.keys("ArrowLeft")
        self.assertAlmostEqual(self.view()[0], begin, delta=1)
        self.keys("-")
        self.assertAlmostEqual(self.view()[1] - self.view()[0], self.span / 1.5, delta=1)
        self.keys("0")
        self.assertEqual(self.view(), (0, self.span))
        before = self.app("rowPx")
        self.keys("]")
        self.assertGreater(self.app("rowPx"), before)
        self.keys("]", "]", "]", "ArrowDown")
        self.assertGreater(self.app("timelines[0].scroll"), 0)
        self.keys("ArrowUp", "PageUp")
        self.assertEqual(self.app("timelines[0].scroll"), 0)

    def test_wheel_zooms_at_the_pointer(self):
        x, y = self.place_of_task(300)
        at = self.app(f"timelines[0].time({x} - document.getElementById('timeline-0').getBoundingClientRect().left)")
        self.browser.wheel(x, y, delta_y=-600)
        self.browser.frame()
        begin, end = self.view()
        self.assertAlmostEqual(end - begin, self.span / 4, delta=self.span / 100)
        now = self.app(f"timelines[0].time({x} - document.getElementById('timeline-0').getBoundingClientRect().left)")
        self.assertAlmostEqual(at, now, delta=self.span / 1000)
        self.browser.wheel(x, y, delta_x=200)
        self.browser.frame()
        self.assertGreater(self.view()[0], begin)

    def test_drag(self):
        self.keys("+", "+", "+")
        begin, end = self.view()
        before = self.canvas_sum()
        self.browser.drag(500, 400, 300, 400)
        self.browser.frame()
        moved = 200 / self.app("timelines[0].plotPx") * (end - begin)
        self.assertAlmostEqual(self.view()[0], begin + moved, delta=(end - begin) / 100)
        self.assertNotEqual(self.canvas_sum(), before)
        self.assertIsNone(self.app("selection"))
        begin, end = self.view()
        self.browser.drag(400, 400, 500, 420, shift=True)
        self.browser.frame()
        self.assertAlmostEqual(self.view()[1] - self.view()[0], (end - begin) * 100 / self.app("timelines[0].plotPx"), delta=2)

    def test_overview_moves_the_view(self):
        self.keys("+", "+", "+", "+")
        box = self.run_js("(() => { const b = document.getElementById('timeline-0').getBoundingClientRect(); return [b.left, b.top]; })()")
        length = self.view()[1] - self.view()[0]
        x = self.app(f"timelines[0].left + {APP}.timelines[0].plotPx * 0.25")
        self.browser.click(box[0] + x, box[1] + 12)
        self.browser.frame()
        self.assertAlmostEqual(sum(self.view()) / 2, self.span / 4, delta=length / 50)

    def test_never_leaves_the_run(self):
        for key in ("ArrowRight", "ArrowLeft"):
            self.keys("0", "+", "+", *[key] * 40)
            begin, end = self.view()
            self.assertGreaterEqual(begin, -0.05 * (end - begin))
            self.assertLessEqual(end, self.span + 0.05 * (end - begin))
        self.keys("0", *["+"] * 60)
        begin, end = self.view()
        self.assertGreater(end, begin)
        self.keys(*["-"] * 80)
        self.assertEqual(self.view(), (0, self.span))


class Finding(PageTest):
    def test_task_by_op_and_tile(self):
        self.open_mega()
        tasks = Viewer.mega["tasks"]
        want = [t for t in range(LAYER_TASKS) if OPS[tasks["op"][t]][0] == "D0" and "m1 " in tasks["tile"][t]]
        want.sort(key=lambda t: (tasks["ready"][t], t))
        self.browser.key("/")
        before = self.canvas_sum()
        self.browser.type("d0 m1")
        self.browser.frame()
        self.assertEqual(self.text("found"), f"{len(want)} tasks")
        self.assertNotEqual(self.canvas_sum(), before)
        self.keys("Enter")
        self.assertEqual(self.app("selection"), {"pane": 0, "kind": "task", "index": want[0]})
        self.assertEqual(self.text("found"), f"1 of {len(want)}")
        self.browser.key("Enter", shift=True)
        self.assertEqual(self.app("selection.index"), want[-1])
        self.keys("Escape")
        self.assertEqual(self.text("found"), "")
        self.assertEqual(self.run_js("document.activeElement.id"), "timeline-0")
        self.assertIsNone(self.app("kept[0]"))

    def test_by_number_and_none(self):
        self.open_mega()
        self.assertEqual(self.run_js(f"{APP}.traces[0].find('#7')"), [7])
        self.assertEqual(self.run_js(f"{APP}.traces[0].find('b0 no')"), sorted(t for t in (40, 47) if Viewer.mega["tasks"]["op"][t] == 1))
        self.browser.key("/")
        self.browser.type("zzz")
        self.browser.frame()
        self.assertEqual(self.text("found"), "no task")

    def test_among_100_000(self):
        self.open_large()
        self.browser.key("/")
        self.browser.type("e1 l77 m3 n5")
        self.keys("Enter")
        tasks = Viewer.large["tasks"]
        task = self.app("selection.index")
        self.assertEqual((OPS[tasks["op"][task]][0], tasks["tile"][task]), ("E1", "L77 m3 n5"))
        begin, end = self.view()
        self.assertTrue(begin <= tasks["ready"][task] and tasks["done"][task] <= end)
        top = self.app(f"timelines[0].rowTop({APP}.traces[0].rowOf({task}))")
        self.assertTrue(self.app("timelines[0].lanesTop") <= top < self.app("timelines[0].height"))
        self.keys("Escape", "f")
        begin, end = self.view()
        self.assertLess(end - begin, 10 * (tasks["done"][task] - tasks["visible"][task]))


class Selecting(PageTest):
    def test_click_shows_a_task_and_its_neighbours(self):
        self.open_mega()
        task = 300
        tasks, events = Viewer.mega["tasks"], Viewer.mega["events"]
        self.app(f"setView({tasks['ready'][task] - 4000}, {tasks['done'][task] + 4000})")
        self.browser.frame()
        self.browser.click(*self.place_of_task(task))
        self.browser.frame()
        self.assertEqual(self.app("selection"), {"pane": 0, "kind": "task", "index": task})
        details = self.text("details")
        lane = Viewer.mega["lanes"][tasks["lane"][task]]
        for word in (tasks["tile"][task], f"#{task}", lane, f"{tasks['ready'][task] / 1000:.2f} µs", "waits for", "signals", "slack"):
            self.assertIn(word, details)
        before = {t for e in events if task in e["waiters"] for t in e["signallers"]}
        after = {t for e in events if task in e["signallers"] for t in e["waiters"]}
        labels = self.run_js("[...document.querySelectorAll('#task-graph [role=button]')].map((n) => n.getAttribute('aria-label'))")
        self.assertEqual(sum(label.startswith("predecessor") for label in labels), min(6, len(before)))
        self.assertEqual(sum(label.startswith("successor") for label in labels), min(6, len(after)))
        self.assertIn(f"and {len(before) - 6} more", self.text("task-graph"))
        latest = max(before, key=lambda t: (tasks["done"][t], -t))
        self.keys("b")
        self.assertEqual(self.app("selection.index"), latest)

    def test_waiting_part_and_tip(self):
        self.open_mega()
        tasks = Viewer.mega["tasks"]
        task = next(t for t in range(200, 700) if tasks["ready"][t] - tasks["visible"][t] > 1500)
        self.app(f"setView({tasks['visible'][task] - 500}, {tasks['done'][task] + 500})")
        self.browser.frame()
        x, y = self.place_of_task(task, part="wait")
        self.browser.mouse("mouseMoved", x, y)
        self.browser.frame()
        self.assertFalse(self.run_js("document.getElementById('tip').hidden"))
        self.assertIn(f"#{task} (waiting)", self.text("tip"))
        self.browser.mouse("mouseMoved", 700, 12)
        self.browser.frame()
        self.assertTrue(self.run_js("document.getElementById('tip').hidden"))

    def test_event(self):
        self.open_mega()
        index = next(i for i, e in enumerate(Viewer.mega["events"]) if len(e["waiters"]) > 10)
        event = Viewer.mega["events"][index]
        reached = max(Viewer.mega["tasks"]["done"][t] for t in event["signallers"])
        self.app(f"setView({reached - 300}, {reached + 300})")
        self.browser.frame()
        box = self.run_js("(() => { const b = document.getElementById('timeline-0').getBoundingClientRect(); return [b.left, b.top]; })()")
        x, y = box[0] + self.app(f"timelines[0].x({reached})"), box[1] + self.run_js("kOverviewPx + kAxisPx + kEventsPx / 2")
        self.browser.mouse("mouseMoved", x, y)
        self.browser.frame()
        self.assertIn("event", self.text("tip"))
        self.browser.click(x, y)
        self.browser.frame()
        self.assertEqual(self.app("selection.kind"), "event")
        shown = Viewer.mega["events"][self.app("selection.index")]
        self.assertEqual(max(Viewer.mega["tasks"]["done"][t] for t in shown["signallers"]), reached)
        self.assertIn(f"{len(shown['signallers'])} signaller", self.text("details"))
        # From the event to one of its tasks, by keyboard.
        self.run_js("document.querySelector('#details .jump').focus()")
        self.keys("Enter")
        self.assertEqual(self.app("selection.kind"), "task")

    def test_lost_record(self):
        self.open_mega()
        self.app("select({pane: 0, kind: 'task', index: 40}, true)")
        self.browser.frame()
        self.assertIn("The record of this task was lost", self.text("details"))

    def test_op_graph(self):
        self.open_mega()
        labels = self.run_js("[...document.querySelectorAll('#op-graph [role=button]')].map((n) => n.getAttribute('aria-label'))")
        self.assertEqual([label.split(",")[0] for label in labels], [op[0] for op in OPS])
        for op, label in zip(OPS, labels):
            self.assertIn(f"{op[1]}: {op[2]} tasks", label)
        titles = self.run_js("[...document.querySelectorAll('#op-graph .edge title')].map((t) => t.textContent.split(':')[0]).sort()")
        self.assertEqual(titles, sorted(f"{source} to {op[0]}" for op in OPS for source in op[5]))
        before = self.canvas_sum()
        self.run_js("document.querySelector('#op-graph [role=button]').focus()")
        self.keys("Enter")
        self.assertEqual(self.app("selection"), {"pane": 0, "kind": "op", "index": 0})
        self.assertNotEqual(self.canvas_sum(), before)
        self.assertEqual(self.run_js("document.activeElement.getAttribute('data-select')"), "0 op 0")
        self.keys("Enter")
        self.assertIsNone(self.app("selection"))

    def test_circle_of_ops(self):
        trace = copy.deepcopy(Viewer.mega)
        trace["events"].append({"name": "back", "signallers": [731], "waiters": [0]})
        self.open("circle", trace)
        self.assertEqual(self.run_js("document.querySelectorAll('#op-graph [role=button]').length"), len(OPS))


class CriticalPath(PageTest):
    def test_on_and_off(self):
        self.open_mega()
        shown = self.canvas_sum()
        pressed = "document.getElementById('critical').getAttribute('aria-pressed')"
        self.assertEqual(self.run_js(pressed), "true")
        self.keys("c")
        self.assertEqual(self.run_js(pressed), "false")
        hidden = self.canvas_sum()
        self.assertNotEqual(shown, hidden)
        self.run_js("document.getElementById('critical').click()")
        self.browser.frame()
        self.assertEqual(self.canvas_sum(), shown)

    def test_links(self):
        self.open_mega()
        links = Viewer.mega["critical"]
        self.keys("3")
        panel = self.text("critical-panel")
        self.assertIn(f"{len(links)} links", panel)
        self.assertIn("100.0 % of the span", panel)
        for kind in {link["kind"] for link in links}:
            self.assertIn(kind, panel)
        for at in range(3):
            self.keys("n")
            self.assertEqual(self.app("selection"), {"pane": 0, "kind": "link", "index": at})
        self.assertIn(links[2]["kind"], self.text("details"))
        self.keys("p")
        self.assertEqual(self.app("selection.index"), 1)
        # The strip above the lanes answers too.
        longest = max(range(len(links)), key=lambda i: links[i]["end"] - links[i]["begin"])
        middle = (links[longest]["begin"] + links[longest]["end"]) / 2
        box = self.run_js("(() => { const b = document.getElementById('timeline-0').getBoundingClientRect(); return [b.left, b.top]; })()")
        self.browser.click(box[0] + self.app(f"timelines[0].x({middle})"), box[1] + self.app("timelines[0].criticalTop") + 10)
        self.browser.frame()
        self.assertEqual(self.app("selection"), {"pane": 0, "kind": "link", "index": longest})

    def test_unknown_kind_and_none(self):
        trace = copy.deepcopy(Viewer.mega)
        trace["critical"][0]["kind"] = "teleport"
        other = copy.deepcopy(Viewer.cmp)
        other["critical"] = []
        self.open("kinds", trace, other)
        self.keys("3")
        self.assertIn("teleport", self.text("critical-panel"))
        self.keys("x")
        self.assertIn("no critical path", self.text("critical-panel"))


class Comparing(PageTest):
    def test_same_scale(self):
        self.open_both()
        self.keys("+", "+")
        for time in (30000, 60000):
            places = [self.app(f"timelines[{pane}].x({time})") for pane in (0, 1)]
            self.assertEqual(places[0], places[1])
        lefts = self.run_js("[0, 1].map((i) => document.getElementById('timeline-' + i).getBoundingClientRect().left)")
        self.assertEqual(*lefts)

    def test_table(self):
        self.open_both()
        self.keys("2")
        rows = self.run_js("[...document.querySelectorAll('#ops-panel table:first-of-type tbody tr')].map((r) => [...r.children].map((c) => c.textContent))")
        self.assertEqual([row[0] for row in rows], [op[0] for op in OPS])

        def busy(trace, op):
            tasks = trace["tasks"]
            return sum(d - r for o, r, d in zip(tasks["op"], tasks["ready"], tasks["done"]) if o == op)
        for op, row in enumerate(rows):
            difference = busy(Viewer.cmp, op) - busy(Viewer.mega, op)
            self.assertTrue(row[2].startswith("+" if difference > 0 else "−"), row)
            shown = float(row[2][1:].split()[0]) * {"ns": 1, "µs": 1e3, "ms": 1e6}[row[2].split()[1]]
            self.assertAlmostEqual(shown, abs(difference), delta=abs(difference) * 0.001 + 1)
        self.run_js("document.querySelectorAll('#ops-panel th button')[1].click()")
        self.run_js("document.querySelectorAll('#ops-panel th button')[1].click()")
        order = self.run_js("[...document.querySelectorAll('#ops-panel table:first-of-type tbody tr')].map((r) => r.children[0].textContent)")
        self.assertEqual(order, [OPS[i][0] for i in sorted(range(len(OPS)), key=lambda i: -busy(Viewer.mega, i))])
        self.assertIn("wait for event", self.text("ops-panel"))

    def test_three_traces(self):
        third = make_trace("serial", seed=3, speed=2, lanes=16, backend="serial")
        self.open("three", Viewer.mega, Viewer.cmp, third)
        self.run_js("(() => { const s = document.getElementById('pick-1'); s.value = '2'; s.dispatchEvent(new Event('change')); })()")
        self.browser.frame()
        self.assertIn("serial", self.text("facts-1"))
        self.assertEqual(self.view()[1], third["span_ns"])
        self.run_js("(() => { const s = document.getElementById('pick-1'); s.value = '-1'; s.dispatchEvent(new Event('change')); })()")
        self.browser.frame()
        self.assertTrue(self.run_js("document.getElementById('pane-1').hidden"))


class Access(PageTest):
    def test_everything_by_keyboard(self):
        self.open_both()
        reached = set()
        for _ in range(14):
            self.browser.key("Tab")
            reached.add(self.run_js("document.activeElement.id"))
        self.assertLessEqual({"pick-0", "pick-1", "search", "critical", "theme", "show-help", "timeline-0", "timeline-1", "tab-graph"}, reached)
        self.run_js("document.getElementById('timeline-0').focus()")
        self.keys(".")
        first = self.app("selection.index")
        self.keys(".")
        self.assertNotEqual(self.app("selection.index"), first)
        self.keys(",")
        self.assertEqual(self.app("selection.index"), first)
        self.keys(">")
        tasks = Viewer.mega["tasks"]
        self.assertEqual(tasks["lane"][self.app("selection.index")], tasks["lane"][first] + 1)
        self.keys("g")
        self.assertIn(f"#{self.app('selection.index')}", self.text("status"))
        self.keys("x")
        self.assertEqual(self.run_js("document.activeElement.id"), "timeline-1")

    def test_help(self):
        self.open_mega()
        self.keys("?")
        self.assertTrue(self.run_js("document.getElementById('help').open"))
        self.assertEqual(self.run_js("document.querySelectorAll('#help-keys tr').length"), self.run_js("kKeys.length"))
        before = self.view()
        self.keys("+")
        self.assertEqual(self.view(), before)
        self.keys("Escape")
        self.assertFalse(self.run_js("document.getElementById('help').open"))

    def test_names_and_roles(self):
        self.open_both()
        self.app("select({pane: 0, kind: 'task', index: 300}, true)")
        self.browser.send("Accessibility.enable")
        nodes = self.browser.send("Accessibility.getFullAXTree")["nodes"]
        seen = {}
        for node in nodes:
            role = node.get("role", {}).get("value")
            if node.get("ignored") or role not in ("button", "combobox", "searchbox", "application", "tab", "tabpanel", "dialog", "toolbar"):
                continue
            seen.setdefault(role, []).append(node.get("name", {}).get("value", ""))
        for role, names in seen.items():
            self.assertNotIn("", names, role)
        self.assertEqual(len(seen["application"]), 2)
        self.assertEqual(len(seen["tab"]), 3)
        self.assertEqual(len(seen["combobox"]), 2)

    def test_contrast(self):
        self.open_mega()

        def luminance(colour):
            parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
            parts = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

        def contrast(a, b):
            low, high = sorted((luminance(a), luminance(b)))
            return (high + 0.05) / (low + 0.05)
        for theme in ("light", "dark"):
            self.app(f"setTheme('{theme}')")
            colours = self.app("colours")
            for back in ("back", "band"):
                for ink in ("text", "dim", "critical", "accent", "event"):
                    self.assertGreaterEqual(contrast(colours[ink], colours[back]), 4.5, f"{theme}: {ink} on {back}")
            bars = self.run_js(f"[...kOpColours.{theme}, ...Object.values(kLinkStyles).map((s) => s.{theme})]")
            for bar in bars:
                self.assertGreaterEqual(contrast(colours["barInk"], bar), 4.5, f"{theme}: text on {bar}")
                self.assertGreaterEqual(contrast(bar, colours["back"]), 1.3, f"{theme}: {bar} on the background")

    def test_colour_is_never_alone(self):
        self.open_mega()
        looks = self.run_js(f"{APP}.traces[0].ops.map((op) => {{ const s = {APP}.styles.of(op, 'light'); return s.colour + s.texture; }})")
        self.assertEqual(len(set(looks)), len(OPS))
        textures = self.run_js(f"{APP}.traces[0].ops.map((op) => {APP}.styles.of(op, 'light').texture)")
        self.assertGreaterEqual(len(set(textures)), 7)
        letters = self.run_js("Object.values(kLinkStyles).map((s) => s.letter)")
        self.assertEqual(len(set(letters)), 5)

    def test_theme(self):
        self.open_mega()
        theme = "document.documentElement.dataset.theme"
        self.assertEqual(self.run_js(theme), "light")
        light = self.canvas_sum()
        self.browser.prefer("dark")
        self.browser.frame()
        self.assertEqual(self.run_js(theme), "dark")
        self.assertNotEqual(self.canvas_sum(), light)
        self.keys("t")
        self.assertEqual(self.run_js(theme), "light")
        self.assertEqual(self.canvas_sum(), light)

    def test_narrow_window(self):
        self.browser.resize(700, 900)
        self.open_both()
        self.assertLessEqual(self.run_js("document.documentElement.scrollWidth"), 700)
        self.assertGreater(self.app("timelines[1].height"), 200)


class Speed(PageTest):
    def measure(self, change, count=40):
        """Times of redraws after each change, until the pixels are there."""
        times = self.run_js(f"""(async () => {{
          const app = {APP}, context = app.timelines[0].context, times = [];
          for (let i = 0; i < {count}; i++) {{
            await new Promise(requestAnimationFrame);
            const begin = performance.now();
            {change};
            app.draw();
            context.getImageData(200, 200, 1, 1);
            times.push(performance.now() - begin);
          }}
          return times;
        }})()""")
        times.sort()
        return times[len(times) // 2], times[-1]

    def test_redraws_of_100_000_tasks(self):
        self.open_large()
        self.assertEqual(self.app("traces[0].numTasks"), LARGE)
        report = []
        for name, before, change in (
                ("all lanes, whole run", "setRowPx(3)", "app.setView(0, app.endNs * (1 - i / 1e4))"),
                ("all lanes, zooming", "fit()", "app.zoom(1.06)"),
                ("panning, a tenth", "setView(0, 3e5)", "app.pan(0.1)"),
                ("high lanes, whole run", "setRowPx(16)", "app.setView(0, app.endNs * (1 - i / 1e4))"),
                ("search on", "search('d1 m2')", "app.setView(0, app.endNs * (1 - i / 1e4))"),
                ("a task selected", "select({pane: 0, kind: 'task', index: 50000}, true)", "app.zoom(1 + 0.1 * Math.sin(i))")):
            self.app(before)
            median, worst = self.measure(change)
            report.append(f"  {name}: median {median:.1f} ms, worst {worst:.1f} ms")
            with self.subTest(name):
                self.assertLess(median, MAX_REDRAW_MS)
        self.app("search('')")
        frames = self.run_js(f"""(async () => {{
          const app = {APP}, times = [];
          app.fit();
          let last = await new Promise(requestAnimationFrame);
          for (let i = 0; i < 60; i++) {{
            app.zoom(i < 30 ? 1.08 : 1 / 1.08);
            const now = await new Promise(requestAnimationFrame);
            times.push(now - last);
            last = now;
          }}
          return times.sort((a, b) => a - b);
        }})()""")
        report.append(f"  frames while zooming: every {frames[30]:.1f} ms, worst {frames[-1]:.1f} ms")
        print(f"redraws of {LARGE} tasks on 148 lanes:\n" + "\n".join(report), file=sys.stderr)
        self.assertEqual(self.browser.complaints, [])


class Pictures(PageTest):
    """Not compared with anything: to be looked at."""

    def shot(self, name):
        if Viewer.screenshots:
            os.makedirs(Viewer.screenshots, exist_ok=True)
            self.browser.screenshot(os.path.join(Viewer.screenshots, name + ".png"))

    def test_light_and_dark(self):
        for scheme in ("light", "dark"):
            self.browser.prefer(scheme)
            self.open_both()
            self.shot(f"both-{scheme}")
            self.app("showTab(1)")
            self.app("zoom(4, 40000)")
            self.app("select({pane: 0, kind: 'task', index: 300}, true)")
            self.shot(f"both-zoomed-{scheme}")
            self.open_mega()
            self.app("zoom(6, 50000)")
            self.app("select({pane: 0, kind: 'task', index: 300}, true)")
            self.shot(f"task-{scheme}")
            self.keys("?")
            self.shot(f"help-{scheme}")
            self.keys("Escape", "3")
            self.app("search('d1')")
            self.shot(f"search-{scheme}")
            self.open_large()
            self.shot(f"large-{scheme}")
            self.app("zoom(80, 3e5)")
            self.shot(f"large-zoomed-{scheme}")
            self.browser.open(Viewer.write("version", {"version": 2, "traces": []}))
            self.shot(f"message-{scheme}")


def main():
    arguments = sys.argv[1:]
    if not arguments:
        sys.exit(__doc__)
    program = find_browser()
    if program is None:
        print("skipped: no chromium; ./megartp-dev setup viewer installs it")
        return 77
    with open(arguments.pop(0), encoding="utf-8") as f:
        Viewer.page = f.read()
    if arguments and arguments[0] == "--screenshots":
        Viewer.screenshots = arguments[1]
        del arguments[:2]
    Viewer.folder = tempfile.TemporaryDirectory(prefix="megartp-viewer-test-")
    with Viewer.folder, Browser(program) as browser:
        Viewer.browser = browser
        return 0 if unittest.main(argv=[sys.argv[0], *arguments], exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
