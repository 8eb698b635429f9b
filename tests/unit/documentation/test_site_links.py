"""What scripts/site_links.py finds on the pages of a site."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "site_links.py"


def check(site: Path, body: str) -> list[str]:
    """Returns what is wrong with a site whose home page has this body."""
    (site / "guide").mkdir()
    (site / "index.html").write_text(f"<body>{body}</body>")
    (site / "guide" / "start.html").write_text(
        '<h2 id="first"></h2><a href="../index.html">home</a>'
    )
    run = subprocess.run(
        [sys.executable, SCRIPT, site], capture_output=True, text=True, check=False
    )
    assert bool(run.stderr) == bool(run.returncode)
    return run.stderr.splitlines()


@pytest.mark.parametrize(
    "body",
    [
        '<a href="guide/start.html">start</a>',
        '<a href="guide/start.html#first">start</a>',
        '<a href="https://www.tensorflow.org/">elsewhere, if clicked</a>',
        '<link rel="canonical" href="https://example.org/">',
        '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">',
    ],
)
def test_a_whole_site_passes(body, tmp_path):
    assert check(tmp_path, body) == []


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ('<a href="guide/end.html">x</a>', "leads nowhere: guide/end.html"),
        ('<a href="guide/start.html#last">x</a>', "no such heading: guide/start.html#last"),
        ('<a href="#last">x</a>', "no such heading: #last"),
        ('<a href="../README.md">x</a>', "leaves the site: ../README.md"),
        ('<img src="figure.svg">', "leads nowhere: figure.svg"),
        (
            '<script src="//cdn.example.org/x.js"></script>',
            "from elsewhere: //cdn.example.org/x.js",
        ),
        (
            '<link rel="stylesheet" href="https://a.org/b.css">',
            "from elsewhere: https://a.org/b.css",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_page(body, wrong, tmp_path):
    (line,) = check(tmp_path, body)
    assert line.startswith("index.html: ")
    assert line.endswith(wrong)


def test_a_folder_without_pages_is_no_site(tmp_path):
    run = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, check=False)
    assert run.returncode == 1
