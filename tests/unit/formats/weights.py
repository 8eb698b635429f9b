"""The files of a target model: specification, update, journal, bases and publications."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tests.unit.checkpoint import conftest as checkpoints
from tfhybrid.core.frozen_table import TableFile
from tfhybrid.core.native import OptimizerKind, crc32c
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.sync_unit.published_rows import write as write_rows
from tfhybrid.stream.sync_unit.target_model import TargetModel
from tfhybrid.stream.weights import publication, weight_base
from tfhybrid.stream.weights.lease import FENCES_PER_TERM, Lease
from tfhybrid.stream.weights.model_spec import (
    DENSE_DIM,
    DENSE_TABLE,
    ModelSpec,
    TableSpec,
)
from tfhybrid.stream.weights.observed import Observed
from tfhybrid.stream.weights.weight_update import WeightUpdate

# Model specification.

SPEC = ModelSpec(
    tables={
        "item": TableSpec(
            dim=3,
            initializer=(2, -0.25, 0.5),
            optimizer={"kind": OptimizerKind.ADAGRAD, "epsilon": 0.125},
            slots=1,
            slot_dim=2,
            policy={"admission": 4.0, "unseen_steps": 5.0},
        ),
        "user": TableSpec(dim=6),
    },
    dense=[(7, 8), ()],
    seed=9,
    dense_optimizer={"kind": OptimizerKind.ADAM, "beta_1": 0.75},
    dense_slots=10,
    statistics=((11,),),
)


def write_spec(folder: Path, _: Path) -> None:
    (folder / "spec.json").write_text(SPEC.to_json())


def read_spec(folder: Path, _: Path) -> ModelSpec:
    return ModelSpec.from_json((folder / "spec.json").read_text())


# Weight update, as a record.

OBSERVED = Observed(2, {1000: 3, 1001: 4}, {-5: (6, 7), 8: (9, 10)})


def update_of(number: int, dense: int = 1) -> WeightUpdate:
    """An update of `SMALL`, of the lease that begins at record `number`; sums of powers of two."""
    keys = {
        "item": np.array([-(2**40), number, 2**40 + number]),
        "user": np.array([7 + number]),
        DENSE_TABLE: np.arange(dense),
    }
    return WeightUpdate(
        model="ads",
        queue="video",
        fence=FENCES_PER_TERM + number,
        begin=QueuePosition(number, 20),
        end=QueuePosition(number + 1, 20),
        rows=30,
        trainer="trainer-3",
        version=40,
        keys=keys,
        values={
            "item": np.arange(9, dtype=np.float32).reshape(3, 3) / 4 + number,
            "user": np.array([[0.5, -0.75]], np.float32),
            DENSE_TABLE: np.full((dense, DENSE_DIM), 0.125, np.float32),
        },
        rates={"item": 0.0625, "user": 0.03125},
        observed=OBSERVED.to_json(),
        event_time=1234567890 + number,
    )


def fields_of(update: WeightUpdate) -> dict[str, Any]:
    """Returns its fields, in a form in which they can be compared."""
    found = {each.name: getattr(update, each.name) for each in dataclasses.fields(update)}
    for name in ("keys", "values"):
        found[name] = {
            table: (str(array.dtype), array.tolist()) for table, array in found[name].items()
        }
    return found


def write_update(folder: Path, _: Path) -> None:
    record = update_of(10).to_record()
    (folder / "attributes.json").write_text(json.dumps(dict(record.attributes)))
    (folder / "payload.safetensors").write_bytes(record.payload)


def read_update(folder: Path, _: Path) -> Any:
    record = dataclasses.replace(
        update_of(0).to_record(),
        payload=(folder / "payload.safetensors").read_bytes(),
        attributes=json.loads((folder / "attributes.json").read_text()),
    )
    update = WeightUpdate.from_record(record)
    return fields_of(update), Observed.from_json(update.observed, 2)


# A target model: the journal with each kind of record, a base, and the rows that are published.

SMALL = ModelSpec({"item": TableSpec(3), "user": TableSpec(2)}, [(2, 3), (1,)], seed=5)
DENSE = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array([-8], np.float32)]


def state_of(model: TargetModel) -> dict[str, Any]:
    """Returns what a model has of its files."""
    with model.publishing(only_changed=False) as snapshot:
        return {
            "version": snapshot.version,
            "history": snapshot.history,
            "digests": model.digests(),
            "standing": model.standing(),
        }


def write_model(folder: Path, memory: Path) -> None:
    model = TargetModel("ads", folder, memory)
    try:
        model.open(SMALL, DENSE)
        model.begin("video", QueuePosition(1, 20))
        model.apply(update_of(1))
        model.skip(
            "video", Lease(FENCES_PER_TERM, "t", QueuePosition(2, 20), QueuePosition(3, 5), 2)
        )
        model.apply(update_of(4))
        model.save()
        model.begin("video", QueuePosition(1, 20))
        model.apply(dataclasses.replace(update_of(6), fence=2 * FENCES_PER_TERM))
        with model.publishing(only_changed=False) as snapshot:
            (folder / "published").mkdir()
            write_rows(snapshot, folder / "published")
    finally:
        model.close()


def read_model(folder: Path, memory: Path) -> Any:
    """What a process finds that is started anew: behind the base, and with the journal alone."""
    found = []
    for number, left_out in enumerate(["published", "base-*"]):
        copy, store = memory / f"copy-{number}", memory / f"store-{number}"
        store.mkdir(parents=True)
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(left_out))
        model = TargetModel("ads", copy, store)
        try:
            found.append(state_of(model))
        finally:
            model.close()
    return found


MODEL = {
    "version": 3,
    "history": "0b2adb1d5bcc8946",
    "digests": {
        "item": 532721169764899685,
        "user": 2788533796336066098,
        DENSE_TABLE: 5594128830380923379,
    },
    "standing": {"video": (QueuePosition(3, 5), 2)},
}


# The base of a model that begins with a checkpoint: its history comes from digests.

FROM_CHECKPOINT = ModelSpec({"item": TableSpec(3, (2, -0.05, 0.05))}, [(2, 3), (1,)], seed=5)


def write_first_base(folder: Path, memory: Path) -> None:
    saved = memory / "checkpoints"
    saved.mkdir()
    checkpoints.write_checkpoint(saved, 7, [checkpoints.rows(0, 4)])
    model = TargetModel("ads", folder, memory)
    try:
        model.open(FROM_CHECKPOINT, DENSE, (str(saved), 7))
    finally:
        model.close()


def read_first_base(folder: Path, memory: Path) -> Any:
    shutil.copytree(folder, memory / "copy")
    model = TargetModel("ads", memory / "copy", memory)
    try:
        return state_of(model)
    finally:
        model.close()


FIRST_BASE = {
    "version": 7,
    "history": "21c5f20e0000f1c3",
    "digests": {"item": 12032500706671936113, DENSE_TABLE: 11291675094039395342},
    "standing": {},
}


# Base.

BASE = weight_base.WeightBase(
    spec=SPEC.to_json(),
    version=41,
    journal=42,
    epochs={"video": 43, "text": 44},
    done={
        "video": (
            QueuePosition(45, 46),
            [
                (QueuePosition(47, 48), QueuePosition(49, 50)),
                (QueuePosition(51, 52), QueuePosition(53, 54)),
            ],
        ),
        "text": (QueuePosition(55, 56), []),
    },
    optimizer_starts={"item": 57, DENSE_TABLE: 58},
    history="0123456789abcdef",
    event_time=59,
)
ROWS = b"rows of item"
ROWS_FILE = "item-00000.safetensors"


def write_base(folder: Path, _: Path) -> None:
    def write_tables(at: Path) -> list[tuple[str, str, TableFile]]:
        (at / ROWS_FILE).write_bytes(ROWS)
        return [("item", ROWS_FILE, TableFile(1, len(ROWS), 2, crc32c(ROWS)))]

    weight_base.write(folder, BASE, write_tables)


def read_base(folder: Path, _: Path) -> Any:
    base, found = weight_base.read(weight_base.newest_first(folder)[0])
    return base, [(table, path.name) for table, path in found]


# Publication, with the files beside it.

PUBLISHED = publication.Publication(
    number=61,
    incarnation=62,
    spec=SPEC.to_json(),
    version=63,
    history="fedcba9876543210",
    chain=(publication.ChainMember(64, 65, 66), publication.ChainMember(67, 68, 69)),
    files=(
        publication.PublishedFile("item", "removed", "item-evicted.safetensors", 70),
        publication.PublishedFile("user", "rows", "user-00000.safetensors", 71),
    ),
    rows=72,
    removed=73,
    bytes=74,
    samples=75,
    times={1000: 76, 1001: 77},
    auc=0.78125,
    published=1700000000.5,
)


def write_publication(folder: Path, _: Path) -> None:
    own = publication.folder_of(folder, PUBLISHED.number)
    own.mkdir()
    member = publication.write_manifest(own, PUBLISHED)
    publication.point_to(folder, publication.Pointer(member.number, member.crc, 62))
    publication.point_to(folder, publication.Pointer(81, 82, 83), publication.HELD)
    publication.note_withheld(folder, 84, "AUC", 1700000001.5)


def read_publication(folder: Path, _: Path) -> Any:
    current = publication.current(folder)
    return (
        publication.read_manifest(folder, current.number, current.crc),
        (current.number, current.incarnation, current.held),
        publication.held(folder),
        publication.withheld(folder),
    )


PUBLICATION = (
    PUBLISHED,
    (61, 62, False),
    publication.Pointer(81, 82, 83, held=True),
    {"version": 84, "reason": "AUC", "time": 1700000001.5},
)
