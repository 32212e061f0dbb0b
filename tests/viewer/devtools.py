"""A headless Chromium, driven through the DevTools protocol over a pair of pipes. Needs nothing but Python and the browser."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def find_browser():
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class DevToolsError(Exception):
    pass


class Browser:
    """One browser with one page. Errors and warnings that the page writes to its console are collected in `complaints`."""

    def __init__(self, program, width=1400, height=860):
        self.folder = tempfile.mkdtemp(prefix="megartp-viewer-")
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def take_pipes():
            # The browser reads commands from descriptor 3 and writes answers to 4; moved away first, lest one lie on the other.
            reader, writer = os.dup2(to_browser, 103), os.dup2(from_browser, 104)
            os.dup2(reader, 3)
            os.dup2(writer, 4)

        command = [program, "--headless", "--remote-debugging-pipe", f"--user-data-dir={self.folder}", f"--window-size={width},{height}",
                   "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-sync", "--disable-gpu",
                   "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb", "--host-resolver-rules=MAP * ~NOTFOUND", "about:blank"]
        if os.geteuid() == 0:
            command.append("--no-sandbox")  # which root cannot have
        self.process = subprocess.Popen(command, preexec_fn=take_pipes, close_fds=False, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.numbers = itertools.count(1)
        self.attached = None
        self.complaints = []
        target = next(t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.attached = None
            self.send("Browser.close", wait_s=5)
        except (DevToolsError, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- the protocol ---

    def send(self, method, wait_s=60, **params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if self.attached:
            message["sessionId"] = self.attached
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + wait_s
        while True:
            answer = self.receive(deadline)
            if answer.get("id") != number:
                self.notice(answer)
                continue
            if "error" in answer:
                raise DevToolsError(f"{method}: {answer['error'].get('message')}")
            return answer["result"]

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.read_end], [], [], left)[0]:
                raise DevToolsError("the browser does not answer")
            chunk = os.read(self.read_end, 1 << 20)
            if not chunk:
                raise DevToolsError("the browser ended")
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def notice(self, event):
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            # The test reads pixels; the page does not.
            if not params["entry"]["text"].startswith("Canvas2D: Multiple readback"):
                self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:", "chrome:")):
            self.complaints.append(f"asked for {params['request']['url']}")

    # --- the page ---

    def resize(self, width, height, scale=1):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def prefer(self, scheme):
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path):
        url = f"file://{os.path.abspath(path)}"
        self.send("Page.navigate", url=url)
        self.wait_until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def evaluate(self, expression):
        """The value of a JavaScript expression; promises are awaited."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise DevToolsError(f"{expression}: {details.get('exception', {}).get('description') or details['text']}")
        return answer["result"].get("value")

    def wait_until(self, expression, wait_s=60):
        deadline = time.monotonic() + wait_s
        while True:
            try:
                if self.evaluate(expression) is True:
                    return
                problem = "it is still not so"
            except DevToolsError as error:
                # Between two pages there is nothing to ask.
                problem = str(error)
            if time.monotonic() > deadline:
                raise DevToolsError(f"waited {wait_s} s for {expression}: {problem}")
            time.sleep(0.02)

    def key(self, key, shift=False):
        special = {"Enter": "\r", "Escape": "", "Tab": ""}
        text = special.get(key, key if len(key) == 1 else "")
        params = {"key": key, "modifiers": 8 if shift else 0}
        if key == "Enter":
            params["windowsVirtualKeyCode"] = 13
        elif key == "Tab":
            params["windowsVirtualKeyCode"] = 9
        elif key == "Escape":
            params["windowsVirtualKeyCode"] = 27
        self.send("Input.dispatchKeyEvent", type="keyDown", **({"text": text} if text else {}), **params)
        self.send("Input.dispatchKeyEvent", type="keyUp", **params)

    def type(self, text):
        for char in text:
            self.key(char)

    def mouse(self, kind, x, y, **more):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def drag(self, x0, y0, x1, y1, shift=False):
        held = {"modifiers": 8} if shift else {}
        self.mouse("mouseMoved", x0, y0, **held)
        self.mouse("mousePressed", x0, y0, button="left", clickCount=1, **held)
        for step in range(1, 5):
            self.mouse("mouseMoved", x0 + (x1 - x0) * step / 4, y0 + (y1 - y0) * step / 4, button="left", buttons=1, **held)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1, **held)

    def wheel(self, x, y, delta_x=0, delta_y=0, shift=False):
        self.mouse("mouseWheel", x, y, deltaX=delta_x, deltaY=delta_y, modifiers=8 if shift else 0)

    def frame(self):
        """Waits until what was asked for is drawn."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def screenshot(self, path):
        self.frame()
        data = self.send("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))
