"""The clock of a training, whatever its framework, and the curve of its scores."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

Score = tuple[int, float, float]


class Clock:
    """Scores every few steps while the clock stands.

    The clock starts after the first step, in which TensorFlow traces the model. It also stands
    while the validation split is scored after each epoch, by which the learning rate falls.

    Args:
        score: Function that returns the AUC of what is scored every few steps.
        wait: Function that returns when all steps so far have ended.
        samples: Number of samples of an epoch, of all ranks.
        batch: Number of samples of a step, of all ranks.
        every: Steps between two scores.
        targets: AUCs to reach.

    Attributes:
        curve: Samples, seconds and AUC of each score.
        first_step_seconds: Duration of the first step.
    """

    def __init__(
        self,
        score: Callable[[], float],
        wait: Callable[[], object],
        *,
        samples: int,
        batch: int,
        every: int,
        targets: Sequence[float],
    ) -> None:
        self._score, self._wait = score, wait
        self._samples, self._batch = samples, batch
        self._every, self._highest = every, max(targets)
        self._steps = 0
        self._seconds = 0.0
        self.curve: list[Score] = []
        self.first_step_seconds = 0.0
        self._wait()
        self._resumed = time.perf_counter()

    def step_ended(self, epoch: int, step: int) -> bool:
        """Scores if it is time to; returns whether all targets are met, the same on all ranks.

        Args:
            epoch: Number of the epoch, from 0.
            step: Number of the step in its epoch, from 0.
        """
        self._steps += 1
        if self._steps > 1 and self._steps % self._every:
            return False
        if self._steps == 1:
            self._wait()
            self.first_step_seconds = time.perf_counter() - self._resumed
            self._resumed = time.perf_counter()
            return False
        trained = epoch * self._samples + min((step + 1) * self._batch, self._samples)
        auc = self.stopped(self._score)
        self.curve.append((trained, self._seconds, auc))
        return auc >= self._highest

    def stopped(self, score: Callable[[], float]) -> float:
        """Returns what a function returns, and stands meanwhile."""
        self._wait()
        self._seconds += time.perf_counter() - self._resumed
        result = score()
        self._resumed = time.perf_counter()
        return result


def first(curve: Sequence[Score], target: float) -> dict[str, float] | None:
    """Returns samples and seconds at the first score of at least `target`; `None` if never."""
    for samples, seconds, auc in curve:
        if auc >= target:
            return {"samples": samples, "seconds": seconds}
    return None


def parser_of(description: str | None, sides: Sequence[str]) -> argparse.ArgumentParser:
    """Returns the parser of the options that all sides have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", choices=sides, required=True)
    parser.add_argument("--part", choices=["valid", "test"], default="test", help="to be scored")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate of Adam")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", type=float, nargs="+", required=True)
    parser.add_argument("--epochs", type=int, default=20, help="at most")
    parser.add_argument("--every", type=int, default=10, help="steps between two scores")
    parser.add_argument("--samples", type=int, default=10**9, help="of each part, at most")
    return parser


def result_of(clock: Clock, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns what rank 0 prints about a run with these options."""
    return {
        "side": arguments.side,
        "part": arguments.part,
        "rate": arguments.rate,
        "seed": arguments.seed,
        "reached": {f"{each:g}": first(clock.curve, each) for each in arguments.targets},
        "best_auc": max((auc for *_, auc in clock.curve), default=0.0),
        "first_step_seconds": clock.first_step_seconds,
        "curve": clock.curve,
    }
