"""State that a rank keeps beside an engine's tables, for a restart from memory."""

from __future__ import annotations

import ctypes

from tfhybrid.core import native
from tfhybrid.core.engine import Engine


class KeptState:
    """States of the model that this rank keeps in its store, to resume after a crash. At most two.

    A state is a note (bytes from Python, such as the position in the data), then the tensors of the
    op `keep_state`: dense weights and optimizer.

    Args:
        engine: Engine whose store holds the states.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find(self) -> str:
        """Finds the states that this rank of a dead job kept, and returns their configuration.

        Raises:
            TfhybridError: The dead job kept no states, or they cannot be read.
        """
        return native.text("kept_find", self._engine.handle)

    def steps(self) -> list[int]:
        """Returns the steps, two at most, whose kept state belongs to the tables as of now.

        Raises:
            StoreError: This rank keeps no states, or no store is open.
        """
        steps, count = (ctypes.c_int64 * 2)(), ctypes.c_int64()
        self._engine.call("kept_steps", steps, ctypes.byref(count))
        return list(steps)[: count.value]

    def resume(self, step: int, size: int) -> bytes:
        """Returns the state of a step, and drops later ones.

        Args:
            step: One of `steps`.
            size: Bytes of a state.

        Raises:
            TfhybridError: There is no kept state of that step, or it has another size.
        """
        state = ctypes.create_string_buffer(size)
        self._engine.call("kept_resume", ctypes.c_int64(step), state, ctypes.c_int64(size))
        return state.raw

    def make(self, configuration: str, size: int) -> None:
        """Reserves space for the states of this rank.

        Args:
            configuration: Description of a state, for `find` after a restart.
            size: Bytes of a state, including the note.

        Raises:
            OutOfSpaceError: Shared memory is full.
            StoreError: No store is open, or the file cannot be written.
        """
        self._engine.call("kept_make", configuration.encode(), ctypes.c_int64(size))

    def note(self, note: bytes) -> None:
        """Sets the note with which each later state begins. Not during a step.

        Does nothing if this rank keeps no states.

        Args:
            note: Bytes of the note; their number is always the same.

        Raises:
            ConfigError: The note is larger than a state.
            StoreError: No store is open.
        """
        self._engine.call("kept_note", note, ctypes.c_int64(len(note)))

    def forget(self) -> None:
        """Frees the memory of the kept states. No state is kept from now on.

        Raises:
            StoreError: No store is open.
        """
        self._engine.call("kept_forget")
