"""A headless Chromium for tests, controlled over the pipe of its DevTools protocol.

It needs no driver and no package: the browser reads commands from one pipe and answers on another,
as JSON with a NUL after each message. All its requests are recorded.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # the tests run as root, and the pages are their own
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--no-first-run",
    "--no-default-browser-check",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)
_KEYS = {
    "ArrowDown": 40,
    "ArrowUp": 38,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "Enter": 13,
    "Escape": 27,
    "Home": 36,
    "End": 35,
    "Tab": 9,
}


class BrowserError(AssertionError):
    """The browser could not be started, or refused a command."""


def find_chromium() -> str:
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    raise BrowserError(
        "the tests of the page need Chromium: run `make setup` as root on Debian, or install it "
        f"with your package manager (one of {', '.join(_NAMES)} must be on the PATH)"
    )


class Chromium:
    """One browser process with its own profile; ``open`` returns pages."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        command = [find_chromium(), *_OPTIONS, f"--user-data-dir={self._profile}", "about:blank"]
        # The protocol is spoken on descriptors 3 and 4; the shell puts our pipes there.
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", 'exec "$@" 3<&0 4>&1 0</dev/null 1>&2', "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self._profile},
            start_new_session=True,
        )
        self._ids = itertools.count(1)
        self._rest = b""
        self._listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()  # it ends with its pipe
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(
        self,
        page: Path,
        *,
        width: int = 1400,
        height: int = 900,
        dark: bool = False,
        hash: str = "",
    ) -> Page:
        """Load a page from a file; its requests and errors are recorded from the start."""
        made = Page(self)
        made.resize(width, height)
        made.prefer("prefers-color-scheme", "dark" if dark else "light")
        made.load(page.as_uri() + hash)
        return made

    def command(self, method: str, session: str = "", **arguments: Any) -> Any:
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": arguments}
        if session:
            message["sessionId"] = session
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        self._process.stdin.flush()
        while True:
            answer = self._read()
            if answer.get("id") == number:
                break
            self._tell(answer)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def wait(self, is_over: Callable[[], bool]) -> None:
        """Process messages from the browser until the condition holds."""
        while not is_over():
            self._tell(self._read())

    def listen(self, session: str, listener: Callable[[str, dict[str, Any]], None]) -> None:
        self._listeners[session] = listener

    def forget(self, session: str) -> None:
        self._listeners.pop(session, None)

    def _tell(self, message: dict[str, Any]) -> None:
        listener = self._listeners.get(message.get("sessionId", ""))
        if listener is not None and "method" in message:
            listener(message["method"], message.get("params", {}))

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while b"\0" not in self._rest:
            read = os.read(self._process.stdout.fileno(), 1 << 20)
            if not read:
                raise BrowserError(f"the browser ended ({self._process.wait(5)})")
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


class Page:
    """One tab. ``requests``: everything it tried to load; ``problems``: what went wrong."""

    def __init__(self, browser: Chromium) -> None:
        self._browser = browser
        self._target = browser.command("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.command("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session: str = attached["sessionId"]
        self.requests: list[str] = []
        self.problems: list[str] = []
        self._is_loaded = False
        browser.listen(self._session, self._heard)
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.command(f"{domain}.enable")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.command("Target.closeTarget", targetId=self._target)
        self._browser.forget(self._session)

    def command(self, method: str, **arguments: Any) -> Any:
        return self._browser.command(method, self._session, **arguments)

    def load(self, url: str) -> None:
        self._is_loaded = False
        self.command("Page.navigate", url=url)
        self._browser.wait(lambda: self._is_loaded)

    def _heard(self, method: str, said: dict[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._is_loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(said["request"]["url"])
            case "Runtime.exceptionThrown":
                details = said["exceptionDetails"]
                told = details.get("exception", {}).get("description")
                self.problems.append(told or details["text"])
            case "Log.entryAdded":
                self.problems.append(said["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.problems.append(f"dialog: {said['message']}")
                self.command("Page.handleJavaScriptDialog", accept=True)

    # --- looking ------------------------------------------------------------------------------

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        found = self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise BrowserError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def frame(self) -> None:
        """Let the page render pending changes."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def text(self, selector: str) -> str:
        found = self.value(f"document.querySelector({json.dumps(selector)})?.textContent")
        assert isinstance(found, str), f"there is no {selector}"
        return found

    def texts(self, selector: str) -> list[str]:
        all_of = f"document.querySelectorAll({json.dumps(selector)})"
        found: list[str] = self.value(f"[...{all_of}].map(it => it.textContent)")
        return found

    def count(self, selector: str) -> int:
        found: int = self.value(f"document.querySelectorAll({json.dumps(selector)}).length")
        return found

    def is_seen(self, selector: str) -> bool:
        found = f"document.querySelector({json.dumps(selector)})"
        seen: bool = self.value(f"Boolean({found}?.checkVisibility({{visibilityProperty: true}}))")
        return seen

    def screenshot(self, file: Path) -> None:
        self.frame()
        taken = self.command("Page.captureScreenshot", format="png")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(taken["data"]))

    # --- doing --------------------------------------------------------------------------------

    def resize(self, width: int, height: int) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, feature: str, value: str) -> None:
        features = [{"name": feature, "value": value}]
        self.command("Emulation.setEmulatedMedia", features=features)

    def scripts(self, are_on: bool) -> None:
        self.command("Emulation.setScriptExecutionDisabled", value=not are_on)

    def press(self, *keys: str) -> None:
        for key in keys:
            code = _KEYS.get(key, ord(key[0].upper()))
            text = {"text": key} if len(key) == 1 else {}
            about = {"key": key, "windowsVirtualKeyCode": code}
            self.command("Input.dispatchKeyEvent", type="keyDown", **about, **text)
            self.command("Input.dispatchKeyEvent", type="keyUp", **about)
        self.frame()

    def click(self, selector: str) -> None:
        x, y = self._middle(selector)
        self._mouse("mousePressed", x, y)
        self._mouse("mouseReleased", x, y)
        self.frame()

    def drag(self, selector: str, begin: float, end: float) -> None:
        """Drag across an element, from and to a share of its width."""
        box = self._box(selector)
        y = box["y"] + box["height"] / 2
        ways = [box["x"] + box["width"] * share for share in (begin, (begin + end) / 2, end)]
        self._mouse("mousePressed", ways[0], y)
        for x in ways[1:]:
            self._mouse("mouseMoved", x, y)
        self._mouse("mouseReleased", ways[-1], y)
        self.frame()

    def hover(self, selector: str) -> None:
        self._mouse("mouseMoved", *self._middle(selector))
        self.frame()

    def _mouse(self, kind: str, x: float, y: float) -> None:
        about = {"button": "left", "buttons": 1, "clickCount": 1}
        if kind == "mouseMoved":
            about = {"button": "left", "buttons": 1, "clickCount": 0}
        self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, **about)

    def _middle(self, selector: str) -> tuple[float, float]:
        box = self._box(selector)
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def _box(self, selector: str) -> dict[str, float]:
        found = f"document.querySelector({json.dumps(selector)})?.getBoundingClientRect().toJSON()"
        box: dict[str, float] | None = self.value(found)
        assert box is not None and box["width"] > 0, f"{selector} is not on the page"
        return box
