"""Progress of Keras's `fit` in its data."""

from __future__ import annotations

from typing import Any


class FitProgress:
    """Progress of `fit` in its data, which `checkpoint/broken_epoch.py` reads and writes.

    Attributes:
        restored: Position of a restored model, and the step of its optimizer then; or `None`.
        first_position: Position at which `fit` begins, if that is not the start of an epoch.
        data: Data of tfhybrid that `fit` reads; `None` for other data.
        params: Parameters of the `fit` that was asked for `data`.
        position_data: Description of the data for positions, if `fit` reads a data set of them.
    """

    def __init__(self) -> None:
        self.restored: tuple[Any, int] | None = None
        self.first_position: Any = None
        self.data: Any = None
        self.params: Any = None
        self.position_data: Any = None
