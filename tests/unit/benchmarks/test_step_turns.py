"""Which sides the step benchmark runs for which distributions of ids."""

from __future__ import annotations

from benchmarks.step.step.__main__ import turns_of


def test_a_bound_is_measured_once_for_all_distributions_of_ids():
    assert turns_of(["bound", "tfhybrid"], ["zipf", "uniform"]) == {
        "zipf": ["bound", "tfhybrid zipf"],
        "uniform": ["bound", "tfhybrid uniform"],
    }
