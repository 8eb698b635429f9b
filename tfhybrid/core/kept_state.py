"""State that a rank keeps beside an engine's tables, for a restart from memory."""

from __future__ import annotations

import ctypes

from tfhybrid.core import native
from tfhybrid.core.engine import Engine


class KeptState:
    """States that this rank keeps: a note, then the tensors of the op `keep_state`. At most two.

    Args:
        engine: Engine whose store holds the states.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find(self) -> str:
        """Finds the states that this rank of a dead job kept, and returns their configuration."""
        return native.text("kept_find", self._engine.handle)

    def steps(self) -> list[int]:
        """Returns the steps whose kept state belongs to the tables as they are now."""
        steps, count = (ctypes.c_int64 * 2)(), ctypes.c_int64()
        self._engine.call("kept_steps", steps, ctypes.byref(count))
        return list(steps)[: count.value]

    def resume(self, step: int, size: int) -> bytes:
        """Returns the state of a step, and drops later ones.

        Args:
            step: One of `steps`.
            size: Bytes of a state.
        """
        state = ctypes.create_string_buffer(size)
        self._engine.call("kept_resume", ctypes.c_int64(step), state, ctypes.c_int64(size))
        return state.raw

    def make(self, configuration: str, size: int) -> None:
        """Reserves space for the states of this rank.

        Args:
            configuration: Description of a state, for `find` after a restart.
            size: Bytes of a state, including the note.
        """
        self._engine.call("kept_make", configuration.encode(), ctypes.c_int64(size))

    def note(self, note: bytes) -> None:
        """Sets the note with which each later state begins. Not during a step."""
        self._engine.call("kept_note", note, ctypes.c_int64(len(note)))

    def forget(self) -> None:
        """Drops the kept states, and keeps no more."""
        self._engine.call("kept_forget")
