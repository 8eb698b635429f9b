"""The README's example is the one in examples/, and it runs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "train_click_model.py"


def test_readme_shows_the_example():
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert EXAMPLE.read_text().endswith(f'"""\n\n{block.group(1)}')


def test_example_comes_close_to_the_best_possible_auc(python):
    run = python.run(str(EXAMPLE))
    assert run.returncode == 0, run.stderr
    reached, best = map(float, re.findall(r"0\.\d{4}", run.stdout.splitlines()[-1]))
    assert 0.7 < reached < best
