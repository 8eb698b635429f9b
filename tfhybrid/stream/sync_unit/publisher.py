"""Publisher of a target model: writes bases and deltas, each of which appears at once.

It runs in the sync unit's process, which has the rows and tracks their changes.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Mapping
from typing import Any

from tfhybrid.checkpoint import storage
from tfhybrid.errors import ConfigError, CorruptFileError, PublicationError, TfhybridError
from tfhybrid.stream.sync_unit import published_rows
from tfhybrid.stream.sync_unit.published_rows import WrittenRows
from tfhybrid.stream.sync_unit.snapshot import WeightSnapshot
from tfhybrid.stream.sync_unit.target_model import TargetModel
from tfhybrid.stream.weights import publication as files
from tfhybrid.stream.weights import wall_clock
from tfhybrid.stream.weights.publication import ChainMember, Pointer, Publication

_log = logging.getLogger("tfhybrid.stream")


@dataclasses.dataclass(frozen=True)
class PublishRules:
    """Settings of a model's publications, from `stream.yaml`.

    Args:
        folder: Folder of the publications, or a URL that TensorFlow can write to.
        seconds: Time between two publications, in seconds. Default 600.
        rows: Number of trained rows after which to publish earlier. Default: `None`, by time
            alone.
        deltas: Maximum number of deltas after a base. Default 24.
        keep: Number of chains to keep, for late readers and for rollbacks. Default 2, minimum 1.
        auc_drop: Maximum fall of the AUC below that of the previous publication, from 0 to 1;
            weights that fall further are withheld. Default: `None`, no limit.
        auc_rows: Minimum number of rows in an AUC that decides this. Default 1000.

    Raises:
        ConfigError: A number is out of range.
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
                "Publications need seconds above 0, rows of at least 1, deltas of at least 0, keep "
                "of at least 1, auc_drop from 0 to below 1, and auc_rows of at least 1. "
                f"Received: {self}"
            )


class WithheldError(PublicationError):
    """Error: weights are withheld, because they are not finite or the AUC has fallen."""


class _AucError(WithheldError):
    """Error: weights are withheld, because the AUC has fallen."""


class _NeedsBaseError(TfhybridError):
    """Error: the changes of a table are unknown, so the publication must be a base."""


class Published:
    """Publications of earlier processes, read when a publisher starts.

    Publications that are incomplete or damaged are skipped; a damaged newest one is logged. A chain
    is a base (all rows) and its deltas (the rows that changed). Each fresh start of the weights
    gets a new incarnation number.

    Args:
        rules: Settings of the model's publications.

    Attributes:
        folder: Folder of the publications.
        last: Newest publication, and the same as a member of its chain; `None` if there is none
            that can be read.
        incarnation: Highest number of an incarnation; 0 without publications.
        number: Highest number of a publication; 0 without publications.

    Raises:
        OSError: The folder cannot be read.
    """

    def __init__(self, rules: PublishRules) -> None:
        self.folder = storage.location(rules.folder)
        self.last: tuple[Publication, ChainMember] | None = None
        self.incarnation = 0
        self.number = max(files.numbers(self.folder), default=0)
        for number in files.numbers(self.folder):
            try:
                publication = files.read_manifest(self.folder, number)
            except TfhybridError:
                continue  # incomplete or damaged
            self.incarnation = max(self.incarnation, publication.incarnation)
        try:
            pointer = files.current(self.folder)
            if pointer is not None:
                self.number = max(self.number, pointer.number)
                self.incarnation = max(self.incarnation, pointer.incarnation)
                publication = files.read_manifest(self.folder, pointer.number, pointer.crc)
                member = ChainMember(pointer.number, pointer.crc, publication.bytes)
                self.last = publication, member
        except TfhybridError as error:
            _log.error("The newest publication cannot be read; the next one is a base. %s", error)

    @property
    def weights(self) -> tuple[int, str] | None:
        """Number and hash of all updates in the newest publication; `None` if there is none."""
        return None if self.last is None else (self.last[0].version, self.last[0].history)


