"""What the tests of the HTML report share: the page with made-up traces in it, the browser, and how both are asked.

Each test is a script: SCRIPT VIEWER_HTML [--screenshots FOLDER] [unittest arguments...]; exit status 77: no Chromium.
"""

import json
import os
import sys
import tempfile
import unittest

from devtools import Browser, find_browser
from trace_data import make_report, make_trace

MARKER = "/*MEGARTP_TRACE_DATA*/"
LARGE = 100_000
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


def main(usage):
    """Runs the tests of the script that calls it, in one browser; returns the exit status."""
    arguments = sys.argv[1:]
    if not arguments:
        sys.exit(usage)
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
