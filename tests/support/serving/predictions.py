"""Compares what an exported model answers with what its model predicts."""

from __future__ import annotations

import numpy as np

ROUNDING = 4 * float(np.finfo(np.float32).eps)


def assert_predicted(served: np.ndarray, predicted: np.ndarray) -> None:
    """Both differ at most by what float32 rounds: TensorFlow adds up in another order elsewhere.

    A logit of 8 has neighbors at a distance of 1e-6, so a bound for small ones is not enough.
    """
    np.testing.assert_allclose(served, predicted, rtol=ROUNDING, atol=1e-6)