class Publisher:
    """Publisher of a target model. Thread-safe: makes one publication at a time.

    Changes that could not be published are part of the next publication. A process that is killed
    leaves either the previous publication or the new one. The next process continues the chain if
    its weights are those of the last member; otherwise it starts a new incarnation.

    Args:
        model: Target model, created with `published=earlier.weights`.
        rules: Settings of the model's publications.
        earlier: Publications of earlier processes in the same folder.

    Attributes:
        counts: Number of publications that were published, withheld, and that failed.
        bytes: Size of all publications of this process, in bytes.
    """

    def __init__(self, model: TargetModel, rules: PublishRules, earlier: Published) -> None:
        self.model = model
        self.rules = rules
        self._folder = earlier.folder
        self._number = earlier.number
        self._last = earlier.last if model.knows_changes else None
        self._incarnation = earlier.incarnation + (0 if model.knows_changes else 1)
        self._auc = None if earlier.last is None else earlier.last[0].auc
        self._suspected = False  # whether the AUC had fallen at the last check
        self._lock = threading.Lock()
        self.counts = {"published": 0, "withheld": 0, "failed": 0}
        self.bytes = 0

    @property
    def last(self) -> Publication | None:
        """Newest publication of the current history of weights; `None` if there is none yet."""
        return None if self._last is None else self._last[0]

    def due(self, seconds: float) -> bool:
        """Returns whether it is time to publish.

        Args:
            seconds: Time since the last publication, in seconds.

        Returns:
            Whether the time of the rules is over, or enough samples were trained.
        """
        rows = self.rules.rows
        enough = rows is not None and self.model.unpublished_rows >= rows
        return enough or seconds >= self.rules.seconds

    def publish(self, *, anyway: bool = False) -> Publication | None:
        """Publishes the changes since the last publication.

        Waits for a publication that runs on another thread. Updates may be applied meanwhile.

        Args:
            anyway: Whether to publish even if the AUC has fallen. Default: no.

        Returns:
            The publication, or `None` if nothing has changed or no trainer has opened the model.

        Raises:
            WithheldError: The weights are not finite, or the AUC has fallen.
            PublicationError: The files could not be written, or the newest pointer cannot be read.
                The next publication has the changes.
        """
        with self._lock:
            if not self.model.is_open or (
                self._last is not None and self._last[0].version == self.model.version
            ):
                return None
            try:
                publication = self._publish(anyway)
            except WithheldError as error:
                if isinstance(error, _AucError):
                    self.model.forget_scores()  # the next AUC is of new samples alone
                self.counts["withheld"] += 1
                self._note_withheld(error)
                raise
            except (OSError, TfhybridError) as error:
                self.counts["failed"] += 1
                raise PublicationError(
                    f"Model '{self.model.name}' could not be published to {self._folder}: {error}"
                ) from error
            self.counts["published"] += 1
            self.bytes += publication.bytes
            return publication

    def status(self) -> dict[str, Any]:
        """Returns figures by name: totals of this process, and those of the last publication.

        `number`, `version` and `last_bytes` are `None` before there is a publication. `auc` is the
        one that the next publication is compared with, `None` if there is none.
        """
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

    def _chain(self) -> tuple[ChainMember, ...]:
        assert self._last is not None
        return (*self._last[0].chain, self._last[1])

    def _wants_delta(self) -> bool:
        if self._last is None or not self._chain_is_there():
            return False
        base, *deltas = self._chain()
        size = sum(delta.bytes for delta in deltas)
        return len(deltas) < self.rules.deltas and size <= base.bytes

    def _chain_is_there(self) -> bool:
        """Returns whether readers find all members of the chain; logs the first that they do not.

        Raises:
            OSError: The folder cannot be read.
        """
        try:
            for member in self._chain():
                files.read_manifest(self._folder, member.number, member.crc)
        except (PublicationError, CorruptFileError) as error:
            _log.error(
                "Model '%s': the chain of publications is broken, and a new one begins: %s",
                *(self.model.name, error),
            )
            return False
        return True

    def _write(
        self, snapshot: WeightSnapshot, anyway: bool, chain: tuple[ChainMember, ...]
    ) -> Publication:
        """Writes a publication and points readers to it."""
        auc = self._judged(snapshot, anyway)
        self._number += 1
        folder = files.folder_of(self._folder, self._number)
        unfinished = storage.begin(folder)
        try:
            try:
                rows = published_rows.write(snapshot, unfinished)
            except published_rows.NotFiniteError as error:
                raise WithheldError(str(error)) from error
            publication = self._described(snapshot, chain, rows, auc)
            member = files.write_manifest(unfinished, publication)
            storage.finish(unfinished, folder)
        except BaseException:
            storage.remove(unfinished, files.MANIFEST)
            raise
        self._point_to(Pointer(member.number, member.crc, publication.incarnation))
        self._last, self._auc, self._suspected = (publication, member), auc, False
        self._prune()
        _log.info(
            "Model '%s': published %s %d, %d updates, %.1f MB",
            *(self.model.name, "base" if publication.is_base else "delta", publication.number),
            *(publication.version, publication.bytes / 1e6),
        )
        return publication

    def _described(
        self,
        snapshot: WeightSnapshot,
        chain: tuple[ChainMember, ...],
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
            files.point_to(self._folder, pointer)
        except OSError:
            # A remote store may have written the file before it failed.
            if files.current(self._folder) != pointer:
                raise

    def _judged(self, snapshot: WeightSnapshot, anyway: bool) -> float | None:
        """Returns the AUC to compare the next publication with; raises if it has fallen."""
        observed = snapshot.observed
        auc = observed.auc if observed.judged >= self.rules.auc_rows else None
        max_drop = self.rules.auc_drop
        if anyway or max_drop is None or self._auc is None:
            return self._auc if auc is None else auc
        if auc is None and self._suspected:
            raise WithheldError(
                f"The AUC has fallen, and it takes {self.rules.auc_rows} new samples to see "
                f"whether it has risen again. Received: {observed.judged} samples"
            )
        if auc is not None and auc < self._auc - max_drop:
            self._suspected = True
            raise _AucError(
                f"The AUC may fall by at most {max_drop} from {self._auc:.5f}. Received: {auc:.5f} "
                f"on the last {observed.judged} samples, at version {snapshot.version}"
            )
        return self._auc if auc is None else auc

    def _note_withheld(self, error: WithheldError) -> None:
        reason = f"Model '{self.model.name}': {error}"
        _log.error("Withheld. %s", reason)
        try:
            files.note_withheld(self._folder, self.model.version, reason, wall_clock.now())
        except OSError as failure:
            _log.error("The reason could not be written to %s: %s", self._folder, failure)

    def _prune(self) -> None:
        """Removes publications that are no longer needed; failures are logged and tried again."""
        try:
            held = files.held(self._folder)
            kept = self._kept({} if held is None else {held.number: held.crc})
            for number in files.numbers(self._folder):
                if number not in kept:
                    storage.remove(files.folder_of(self._folder, number), files.MANIFEST)
        except (OSError, TfhybridError) as error:
            _log.warning(
                "Model '%s': old publications could not be removed: %s", self.model.name, error
            )

    def _kept(self, others: Mapping[int, int]) -> set[int]:
        """Returns the numbers of the publications to keep.

        Args:
            others: Checksum of other publications to keep, with their chains, by number.
        """
        base, *deltas = self._chain()
        kept = {base.number, *(member.number for member in deltas)}
        for number, crc in others.items():
            kept |= _members(files.read_manifest(self._folder, number, crc))
        older = [number for number in files.numbers(self._folder) if number < base.number]
        chains = 1
        while older and chains < self.rules.keep:
            try:
                members = _members(files.read_manifest(self._folder, older[-1]))
            except TfhybridError:
                members = set()  # incomplete or damaged
            chains += bool(members)
            kept |= members
            older = [number for number in older[:-1] if number not in members]
        return kept


def _members(publication: Publication) -> set[int]:
    return {publication.number, *(member.number for member in publication.chain)}
