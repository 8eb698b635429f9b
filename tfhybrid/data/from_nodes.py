"""Data sets that data nodes read if the job has some; the script is the same without them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfhybrid import distributed
from tfhybrid._deprecated import renamed_arguments
from tfhybrid._ending import EndingIterator
from tfhybrid.core import split_batches
from tfhybrid.data.layer_calls import Layer
from tfhybrid.data.position import Position
from tfhybrid.data.samples.generated import generated
from tfhybrid.data.samples.sharding import Shard
from tfhybrid.data_nodes.data_request import DataRequest
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
from tfhybrid.data_nodes.key_links import DELIVERIES, renamed_delivery
from tfhybrid.data_nodes.read_log import middle
from tfhybrid.data_nodes.splitting import Declared
from tfhybrid.embedding_nodes.node_links import NodeLinks
from tfhybrid.errors import ConfigError
from tfhybrid.job import current_job
from tfhybrid.monitoring import metrics

_DIVISIONS = (BY_BATCH, BY_FILE)
# Number of batches to hold, by `trains`: a training step waits for the step before, but an
# evaluation may have several steps under way.
_LAG = {True: 2, False: 16}

_START = Position()

MakeDataset = Callable[..., Any]


@renamed_arguments(join="delivery", most_bytes="max_bytes", share="divide_by")
def from_nodes(
    make_dataset: MakeDataset,
    layers: Layer | Sequence[Layer],
    *,
    arguments: Mapping[str, Any] | None = None,
    trains: bool = True,
    divide_by: str = "batch",
    delivery: str = "pull",
    ahead: int = 4,
    max_bytes: int = 1 << 28,
    group_by: str | None = None,
    staleness: int = 0,
    read_log: str | None = None,
    position: Position = _START,
) -> Any:
    """Returns the batches of this rank, which data nodes read if the job has some.

    A data node calls `make_dataset` in its own process. It sends the keys of the layers' features
    to the embedding nodes, and all other data to this rank. In place of the keys this rank gets
    *key handles*: numbers of the same shape that stand for the keys' rows. The model needs no
    change, and the trained weights are the same, bit for bit. Without data nodes the result is
    `make_dataset(shard)`.

    No later transformation may hold back or reorder batches, as `shuffle` does: owners free the
    keys of a batch after later batches were looked up.

    The layers must be built before the first batch is read. A data node that fails ends the
    iteration with an error of TensorFlow.

    Args:
        make_dataset: Function of the script that the data nodes run; not a method, a nested
            function or a lambda. It takes a `Shard` and `arguments`, and returns a
            `tf.data.Dataset` or another iterable of batches of NumPy arrays. A batch is a dict of
            features, or a tuple that begins with one. The same arguments must give the same data.
        layers: One or several collections that look up features.
        arguments: Further keyword arguments of `make_dataset`; JSON must be able to represent them.
            Default: none.
        trains: Whether the batches are trained. If false, updates of these batches are refused.
            Default true.
        divide_by: Division of the work among several data nodes. `"batch"` (default): each one
            reads the shard of this rank, and sends one batch in turn, so the order of batches
            stays. `"file"`: each one reads a shard of its own, and they take turns.
        delivery: Delivery of a batch's rows. `"pull"` (default): this rank requests them.
            `"notify"`: the data node tells the embedding nodes to send them. `"push"`: the
            embedding nodes send them without being told. In the last two cases they are sent as
            soon as the updates before the batch are applied. The results are the same, bit for bit.
        ahead: Maximum number of batches to request before they are needed, at least 1. Default 4.
        max_bytes: Maximum number of bytes of requested batches and of keys that owners hold for
            this rank, at least 1. One batch is requested whatever its size. Default 256 MiB.
        group_by: `"label"` for batches of one label value each: they have as many samples as the
            first batch of the data set, and the last batch of each value has the rest. Default:
            batches as the data set has them.
        staleness: Maximum number of updates that the rows of a batch may lack, equal on all
            trainers. With 0 (default), results are those of a run without data nodes. With k,
            embedding nodes may send rows up to k batches before they are needed, and results
            depend on when they do. Must be 0 if `trains` is false.
        read_log: Directory in which each rank appends the versions that it has read to
            `reads-RANK.jsonl`, if `staleness` is not 0. A run can be reproduced from these logs.
            Default: no log.
        position: Position of the first batch, from a checkpoint; `NodeBatches` passes it for
            `finish_epoch`. It counts the batches of all data nodes, whose number may change between
            runs. If its step is not 0, the data set is the rest of that epoch, and `divide_by` must
            be `"batch"`, because with `"file"` the files of a data node depend on their number.
            Default: the start.

    Returns:
        A `tf.data.Dataset`. Without data nodes, the result of `make_dataset`; with `group_by` or a
        `position`, its batches grouped and cut accordingly.

    Raises:
        ConfigError: An argument is invalid, or a layer has a `mask_key`.
        TfhybridError: The data nodes cannot make the data set.
        NotInitializedError: `tfhybrid.init()` was not called.

    Example:

    ```python
    def train_data(shard, day):
        return tfhybrid.data.FileBatches(files_of(day), batch_size=4096, shard=shard)

    model.fit(tfhybrid.data.from_nodes(train_data, model.embeddings, arguments={"day": 3}))
    ```
    """
    delivery = renamed_delivery(delivery)
    _check_choices(divide_by, delivery, group_by)
    if ahead < 1 or max_bytes < 1:
        raise ConfigError(
            "ahead and max_bytes must be at least 1. "
            f"Received: ahead={ahead}, max_bytes={max_bytes}"
        )
    _check_staleness(staleness, trains=trains)
    of_layers = [layers] if isinstance(layers, Layer) else list(layers)
    _check_masks(of_layers)
    if min(position) < 0 or (position.step and divide_by == BY_FILE):
        raise ConfigError(
            "A position must not be negative, and with divide_by='file' its step must be 0. "
            f"Received: {position}, divide_by={divide_by!r}"
        )
    keywords = dict(arguments or {})
    links = current_job().access.links
    if not (links and links.data):
        dataset = make_dataset(Shard.of_this_process(), **keywords)
        if group_by is None and not any(position):
            return dataset
        return _local(dataset, group_by, position)
    request = DataRequest(
        _name_in_script(make_dataset),
        keywords,
        divide_by,
        trains,
        DELIVERIES[delivery],
        _LAG[trains],
        ahead,
        max_bytes,
        group_by,
        *position,
        staleness=staleness,
        read_log=read_log,
    )
    return _Fed(links, request, of_layers).dataset()


def _check_choices(divide_by: str, delivery: str, group_by: str | None) -> None:
    if divide_by not in _DIVISIONS or delivery not in DELIVERIES:
        raise ConfigError(
            f"divide_by must be one of {_DIVISIONS} and delivery one of {tuple(DELIVERIES)}. "
            f"Received: divide_by={divide_by!r}, delivery={delivery!r}"
        )
    if group_by not in GROUPS:
        raise ConfigError(f"group_by must be one of {GROUPS}. Received: {group_by!r}")


def _name_in_script(make_dataset: MakeDataset) -> str:
    name = getattr(make_dataset, "__name__", "")
    if getattr(make_dataset, "__qualname__", "") != name or not name.isidentifier():
        raise ConfigError(
            "Data nodes call make_dataset by its name: it must be a function at the top level of "
            "the script, not a method, a nested function or a lambda. "
            f"Received: {make_dataset!r}"
        )
    return name


def _check_staleness(staleness: object, *, trains: bool) -> None:
    if not isinstance(staleness, int) or isinstance(staleness, bool) or staleness < 0:
        raise ConfigError(f"staleness must be a whole number, 0 or more. Received: {staleness!r}")
    if staleness and not trains:
        raise ConfigError(
            "Batches that are not trained cannot lack updates: staleness must be 0 with "
            "trains=False. "
            f"Received: staleness={staleness}"
        )


def _check_masks(layers: Sequence[Layer]) -> None:
    # Collections have none.
    keys = [(layer, getattr(layer, "mask_key", None)) for layer in layers]
    masking = {feature: key for layer, key in keys if key is not None for feature in layer.features}
    if masking:
        raise ConfigError(
            "Data nodes send key handles in place of keys, so that a layer cannot see its "
            "mask_key: let the data set return ragged lists without padding, and leave out "
            f"mask_key. Received: features with a mask_key {masking}"
        )


class _Fed:
    """The elements of a data set that data nodes read, for several epochs."""

    def __init__(self, links: NodeLinks, request: DataRequest, layers: Sequence[Layer]) -> None:
        self._engine = links.engine
        self._layers = layers
        split_batches.use_key_handles(self._engine)
        self._feed: Feed = links.feed(request, distributed.rank(), distributed.size())
        self._log = links.read_log
        self._step = request.step
        # Whether one data node knows the length of the whole data set.
        self._alone = request.divide_by == BY_BATCH or len(links.data) == 1

    def dataset(self) -> tf.data.Dataset:
        """Returns the data set for TensorFlow; asks the first data node for its types."""
        description = self._feed.describe()
        keys = {
            number
            for feature, number in features_in(description.structure).items()
            if any(feature in layer.features for layer in self._layers)
        }
        specs = [
            _spec(leaf, "int64" if number in keys else leaf["dtype"])
            for number, leaf in enumerate(description.leaves)
        ]
        signature = unflatten(description.structure, specs)
        dataset = generated(self._elements, signature)
        length = description.cardinality if self._alone else tf.data.UNKNOWN_CARDINALITY
        if length == tf.data.UNKNOWN_CARDINALITY:  # TensorFlow would take it for a number
            return dataset
        if length >= 0:
            length = max(length - self._step, 0)
        return dataset.apply(tf.data.experimental.assert_cardinality(length))

    def _elements(self) -> Iterator[Any]:
        for structure, leaves in self._feed.epoch(self._declared()):
            self._report_missing()
            yield unflatten(structure, [_tensor(leaf) for leaf in leaves])

    def _report_missing(self) -> None:
        """Updates the metrics of the updates that rows lacked."""
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
                "Layers must be built before data nodes send batches to them: build the model, or "
                f"call it once. Received: features {missing} without a table"
            )
        placements = {table: self._engine.placements[table] for table in tables.values()}
        first = self._engine.first_node
        return Declared(tables, placements, first, first + self._engine.nodes)


class _Local:
    """The batches that data nodes would send, in a job without them. Can be iterated several times.

    Args:
        dataset: Result of the user's function.
        group_by: Argument `group_by` of `from_nodes`.
        position: Position of the first batch.
    """

    def __init__(self, dataset: Iterable[Any], group_by: str | None, position: Position) -> None:
        self._dataset = dataset
        self._group_by = group_by
        self._step = position.step
        self._before = position.epoch  # number of earlier epochs that were not started here

    def __iter__(self) -> Iterator[Any]:
        return EndingIterator(self.elements())

    def elements(self) -> Iterator[Any]:
        """Yields the batches from the position on."""
        while self._before > 0:  # each iter() may shuffle differently, so none is left out
            iter(self._dataset)
            self._before -= 1
        elements = self._dataset if self._group_by is None else by_label(self._dataset)
        for element in itertools.islice(elements, self._step, None):
            structure, tensors = flatten(element)
            yield unflatten(structure, [_tensor(Leaf.of(tensor)) for tensor in tensors])


def _local(dataset: Any, group_by: str | None, position: Position) -> Any:
    local = _Local(dataset, group_by, position)
    if not hasattr(dataset, "element_spec"):
        return local
    structure, specs = flatten(dataset.element_spec)
    leaves = [told_by(each) for each in specs]
    if group_by is not None:
        leaves = [of_any_size(leaf) for leaf in leaves]
    signature = unflatten(structure, [_spec(leaf, leaf["dtype"]) for leaf in leaves])
    return generated(local.elements, signature)


def _tensor(leaf: Leaf) -> Any:
    if leaf.kind == DENSE:
        return leaf.values
    if leaf.kind == RAGGED:
        return tf.RaggedTensor.from_nested_row_splits(leaf.values, leaf.parts, validate=False)
    return tf.SparseTensor(leaf.parts[0], leaf.values, leaf.parts[1])


def _spec(leaf: Mapping[str, Any], dtype: str) -> tf.TypeSpec:
    """Returns the spec for the description of a leaf (of `told_by`), with another dtype."""
    shape, kind = leaf["shape"], tf.as_dtype(np.dtype(dtype))
    if leaf["kind"] == DENSE:
        return tf.TensorSpec(shape, kind)
    if leaf["kind"] == RAGGED:
        return tf.RaggedTensorSpec(shape, kind, leaf["ragged_rank"], tf.int64)
    return tf.SparseTensorSpec(shape, kind)
