"""A real Chromium, driven over a pipe with its DevTools protocol: what a page does, not what it should do."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ARTEFACTS = Path(__file__).parent.parent.parent / "test-artefacts"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 120

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)

# Chromium listens on descriptor 3 and answers on 4.
MOVE_PIPES = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def executable():
    """The browser, or the reason why these tests cannot run."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on this machine: 'make browser' installs one where it can")
    return found


class Browser:
    """One tab. Collects what the console says and what is asked of the network."""

    def __init__(self):
        browser = executable()
        self._profile = tempfile.TemporaryDirectory(prefix="intarsia-browser-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        command = [browser, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", MOVE_PIPES, str(to_browser), str(from_browser), *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._next, self._session = b"", 0, None
        self.console, self.requests, self._loaded = [], [], set()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def close(self):
        os.close(self._write)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        self._profile.cleanup()

    def call(self, method, **parameters):
        """Send one command and wait for its answer."""
        self._next += 1
        number = self._next
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], SECONDS)
            if not ready:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        self._note(message)
        return message

    def _note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.console.append((parameters["type"], [a.get("value") for a in parameters["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(("exception", parameters["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.console.append((parameters["entry"]["level"], parameters["entry"]["text"]))
        elif method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith("data:"):  # what is in the page already is not asked of the network
                self.requests.append(url)
        elif method == "Page.lifecycleEvent" and parameters["name"] == "load":
            self._loaded.add(parameters["loaderId"])

    def open(self, url):
        """Go to a page and wait until it has loaded."""
        self._go("about:blank")  # the page before may still ask for something
        self.console, self.requests = [], []
        self._go(url)

    def _go(self, url):
        page = self.call("Page.navigate", url=str(url))["loaderId"]
        while page not in self._loaded:  # the tab's first, empty page may still be loading
            self._receive()

    def run(self, expression):
        """The value of a JavaScript expression in the page; promises are waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key):
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def point_at(self, selector, index=0):
        """Move the mouse to the middle of an element."""
        box = self.run(
            f"(() => {{ const e = document.querySelectorAll({json.dumps(selector)})[{index}];"
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])

    def mouse(self, x, y, *kinds):
        """Move the mouse to a place of the window, and press or release its button there."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in kinds:
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def until(self, expression, seconds=30):
        """Wait until a JavaScript expression is true in the page, and give what it is then."""
        return self.run(
            f"new Promise((resolve, reject) => {{ const end = Date.now() + {seconds * 1000};"
            f"(function look() {{ let now; try {{ now = ({expression}); }} catch {{ now = null; }}"
            "if (now) resolve(now); else if (Date.now() < end) setTimeout(look, 10);"
            f"else reject(new Error('never: ' + {json.dumps(expression)})); }})(); }})"
        )

    def prefer(self, scheme):
        """Light or dark, as the user's system says."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def size(self, width, height):
        """Make the window this large."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def picture(self, name):
        """Keep a picture of the whole page among the test artefacts."""
        ARTEFACTS.mkdir(exist_ok=True)
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        (ARTEFACTS / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


KEYS = {
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Home": 36,
    "End": 35,
    "Tab": 9,
    "x": 88,
}
