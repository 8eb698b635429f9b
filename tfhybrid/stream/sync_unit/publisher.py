"""The publisher of a target model: decides what is published, and lets it appear at once.

It runs in the sync unit's process, where the rows lie and where what changes them is noted.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Mapping
from typing import Any

from tfhybrid.checkpoint import storage
from tfhybrid.errors import ConfigError, PublicationError, TfhybridError
from tfhybrid.stream.sync_unit import published_rows
from tfhybrid.stream.sync_unit.published_rows import WrittenRows
from tfhybrid.stream.sync_unit.target_model import Snapshot, TargetModel
from tfhybrid.stream.weights import publication as files
from tfhybrid.stream.weights import wall_clock
from tfhybrid.stream.weights.publication import Member, Pointer, Publication

_log = logging.getLogger("tfhybrid.stream")


@dataclasses.dataclass(frozen=True)
class PublishRules:
    """What `stream.yaml` says of the publications of a model.

    Args:
        folder: Where they go: a folder, or a URL that TensorFlow can write to.
        seconds: From one to the next.
        rows: After how many rows of data one comes earlier; by default not.
        deltas: How many deltas follow a base, at most.
        keep: How many chains are kept, for readers that are late and for rollbacks.
        auc_drop: By how much the AUC may fall below that of the publication before; more is
            withheld. By default nothing is withheld for it.
        auc_rows: Of how many rows the AUC must be, to decide that.

    Raises:
        ConfigError: A number cannot be.
    """

    folder: str
    seconds: float = 600.0
    rows: int | None = None
    deltas: int = 24
    keep: int = 2
    auc_drop: float | None = None
    auc_rows: int = 1000

    def __post_init__(self) -> None:
        legal = self.seconds > 0 and self.deltas >= 0 and self.keep >= 1 and self.auc_rows >= 1
        legal = legal and (self.rows is None or self.rows >= 1)
        if not legal or (self.auc_drop is not None and not 0 <= self.auc_drop < 1):
            raise ConfigError(
                "Publications have seconds above 0, rows from 1, deltas from 0, keep from 1, "
                f"auc_drop from 0 to 1 and auc_rows from 1. Received: {self}"
            )


class WithheldError(PublicationError):
    """Weights are not published: they are not finite, or the AUC has fallen."""


class _AucError(WithheldError):
    """The AUC has fallen."""


class _NeedsBaseError(TfhybridError):
    """What has changed is not known of all tables."""


class Published:
    """What a publisher finds when it starts: the publications of those before it.

    Args:
        rules: Of the model.

    Attributes:
        last: The newest publication and its place in the chain; `None` if there is none that can
            be read.
    """

    def __init__(self, rules: PublishRules) -> None:
        self.place = storage.location(rules.folder)
        self.last: tuple[Publication, Member] | None = None
        self.incarnation = 0
        self.number = max(files.numbers(self.place), default=0)
        for number in files.numbers(self.place):
            try:
                found = files.read_manifest(self.place, number)
            except TfhybridError:
                continue  # it was never complete, or is damaged
            self.incarnation = max(self.incarnation, found.incarnation)
        try:
            pointer = files.current(self.place)
            if pointer is not None:
                self.number = max(self.number, pointer.number)
                self.incarnation = max(self.incarnation, pointer.incarnation)
                found = files.read_manifest(self.place, pointer.number, pointer.crc)
                self.last = found, Member(pointer.number, pointer.crc, found.bytes)
        except TfhybridError as error:
            _log.error("The next publication will be a base: %s", error)

    @property
    def weights(self) -> tuple[int, str] | None:
        """Version and history of what was published last."""
        return None if self.last is None else (self.last[0].version, self.last[0].history)


class Publisher:
    """Publishes a target model. Thread-safe: one publication at a time.

    What could not be published is part of the next publication. A process that is killed leaves
    the publication before, or the new one; the next process goes on with the chain if it has the
    weights of its last member, and begins a new incarnation if not.

    Args:
        model: The target model, opened with `found.weights`.
        rules: What is published, and when.
        found: What was there.
    """

    def __init__(self, model: TargetModel, rules: PublishRules, found: Published) -> None:
        self.model = model
        self.rules = rules
        self._place = found.place
        self._number = found.number
        self._last = found.last if model.continues else None
        self._incarnation = found.incarnation + (0 if model.continues else 1)
        self._auc = None if found.last is None else found.last[0].auc
        self._suspected = False  # the AUC had fallen when it was judged last
        self._lock = threading.Lock()
        self.counts = {"published": 0, "withheld": 0, "failed": 0}
        self.bytes = 0

    @property
    def last(self) -> Publication | None:
        """The newest publication of this incarnation."""
        return None if self._last is None else self._last[0]

    def due(self, seconds: float) -> bool:
        """Whether it is time, so many seconds after the last one."""
        rows = self.rules.rows
        enough = rows is not None and self.model.unpublished_rows >= rows
        return enough or seconds >= self.rules.seconds

    def publish(self, *, anyway: bool = False) -> Publication | None:
        """Publishes what has changed.

        Args:
            anyway: Even if the AUC has fallen.

        Returns:
            The publication, or `None` if nothing has changed.

        Raises:
            WithheldError: The weights are not finite, or the AUC has fallen.
            PublicationError: They could not be written. The next publication has them.
        """
        with self._lock:
            if not self.model.is_open or (
                self._last is not None and self._last[0].version == self.model.version
            ):
                return None
            try:
                made = self._publish(anyway)
            except WithheldError as error:
                if isinstance(error, _AucError):
                    self.model.forget_scores()  # the next rows are judged by themselves
                self.counts["withheld"] += 1
                self._note_withheld(error)
                raise
            except (OSError, TfhybridError) as error:
                self.counts["failed"] += 1
                raise PublicationError(
                    f"Model '{self.model.name}' could not be published to {self._place}: {error}"
                ) from error
            self.counts["published"] += 1
            self.bytes += made.bytes
            return made

    def status(self) -> dict[str, Any]:
        """Returns what people want to know: numbers of the last publication, and counts."""
        last = self._last
        return {
            **self.counts,
            "bytes": self.bytes,
            "number": None if last is None else last[0].number,
            "version": None if last is None else last[0].version,
            "incarnation": self._incarnation,
            "auc": self._auc,
            "last_bytes": None if last is None else last[0].bytes,
        }

    def _publish(self, anyway: bool) -> Publication:
        if self._wants_delta():
            try:
                with self.model.publishing(only_changed=True) as snapshot:
                    if any(frozen.whole for frozen in snapshot.frozen.values()):
                        raise _NeedsBaseError
                    return self._write(snapshot, anyway, self._chain())
            except _NeedsBaseError:
                pass
        with self.model.publishing(only_changed=False) as snapshot:
            return self._write(snapshot, anyway, ())

    def _chain(self) -> tuple[Member, ...]:
        assert self._last is not None
        return (*self._last[0].chain, self._last[1])

    def _wants_delta(self) -> bool:
        if self._last is None:
            return False
        base, *deltas = self._chain()
        return len(deltas) < self.rules.deltas and sum(it.bytes for it in deltas) <= base.bytes

    def _write(self, snapshot: Snapshot, anyway: bool, chain: tuple[Member, ...]) -> Publication:
        """Writes a publication and points readers to it."""
        auc = self._judged(snapshot, anyway)
        self._number += 1
        folder = files.folder_of(self._place, self._number)
        unfinished = storage.begin(folder)
        try:
            try:
                rows = published_rows.write(snapshot, unfinished)
            except published_rows.NotFiniteError as error:
                raise WithheldError(str(error)) from error
            made = self._described(snapshot, chain, rows, auc)
            member = files.write_manifest(unfinished, made)
            storage.finish(unfinished, folder)
        except BaseException:
            storage.remove(unfinished, files.MANIFEST)
            raise
        self._point_to(Pointer(member.number, member.crc, made.incarnation))
        self._last, self._auc, self._suspected = (made, member), auc, False
        self._prune()
        _log.info(
            "Model '%s': %s %d, %d updates, %.1f MB",
            *(self.model.name, "base" if made.is_base else "delta", made.number),
            *(made.version, made.bytes / 1e6),
        )
        return made

    def _described(
        self,
        snapshot: Snapshot,
        chain: tuple[Member, ...],
        rows: WrittenRows,
        auc: float | None,
    ) -> Publication:
        return Publication(
            number=self._number,
            incarnation=self._incarnation,
            spec=snapshot.store.spec.to_json(),
            version=snapshot.version,
            history=snapshot.history,
            chain=chain,
            files=rows.files,
            rows=rows.rows,
            removed=rows.removed,
            bytes=rows.bytes,
            samples=snapshot.observed.rows,
            times=snapshot.observed.times,
            auc=auc,
            published=wall_clock.now(),
        )

    def _point_to(self, pointer: Pointer) -> None:
        try:
            files.point_to(self._place, pointer)
        except OSError:
            # A remote store may have it nevertheless: then readers have it.
            if files.current(self._place) != pointer:
                raise

    def _judged(self, snapshot: Snapshot, anyway: bool) -> float | None:
        """Returns the AUC that the next publication is compared with."""
        seen = snapshot.observed
        auc = seen.auc if seen.judged >= self.rules.auc_rows else None
        most = self.rules.auc_drop
        if anyway or most is None or self._auc is None:
            return self._auc if auc is None else auc
        if auc is None and self._suspected:
            raise WithheldError(
                f"The AUC has fallen, and {self.rules.auc_rows} new rows say whether it has risen. "
                f"Received: {seen.judged} rows"
            )
        if auc is not None and auc < self._auc - most:
            self._suspected = True
            raise _AucError(
                f"The AUC may fall by {most} from {self._auc:.5f}. Received: {auc:.5f} on the "
                f"last {seen.judged} rows, at version {snapshot.version}"
            )
        return self._auc if auc is None else auc

    def _note_withheld(self, error: WithheldError) -> None:
        reason = f"Model '{self.model.name}': {error}"
        _log.error("Withheld. %s", reason)
        try:
            files.note_withheld(self._place, self.model.version, reason, wall_clock.now())
        except OSError as failure:
            _log.error("That could not be noted: %s", failure)

    def _prune(self) -> None:
        """Removes what nobody needs any longer; what cannot be removed is tried the next time."""
        try:
            held = files.held(self._place)
            kept = self._kept({} if held is None else {held.number: held.crc})
            for number in files.numbers(self._place):
                if number not in kept:
                    storage.remove(files.folder_of(self._place, number), files.MANIFEST)
        except (OSError, TfhybridError) as error:
            _log.warning("Old publications of model '%s' stay: %s", self.model.name, error)

    def _kept(self, others: Mapping[int, int]) -> set[int]:
        """Returns the numbers of the newest chains, and of those that others are in."""
        base, *deltas = self._chain()
        kept = {base.number, *(member.number for member in deltas)}
        for number, crc in others.items():
            kept |= _members(files.read_manifest(self._place, number, crc))
        older = [number for number in files.numbers(self._place) if number < base.number]
        chains = 1
        while older and chains < self.rules.keep:
            try:
                members = _members(files.read_manifest(self._place, older[-1]))
            except TfhybridError:
                members = set()  # what was never complete
            chains += bool(members)
            kept |= members
            older = [it for it in older[:-1] if it not in members]
        return kept


def _members(found: Publication) -> set[int]:
    return {found.number, *(member.number for member in found.chain)}
