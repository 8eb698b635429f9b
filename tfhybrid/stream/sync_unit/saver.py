"""Saver of target models, which writes their bases at intervals."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from tfhybrid.errors import TfhybridError
from tfhybrid.stream.sync_unit.target_model import TargetModel

_log = logging.getLogger("tfhybrid.stream")


class Saver:
    """Thread that writes a base (a complete copy on disk) of each changed model at intervals.

    This keeps journals short: a restart replays only the updates since the last base. If a base
    cannot be written, the error is logged and the next round tries again; the journal still has all
    updates. The thread starts at once, and `close` ends it.

    Args:
        models: Target models by name.
        seconds: Time between two rounds, in seconds.
    """

    def __init__(self, models: Mapping[str, TargetModel], seconds: float) -> None:
        self._models = models
        self._seconds = seconds
        self._saved = {name: model.version for name, model in models.items()}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfhybrid-saver", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Saves the models that have changed, ends the saver's thread, and waits for its end.

        An error in saving is logged, not raised. Not to be called by the saver's thread itself.
        """
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
            _log.error("Model '%s': the base could not be written: %s", name, error)
            return
        self._saved[name] = version
        _log.info("Model '%s': wrote %s, %d updates", name, folder.name, version)
