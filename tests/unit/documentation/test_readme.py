"""README is short, and its example is part of a script in examples/ that runs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "examples" / "train_click_model.py"


def test_readme_is_short_and_begins_with_the_installation():
    lines = README.splitlines()
    assert len(lines) <= 90
    assert any(line.startswith("pip install --no-build-isolation .") for line in lines[:25])


def test_readme_shows_the_example():
    block = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    assert len([line for line in block.splitlines() if line]) <= 14
    assert f"# README's part:\n{block}# End of README's part.\n" in EXAMPLE.read_text()


def test_example_comes_close_to_the_best_possible_auc(python):
    run = python.run(str(EXAMPLE))
    assert run.returncode == 0, run.stderr
    reached, best = map(float, re.findall(r"AUC (0\.\d{4})", run.stdout))
    assert 0.95 < (reached - 0.5) / (best - 0.5) < 1
