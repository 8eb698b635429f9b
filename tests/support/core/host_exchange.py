"""Exchange of an update between hosts by ctypes alone, as TensorFlow's ops do it in a job."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.update import Update, UpdateChoices


class HostExchange(Update):
    """An update whose messages the caller sends between ranks.

    After `post` on every rank, the leaders `merge`, send each other the result, `stage` what they
    received, and `commit`; with `exchange="owner"`, `merge_owned` comes between `merge` and
    `stage`. With `exchange="all_ranks"`, every rank instead packs a message, receives those of all
    ranks, and calls `apply_gathered`. Messages of several ranks are concatenated in their order.
    """

    def __init__(
        self, engine: Engine, name: str, tables: dict[str, int], choices: UpdateChoices
    ) -> None:
        super().__init__(engine.handle, name, tables, choices)
        self._messages = len(set(engine.hosts)) if choices.exchange == "owner" else 1

    def merge(self) -> list[np.ndarray]:
        """Waits for the posts of this host's ranks; returns what leaders get, all or each."""
        sizes = (ctypes.c_int64 * self._messages)()
        count = ctypes.c_int64()
        self._call("merge", sizes, ctypes.c_int64(self._messages), ctypes.byref(count))
        return np.split(self._merged(sum(sizes)), np.cumsum(list(sizes))[:-1])

    def merge_owned(self, parts: np.ndarray) -> np.ndarray:
        """Merges the messages that leaders sent to this one, to a message to all leaders."""
        words = ctypes.c_int64()
        self._call(
            "merge_owned", native.pointer(parts), ctypes.c_int64(len(parts)), ctypes.byref(words)
        )
        return self._merged(words.value)

    def stage(self, messages: np.ndarray) -> tuple[bool, str]:
        """Plans the update; returns whether others' complaints count too, and this host's."""
        vote = ctypes.c_int()
        complaint = native.text(
            "update_stage",
            self._engine,
            self._handle,
            native.pointer(messages),
            ctypes.c_int64(len(messages)),
            ctypes.byref(vote),
            again=False,
        )
        return bool(vote.value), complaint

    def commit(self, learning_rates: Sequence[float], complaint: str = "") -> None:
        """Applies the staged update, or tells all ranks of this host the complaint of all hosts."""
        self._call("commit", complaint.encode(), self._rates(learning_rates))

    def pack(
        self, keys: Sequence[np.ndarray], gradients: Sequence[np.ndarray], *, samples: int
    ) -> np.ndarray:
        """Packs this rank's gradients of a step."""
        contribution = self._contribution(keys, gradients, samples, native.NO_TIME, False, None)
        return native.words(
            np.int64, "update_pack", self._engine, self._handle, ctypes.byref(contribution)
        )

    def apply_gathered(self, messages: np.ndarray, learning_rates: Sequence[float]) -> None:
        """Applies the gradients of all ranks; on other ranks than the leader it counts the step."""
        self._call(
            "apply_gathered",
            native.pointer(messages),
            ctypes.c_int64(len(messages)),
            self._rates(learning_rates),
        )

    def _merged(self, words: int) -> np.ndarray:
        merged, size = np.empty(words, np.int64), ctypes.c_int64()
        self._call("merged", native.pointer(merged), ctypes.c_int64(words), ctypes.byref(size))
        return merged
