#!/usr/bin/env python3
"""The HTML report: what it shows of its data, what it says of bad data, and how it looks.

usage: page_test.py VIEWER_HTML [--screenshots FOLDER] [unittest arguments...]

Exit status 77: no Chromium. With --screenshots, pictures in light and dark go to the folder.
"""

import copy
import os
import sys

from trace_data import OPS, make_report
from viewer_page import APP, MARKER, PageTest, Viewer, main


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

    def test_fine_screens(self):
        self.browser.resize(1000, 700, scale=2)
        self.open_both()
        for scale in (2, 1, 1.5):
            self.browser.resize(1000, 700, scale=scale)
            self.keys("+")
            sizes = self.run_js("[0, 1].map((i) => document.getElementById('timeline-' + i)).map((c) => [c.width, c.clientWidth])")
            for width, wanted in sizes:
                self.assertAlmostEqual(width, wanted * scale, delta=1)
            before = self.canvas_sum()
            self.keys("+")
            self.assertNotEqual(self.canvas_sum(), before)

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


if __name__ == "__main__":
    sys.exit(main(__doc__))
