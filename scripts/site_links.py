"""Fails where the built site has a dead link, or loads something from elsewhere.

python scripts/site_links.py build/site
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a page loads by itself, by attribute; a link to click may lead anywhere.
_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
# These say where a page lies or who made it, and load nothing.
_RELATIONS = {"canonical", "prev", "next", "alternate"}


@dataclasses.dataclass
class Page:
    """What a page links to, loads and can be reached by."""

    links: list[str] = dataclasses.field(default_factory=list)
    loaded: list[str] = dataclasses.field(default_factory=list)
    anchors: set[str] = dataclasses.field(default_factory=set)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.page.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.page.links.append(found["href"])
        target = found.get(_LOADED.get(tag, ""))
        if target and found.get("rel") not in _RELATIONS:
            self.page.loaded.append(target)


@functools.cache
def read(path: Path) -> Page:
    """Reads a page of the site."""
    reader = _Reader()
    reader.feed(path.read_text())
    return reader.page


def problem(page: Path, link: str, site: Path) -> str | None:
    """Says what is wrong with a link of a page.

    Args:
        page: The page, a file below `site`.
        link: The link as the page has it.
        site: The folder of the built site.

    Returns:
        What is wrong, or `None`. Addresses outside the site are not opened.
    """
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if site not in target.parents:
        return f"leaves the site: {link}"
    if not target.is_file():
        return f"leads nowhere: {link}"
    anchor = unquote(parts.fragment)
    if anchor and target.suffix == ".html" and anchor not in read(target).anchors | {"__top"}:
        return f"no such heading: {link}"
    return None


def problems(site: Path) -> list[str]:
    """Checks all pages of a site; a line per problem."""
    site = site.resolve()
    # The page for wrong addresses is shown at any depth, so its links begin with the server's root.
    pages = [page for page in sorted(site.rglob("*.html")) if page != site / "404.html"]
    if not pages:
        return [f"Wanted a built site. Received: {site}, which has no page"]
    found = []
    for page in pages:
        content = read(page)
        here = page.relative_to(site)
        away = [each for each in content.loaded if urlsplit(each).netloc]
        found += [f"{here}: loads from elsewhere: {each}" for each in away]
        wrong = (problem(page, each, site) for each in content.links + content.loaded)
        found += [f"{here}: {each}" for each in wrong if each]
    return found


if __name__ == "__main__":
    lines = problems(Path(sys.argv[1]))
    sys.exit("\n".join(lines) or None)
