"""The record of the best checkpoint."""

from __future__ import annotations

import pytest

from tfhybrid.checkpoint import best
from tfhybrid.checkpoint.best import Best
from tfhybrid.errors import CheckpointError


def test_the_record_is_read_as_it_was_written(tmp_path) -> None:
    assert best.read(tmp_path) is None
    best.write(tmp_path, Best(3, "val_auc", 0.75))
    assert best.read(tmp_path) == Best(3, "val_auc", 0.75)


@pytest.mark.parametrize(
    "value", ["9" * 400, "1e999", "NaN", "true", '"0.5"'], ids=lambda value: value[:6]
)
def test_a_value_that_is_no_finite_number_is_damage(tmp_path, value: str) -> None:
    record = f'{{"step": 3, "monitor": "val_auc", "value": {value}}}'
    (tmp_path / best.RECORD).write_text(record)
    with pytest.raises(CheckpointError, match="a finite number"):
        best.read(tmp_path)
