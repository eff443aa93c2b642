"""A real browser for tests: Chromium without a screen, spoken to through its own pipe (the DevTools protocol).

It needs the package chromium of the distribution, and nothing else.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

FOUND = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "no Chromium on this machine: apt-get install chromium"
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
         "--disable-extensions", "--force-color-profile=srgb", "--remote-debugging-pipe"]  # fmt: skip
# Chromium reads from 3 and writes to 4.
LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "Escape": 27, "Tab": 9, "Enter": 13, "PageUp": 33, "Home": 36}


class Browser:
    """Messages are JSON that ends with a NUL; answers carry the number of the question."""

    def __init__(self, folder):
        (theirs, self.write), (self.read, ours) = os.pipe(), os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs, ours)]
        chromium = [FOUND, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *map(str, ends), *chromium], pass_fds=ends, **quiet
        )
        for end in (theirs, ours, *ends):
            os.close(end)
        self.waiting, self.events, self.number = b"", [], 0

    def ask(self, method, session=None, timeout=30.0, **parameters):
        """Send a command, and wait for its answer; what happens meanwhile is kept in `events`."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data) :]
        answer = self.until(lambda event: event.get("id") == self.number, timeout, method)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def until(self, wanted, timeout, what):
        """The next message that is wanted."""
        end = time.monotonic() + timeout
        while True:
            while b"\0" in self.waiting:
                first, _, self.waiting = self.waiting.partition(b"\0")
                message = json.loads(first)
                if "method" in message:
                    self.events.append(message)
                if wanted(message):
                    return message
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                raise TimeoutError(f"{what}: no answer within {timeout} seconds")
            data = os.read(self.read, 2**20)
            if not data:
                raise ConnectionError(f"{what}: Chromium ended with code {self.process.wait(5)}")
            self.waiting += data

    def close(self):
        try:
            self.ask("Browser.close", timeout=5)
        except (OSError, TimeoutError):
            self.process.kill()
        finally:
            self.process.wait(10)
            os.close(self.write)
            os.close(self.read)


class Tab:
    """A page in the browser, with all that it does written down."""

    def __init__(self, browser):
        self.browser = browser
        self.target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.size(1280, 900)

    def ask(self, method, **parameters):
        return self.browser.ask(method, self.session, **parameters)

    def size(self, width, height, *, touch=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.ask("Emulation.setTouchEmulationEnabled", enabled=touch)

    def prefer(self, **features):
        """For instance prefers_color_scheme="dark"."""
        given = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.ask("Emulation.setEmulatedMedia", features=given)

    def before(self, script):
        """Run it in every page before its own scripts."""
        self.ask("Page.addScriptToEvaluateOnNewDocument", source=script)

    def goto(self, path, timeout=30.0):
        start = time.monotonic()
        self.browser.events.clear()
        self.ask("Page.navigate", url=Path(path).resolve().as_uri())
        self.browser.until(lambda event: event.get("method") == "Page.loadEventFired", timeout, path)
        return time.monotonic() - start

    def run(self, script):
        """The value of an expression; a promise is waited for."""
        done = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"].get("exception", done["exceptionDetails"]).get("description"))
        return done["result"].get("value")

    def settle(self):
        """Until two pictures have been drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def texts(self, selector):
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((node) => node.textContent)")

    def place(self, selector):
        """Where its middle is, after scrolling there."""
        return self.run(
            f"(() => {{ const node = document.querySelector({json.dumps(selector)});"
            " node.scrollIntoView({ block: 'center', behavior: 'instant' }); const box = node.getClientRects()[0];"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )

    def hover(self, selector):
        x, y = self.place(selector)
        self.mouse("mouseMoved", x, y)
        self.settle()

    def click(self, selector):
        x, y = self.place(selector)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.settle()

    def tap(self, selector):
        x, y = self.place(selector)
        self.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.settle()

    def mouse(self, kind, x, y, **more):
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, name):
        text = {"text": name} if len(name) == 1 else {}
        code = KEYS.get(name, ord(name[0].upper()))
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=name, windowsVirtualKeyCode=code, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)
        self.settle()

    def type(self, selector, text):
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.ask("Input.insertText", text=text)
        self.settle()

    def choose(self, selector, value):
        """An option of a select, or the value of a slider, as a user would."""
        self.run(
            f"(() => {{ const node = document.querySelector({json.dumps(selector)}); node.value = {json.dumps(value)};"
            " node.dispatchEvent(new Event('input', { bubbles: true }));"
            " node.dispatchEvent(new Event('change', { bubbles: true })); })()"
        )
        self.settle()

    def picture(self, path, *, full=False):
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def complaints(self):
        """Errors and warnings of the console, exceptions, and what the policy has refused."""
        self.settle()
        found = []
        for event in self.browser.events:
            values = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(values["exceptionDetails"])
            elif event["method"] == "Log.entryAdded":
                found.append(values["entry"])
            elif event["method"] == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
                found.append(values)
        return found

    def requests(self):
        """Addresses that were asked for, but for the page itself and data inside it."""
        asked = [e["params"] for e in self.browser.events if e["method"] == "Network.requestWillBeSent"]
        return [
            one["request"]["url"]
            for one in asked
            if one["type"] != "Document" and not one["request"]["url"].startswith("data:")
        ]

    def close(self):
        self.browser.ask("Target.closeTarget", targetId=self.target)


@contextmanager
def browser():
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        one = Browser(folder)
        try:
            yield one
        finally:
            one.close()
