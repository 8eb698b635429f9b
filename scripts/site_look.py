"""Opens every page of the built site in a headless Chromium, at three widths, light and dark.

Fails where a page does not follow the scheme or is wider than the window, a picture is missing or
cut off, or something is loaded from elsewhere. Keeps a picture of each view.

python scripts/site_look.py build/site build/look [PAGE...]
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

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

# What is wrong with the page that is open, a line each.
WRONG = """
const origin = location.origin, wide = document.documentElement.clientWidth, wrong = [];
const scrolls = node => node && node !== document.body &&
    (/auto|scroll/.test(getComputedStyle(node).overflowX) || scrolls(node.parentElement));
if (getComputedStyle(document.body).colorScheme !== arguments[0])
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
return wrong;
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


@contextmanager
def _browser() -> Iterator[webdriver.Chrome]:
    driver = shutil.which("chromedriver")
    if driver is None:
        sys.exit("Wanted: chromedriver; on Debian: apt-get install chromium chromium-driver")
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        # Whatever a page asks of another host fails, with or without a network.
        away = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        for flag in (*FLAGS, away, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        browser = webdriver.Chrome(options, Service(driver))
        try:
            yield browser
        finally:
            browser.quit()


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
                browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": preferred})
                for width, pixels in WIDTHS.items():
                    size = {"width": pixels, "height": HEIGHT, "deviceScaleFactor": 1}
                    browser.execute_cdp_cmd(
                        "Emulation.setDeviceMetricsOverride", {**size, "mobile": False}
                    )
                    for page in pages:
                        browser.get(f"{address}/{page}")
                        wrong = browser.execute_script(WRONG, scheme)
                        found += [f"{page}, {width}, {scheme}: {each}" for each in wrong]
                        name = page.removesuffix(".html").replace("/", "-")
                        browser.save_screenshot(str(pictures / f"{name}.{width}.{scheme}.png"))
    return found


if __name__ == "__main__":
    lines = look(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    sys.exit("\n".join(lines) or None)
