"""Bases of target models, written by the clock."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from tfhybrid.errors import TfhybridError
from tfhybrid.stream.sync_unit.target_model import TargetModel

_log = logging.getLogger("tfhybrid.stream")


class Saver:
    """Writes a base of each model that has changed, every so many seconds, on a thread of its own.

    A journal then holds what came since the last base, and a restart replays no more. What cannot
    be written is told, and tried again the next time: the journal still has all.

    Args:
        models: By name.
        seconds: From one round to the next.
    """

    def __init__(self, models: Mapping[str, TargetModel], seconds: float) -> None:
        self._models = models
        self._seconds = seconds
        self._saved = {name: model.version for name, model in models.items()}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfhybrid-saver", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, once it has saved what has changed."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        ends = False
        while not ends:
            ends = self._ends.wait(self._seconds)
            for name, model in self._models.items():
                self._save(name, model)

    def _save(self, name: str, model: TargetModel) -> None:
        version = model.version
        if version == self._saved[name]:
            return
        try:
            folder = model.save()
        except (OSError, TfhybridError) as error:
            _log.error("Model '%s': no base was written: %s", name, error)
            return
        self._saved[name] = version
        _log.info("Model '%s': base %s, %d updates", name, folder.name, version)
