"""Opens every page of the built site in a headless Chromium, at three widths, light and dark.

Fails where a page does not follow the scheme or is wider than the window, a picture is missing or
cut off, or something is loaded from elsewhere. Keeps a picture of each view.

python scripts/site_look.py build/site build/look [PAGE...]
"""

from __future__ import annotations

import base64
import functools
import http.server
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-headless-shell")
WIDTHS = {"phone": 390, "laptop": 1300, "desktop": 1920}
HEIGHT = 1000
SCHEMES = ("light", "dark")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
)

# What is wrong with the page that is open in the scheme SCHEME, a line each.
WRONG = """
const origin = location.origin, wide = document.documentElement.clientWidth, wrong = [];
const scrolls = node => node && node !== document.body &&
    (/auto|scroll/.test(getComputedStyle(node).overflowX) || scrolls(node.parentElement));
if (getComputedStyle(document.body).colorScheme !== SCHEME)
    wrong.push(`drawn ${getComputedStyle(document.body).colorScheme}`);
if (document.documentElement.scrollWidth > wide)
    wrong.push(`${document.documentElement.scrollWidth} px wide in a window of ${wide}`);
for (const image of document.querySelectorAll("article img")) {
    if (!image.naturalWidth) wrong.push(`no picture at ${image.getAttribute("src")}`);
    if (image.getBoundingClientRect().right > wide + 1 && !scrolls(image.parentElement))
        wrong.push(`cut off: ${image.getAttribute("src")}`);
}
for (const {name} of performance.getEntriesByType("resource"))
    if (!name.startsWith(origin) && !name.startsWith("data:"))
        wrong.push(`loads from elsewhere: ${name}`);
wrong
"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Says nothing about requests."""


@contextmanager
def _served(site: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Browser:
    """A Chromium that is driven through its pipe of the DevTools protocol."""

    def __init__(self, program: str, profile: str) -> None:
        commands, self._commands = os.pipe()
        answers, written = os.pipe()
        self._answers = os.fdopen(answers, "rb")
        self._numbers = itertools.count(1)
        self._rest = b""
        # Whatever a page asks of another host fails, with or without a network.
        away = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        flags = (*FLAGS, "--remote-debugging-pipe", away, f"--user-data-dir={profile}")
        # Chromium reads commands from descriptor 3, and answers on 4.
        script = f'exec "$0" "$@" 3<&{commands} 4>&{written}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, program, *flags],
            pass_fds=(commands, written),
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(written)
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def ask(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result.

        Args:
            method: Name of the method.
            **arguments: Its arguments.
        """
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": arguments}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            pass
        if "error" in answer:
            sys.exit(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, address: str) -> None:
        """Opens a page, and waits until it is loaded.

        Args:
            address: Address of the page.
        """
        self.ask("Page.navigate", url=address)
        self.value(
            "new Promise(done => document.readyState === 'complete' ? done() : onload = done)"
        )

    def value(self, script: str) -> Any:
        """Returns the value of a script in the open page.

        Args:
            script: The script; a promise is waited for.
        """
        options = {"awaitPromise": True, "returnByValue": True}
        answer = self.ask("Runtime.evaluate", expression=script, **options)
        if "exceptionDetails" in answer:
            sys.exit(f"{answer['exceptionDetails']}")
        return answer["result"].get("value")

    def close(self) -> None:
        """Ends the browser, which ends with its pipe."""
        os.close(self._commands)
        self._process.wait()
        self._answers.close()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._answers.fileno(), 1 << 20)
            if not piece:
                sys.exit(f"Chromium has ended. Received: {self._process.args}")
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextmanager
def _browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit("Wanted: Chromium; on Debian: apt-get install chromium-headless-shell")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            yield browser
        finally:
            browser.close()


def look(site: Path, pictures: Path, pages: list[str]) -> list[str]:
    """Opens pages in every view.

    Args:
        site: The folder of the built site.
        pictures: Where pictures go, `PAGE.WIDTH.SCHEME.png`.
        pages: Pages relative to `site`; none: all of them.

    Returns:
        What is wrong, a line each.
    """
    pages = pages or sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
    pictures.mkdir(parents=True, exist_ok=True)
    found = []
    with _served(site) as address:
        for scheme in SCHEMES:
            # A new one each: the theme remembers what it chose first.
            with _browser() as browser:
                preferred = [{"name": "prefers-color-scheme", "value": scheme}]
                browser.ask("Emulation.setEmulatedMedia", features=preferred)
                for width, pixels in WIDTHS.items():
                    size = {"width": pixels, "height": HEIGHT, "deviceScaleFactor": 1}
                    browser.ask("Emulation.setDeviceMetricsOverride", **size, mobile=False)
                    for page in pages:
                        browser.open(f"{address}/{page}")
                        code = "{" + WRONG.replace("SCHEME", json.dumps(scheme)) + "}"
                        wrong = browser.value(code)
                        found += [f"{page}, {width}, {scheme}: {each}" for each in wrong]
                        name = page.removesuffix(".html").replace("/", "-")
                        picture = browser.ask("Page.captureScreenshot")["data"]
                        path = pictures / f"{name}.{width}.{scheme}.png"
                        path.write_bytes(base64.b64decode(picture))
    return found


if __name__ == "__main__":
    lines = look(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    sys.exit("\n".join(lines) or None)
