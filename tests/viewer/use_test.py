#!/usr/bin/env python3
"""The HTML report in use: moving, searching, selecting, the critical path, two traces.

usage: use_test.py VIEWER_HTML [unittest arguments...]

Exit status 77: no Chromium.
"""

import copy
import sys

from trace_data import LAYER_TASKS, OPS, make_trace
from viewer_page import APP, PageTest, Viewer, main


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

    def test_unconnected_ops_stand_below_each_other(self):
        trace = copy.deepcopy(Viewer.mega)
        trace["ops"] += [{"name": f"L{i}", "kind": "none"} for i in range(40)]
        self.open("unconnected", trace)
        boxes = self.run_js("[...document.querySelectorAll('#op-graph .box')].map((b) => b.getBBox()).map((b) => [b.x, b.y])")
        self.assertEqual(len({tuple(box) for box in boxes}), len(OPS) + 40)
        self.assertLess(max(x for x, _ in boxes), 400)
        self.app("select({pane: 0, kind: 'op', index: 47})")
        above, below = self.run_js("""(() => { const node = document.querySelector('#op-graph .current').getBoundingClientRect(),
            panel = document.querySelector('.op-graph-box').getBoundingClientRect();
            return [node.top - panel.top, panel.bottom - node.bottom]; })()""")
        self.assertGreaterEqual(above, 0)
        self.assertGreaterEqual(below, 0)

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


if __name__ == "__main__":
    sys.exit(main(__doc__))
