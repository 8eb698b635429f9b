"""Data sets that data nodes read: the same script with and without them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.core import split_batches
from tfhybrid.data.announced import Layer
from tfhybrid.data.position import Position
from tfhybrid.data.samples.sharding import Shard
from tfhybrid.data_nodes.data_request import Wanted
from tfhybrid.data_nodes.data_streams import (
    BY_BATCH,
    BY_FILE,
    of_any_size,
    told_by,
)
from tfhybrid.data_nodes.elements import (
    DENSE,
    RAGGED,
    Leaf,
    flatten,
    unflatten,
)
from tfhybrid.data_nodes.elements import features_of as features_in
from tfhybrid.data_nodes.feed import Feed
from tfhybrid.data_nodes.grouping import GROUPS, by_label
from tfhybrid.data_nodes.key_links import JOINS
from tfhybrid.data_nodes.read_log import middle
from tfhybrid.data_nodes.splitting import Declared
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine
from tfhybrid.errors import ConfigError
from tfhybrid.job import current_job
from tfhybrid.job.job import Job
from tfhybrid.monitoring import metrics

_SHARES = (BY_BATCH, BY_FILE)
# A lookup of a step waits for the step before; evaluation may have several steps under way.
_LAG = {True: 2, False: 16}

_START = Position()

MakeDataset = Callable[..., Any]


def from_nodes(
    make_dataset: MakeDataset,
    layers: Layer | Sequence[Layer],
    *,
    arguments: Mapping[str, Any] | None = None,
    trains: bool = True,
    share: str = "batch",
    join: str = "request",
    ahead: int = 4,
    most_bytes: int = 1 << 28,
    group_by: str | None = None,
    staleness: int = 0,
    read_log: str | None = None,
    position: Position = _START,
) -> Any:
    """Returns the batches of this rank, which data nodes read where the job has some.

    A data node calls the function in its own process. It gives the keys of the layers' features to
    the embedding nodes, and sends this rank everything else, with *places* where keys were: numbers
    of the same shape that mean the rows of these keys. So the model stays as it is, and what is
    trained, too, bit for bit. Without data nodes this is `make_dataset(shard)`.

    Nothing behind it may keep batches back or put them into another order, as `shuffle` does:
    owners forget the keys of a batch once later ones were looked up.

    Args:
        make_dataset: A function of the script that was named to the data nodes, not a nested one.
            It takes a `Shard`, and `arguments`, and returns a `tf.data.Dataset` of batches, or
            another iterable of NumPy arrays: a dict of features, or a tuple that begins with one.
            Called again with the same arguments it must return the same data.
        layers: One or several collections that look features up.
        arguments: Further arguments of the function, which JSON can say.
        trains: Whether the batches are trained; without it an update of them is refused.
        share: How several data nodes share the work. `"batch"`: each reads the shard of this rank,
            and sends every so many'th batch, in order. `"file"`: each reads a shard of its own,
            and they take turns.
        join: Who speaks first of the rows of a batch: `"request"`: this rank asks for them.
            `"notice"`: the data node tells the embedding nodes to send them, `"unasked"`: they send
            them by themselves, both as soon as the updates before are applied. The same bits.
        ahead: Batches that are asked for before they are needed.
        most_bytes: Of what was asked for and of the keys that owners hold, for this rank. One batch
            is asked for whatever its size.
        group_by: `"label"`: batches have samples of one label value each, as many as the first one
            of the data set; the last one of each value has what is left.
        staleness: How many updates the rows of a batch may lack. 0: none, the bits of a run without
            data nodes. k: rows leave the embedding nodes up to k batches before they are needed,
            and never lack more; the bits then depend on when they left. All trainers must have the
            same. It needs `trains`.
        read_log: A directory in which each rank appends to `reads-RANK.jsonl` which versions it has
            read, if `staleness` is not 0. From these logs the run can be computed again.
        position: Of the first batch, as a checkpoint has it; `NodeBatches` gives it for
            `finish_epoch`. It counts the batches of all data nodes, so that there may be any number
            of them, or none. In the midst of an epoch: the rest of that epoch alone, and not with
            `share="file"`, where who reads which file depends on that number.

    Returns:
        What the function returns, or a `tf.data.Dataset`.

    Raises:
        ConfigError: An argument cannot be.
        TfhybridError: The data nodes cannot make the data set.

    Example:

    ```python
    def train_data(shard, day):
        return tfhybrid.data.FileBatches(files_of(day), batch_size=4096, shard=shard)

    model.fit(tfhybrid.data.from_nodes(train_data, model.embeddings, arguments={"day": 3}))
    ```
    """
    if share not in _SHARES or join not in JOINS:
        raise ConfigError(
            f"share must be one of {_SHARES} and join one of {JOINS}. "
            f"Received: share={share!r}, join={join!r}"
        )
    if ahead < 1 or most_bytes < 1:
        raise ConfigError(
            f"ahead and most_bytes are at least 1. Received: ahead={ahead}, most_bytes={most_bytes}"
        )
    if group_by not in GROUPS:
        raise ConfigError(f"group_by must be one of {GROUPS}. Received: {group_by!r}")
    _check_staleness(staleness, trains=trains)
    if min(position) < 0 or (position.step and share == BY_FILE):
        raise ConfigError(
            "A position is not negative, and with share='file' at the beginning of an epoch. "
            f"Received: {position}, share={share!r}"
        )
    given = dict(arguments or {})
    job = current_job()
    if job.nodes is None or not job.nodes.data:
        made = make_dataset(Shard.of_this_process(), **given)
        return made if group_by is None and not any(position) else _local(made, group_by, position)
    name = getattr(make_dataset, "__name__", "")
    if getattr(make_dataset, "__qualname__", "") != name or not name.isidentifier():
        raise ConfigError(
            "Data nodes call a function of the script by its name, not a method, a nested one or a "
            f"lambda. Received: {make_dataset!r}"
        )
    lag = _LAG[trains]
    wanted = Wanted(
        name,
        given,
        share,
        trains,
        join,
        lag,
        ahead,
        most_bytes,
        group_by,
        *position,
        staleness=staleness,
        read_log=read_log,
    )
    fed = _Fed(job, wanted, [layers] if isinstance(layers, Layer) else list(layers))
    return fed.dataset()


def _check_staleness(staleness: object, *, trains: bool) -> None:
    if not isinstance(staleness, int) or isinstance(staleness, bool) or staleness < 0:
        raise ConfigError(f"staleness is a whole number, 0 or more. Received: {staleness!r}")
    if staleness and not trains:
        raise ConfigError(
            "Batches that are not trained lack no update: staleness must be 0 with trains=False. "
            f"Received: staleness={staleness}"
        )


class _Fed:
    """The elements of a data set that comes from nodes; may be iterated over again."""

    def __init__(self, job: Job, wanted: Wanted, layers: Sequence[Layer]) -> None:
        assert job.nodes is not None
        assert isinstance(job.engine, NodesEngine)
        self._engine = job.engine
        self._layers = layers
        split_batches.use_places(self._engine)
        self._feed: Feed = job.nodes.feed(wanted, distributed.rank(), distributed.size())
        self._log = job.nodes.read_log
        self._step = wanted.step
        self._alone = wanted.share == BY_BATCH or len(job.nodes.data) == 1

    def dataset(self) -> tf.data.Dataset:
        """Returns it as TensorFlow has it."""
        said = self._feed.describe()
        keys = {
            number
            for feature, number in features_in(said["structure"]).items()
            if any(feature in layer.features for layer in self._layers)
        }
        specs = [
            _spec(its, "int64" if number in keys else its["dtype"])
            for number, its in enumerate(said["leaves"])
        ]
        signature = unflatten(said["structure"], specs)
        made = tf.data.Dataset.from_generator(lambda: iter(self), output_signature=signature)
        length = said["cardinality"] if self._alone else tf.data.UNKNOWN_CARDINALITY
        if length >= 0:
            length = max(length - self._step, 0)
        return made.apply(tf.data.experimental.assert_cardinality(length))

    def __iter__(self) -> Iterator[Any]:
        for structure, leaves in self._feed.epoch(self._declared()):
            self._tell_missing()
            yield unflatten(structure, [_tensor(leaf) for leaf in leaves])

    def _tell_missing(self) -> None:
        missing = self._log.missing()
        if missing:
            metrics.note(metrics.MISSING_UPDATES, middle(missing), "median")
            metrics.note(metrics.MISSING_UPDATES, max(missing), "most")

    def _declared(self) -> Declared:
        tables = dict(
            itertools.chain.from_iterable(layer.table_names.items() for layer in self._layers)
        )
        missing = [
            feature for layer in self._layers for feature in layer.features if feature not in tables
        ]
        if missing:
            raise ConfigError(
                "Layers are built before data nodes send batches to them: build the model, or call "
                f"it once. Received: features {missing} without a table"
            )
        placements = {table: self._engine.placements[table] for table in tables.values()}
        first = self._engine.first_node
        return Declared(tables, placements, first, first + self._engine.nodes)


class _Local:
    """What data nodes would send, where there are none; may be iterated over again."""

    def __init__(self, made: Iterable[Any], group_by: str | None, position: Position) -> None:
        self._made = made
        self._group_by = group_by
        self._step = position.step
        self._before = position.epoch  # epochs that were not begun here

    def __iter__(self) -> Iterator[Any]:
        while self._before > 0:  # what shuffles does so each time in another way
            iter(self._made)
            self._before -= 1
        elements = self._made if self._group_by is None else by_label(self._made)
        for element in itertools.islice(elements, self._step, None):
            structure, tensors = flatten(element)
            yield unflatten(structure, [_tensor(Leaf.of(tensor)) for tensor in tensors])


def _local(made: Any, group_by: str | None, position: Position) -> Any:
    local = _Local(made, group_by, position)
    if not hasattr(made, "element_spec"):
        return local
    structure, specs = flatten(made.element_spec)
    like = [told_by(each) for each in specs]
    if group_by is not None:
        like = [of_any_size(told) for told in like]
    signature = unflatten(structure, [_spec(told, told["dtype"]) for told in like])
    return tf.data.Dataset.from_generator(lambda: iter(local), output_signature=signature)


def _tensor(leaf: Leaf) -> Any:
    if leaf.kind == DENSE:
        return leaf.values
    if leaf.kind == RAGGED:
        return tf.RaggedTensor.from_nested_row_splits(leaf.values, leaf.parts, validate=False)
    return tf.SparseTensor(leaf.parts[0], leaf.values, leaf.parts[1])


def _spec(its: Mapping[str, Any], dtype: str) -> tf.TypeSpec:
    shape, kind = its["shape"], tf.as_dtype(np.dtype(dtype))
    if its["kind"] == DENSE:
        return tf.TensorSpec(shape, kind)
    if its["kind"] == RAGGED:
        return tf.RaggedTensorSpec(shape, kind, its["ragged_rank"], tf.int64)
    return tf.SparseTensorSpec(shape, kind)
