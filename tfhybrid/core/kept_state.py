"""What a rank keeps beside the tables of an engine, for a restart from memory."""

from __future__ import annotations

import ctypes

from tfhybrid.core import native
from tfhybrid.core.engine import Engine


class KeptState:
    """The states that this rank keeps, two at most: the note, then what `keep_state` is given.

    Args:
        engine: In whose store they lie.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find(self) -> str:
        """Takes over what this rank of a dead job kept; returns the configuration it was of."""
        return native.text("kept_find", self._engine.handle)

    def steps(self) -> list[int]:
        """Returns the steps of which a state is kept that belongs to the tables as they are."""
        steps, count = (ctypes.c_int64 * 2)(), ctypes.c_int64()
        self._engine.call("kept_steps", steps, ctypes.byref(count))
        return list(steps)[: count.value]

    def resume(self, step: int, size: int) -> bytes:
        """Returns the state of a step, and forgets what came after it."""
        state = ctypes.create_string_buffer(size)
        self._engine.call("kept_resume", ctypes.c_int64(step), state, ctypes.c_int64(size))
        return state.raw

    def make(self, configuration: str, size: int) -> None:
        """Makes room for the states of this rank, of `size` bytes each."""
        self._engine.call("kept_make", configuration.encode(), ctypes.c_int64(size))

    def note(self, note: bytes) -> None:
        """Sets what each state begins with from now on."""
        self._engine.call("kept_note", note, ctypes.c_int64(len(note)))

    def forget(self) -> None:
        """Keeps no state any more."""
        self._engine.call("kept_forget")
