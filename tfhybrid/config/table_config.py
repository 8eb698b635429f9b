"""Settings of an embedding table."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfhybrid import initializers
from tfhybrid._deprecated import renamed_fields
from tfhybrid.config.file_tier import FileTier
from tfhybrid.config.placement import REPLICATED, Placement
from tfhybrid.config.row_policy import Admission, Eviction, native_policy
from tfhybrid.errors import ConfigError

if TYPE_CHECKING:
    from tfhybrid.config.table_optimizers import Regularizer, SparseOptimizer


@renamed_fields(fast_tier="gather_on")
@dataclasses.dataclass(frozen=True)
class TableConfig:
    """Settings of an embedding table. Each feature that uses them gets a table of its own.

    Args:
        dim: Length of an embedding, 1 to 65,536.
        initializer: Initializer of keys that were never updated: one of `tfhybrid.initializers` or
            `keras.initializers`, or a name (`"uniform"`, `"normal"`, `"truncated_normal"`,
            `"zeros"`, `"ones"`). Default `"uniform"`.
        optimizer: One of `tfhybrid.optimizers` (`SGD`, `Adagrad`, ...) or its name, not one of
            Keras's. `None` (default) uses the counterpart of the Keras optimizer that
            `DistributedOptimizer` wraps, and follows its learning rate.
        regularizer: Penalty on the embeddings of each step's keys, each key once:
            `keras.regularizers.L1`, `L2` or `L1L2`, or its name. The loss that Keras shows excludes
            it. Default: none.
        lazy: Whether a step updates only the rows of its own keys (default). If `False`, it updates
            every row, the others with a gradient of zero: moments decay and penalties apply,
            exactly as Keras does for a dense variable. Use `False` for tables about as small as the
            number of keys in one step. It cannot be combined with `admission` or `eviction`.
        admission: Rule for when a key gets a row: an `Admission`, or the number of updates in which
            the key must occur. `None` (default) gives a key its row in its first update.
        eviction: Rules for which rows are removed: an `Eviction`, or `None` (default) for none.
        expected_rows: Number of rows that the table is expected to get. Their memory is reserved
            at the start, so that a table that does not fit fails early; the table can still grow
            beyond it. Checkpoints record it beside the real number. Default: unknown.
        placement: Distribution of the rows: `Replicated()` (default), all on every host, or
            `Sharded()`, each on one host. `"auto"` is `Replicated()` if `expected_rows` rows fit
            into the memory of every host beside the tables created before, else `Sharded()`.
        trainable: Whether the rows are trained (default). If `False`, keys have the rows that were
            loaded (`Table.load`, `checkpoint.restore`), and other keys read their initial values.
        combiner: `"sum"`, `"mean"` or `"sqrtn"` combines the embeddings of a sample's keys, as
            `tf.nn.embedding_lookup_sparse` does; a sample without keys gets zeros. `None` (default)
            returns one embedding per key.
        max_length: Maximum number of keys per sample; the rest are ignored. Default: no limit.
            Features that share a table may have combiners and lengths of their own.
        keep: Keys that `max_length` keeps: the `"first"` (default) or the `"last"`.
        storage: A `FileTier` keeps the rows in files on a disk, for tables larger than memory. It
            cannot be combined with `Eviction(min_norm=)` or `lazy=False`. `None` (default) keeps
            them in memory.
        gather_on: Place where rows become the embeddings of keys: the `"host"` (default), which
            sends the embedding of every key to the model's device; or the `"device"` on which the
            layer is built, to which the host sends each distinct row of a batch once.
        unseen: Embedding that a key without a row reads outside of training (`evaluate`, `predict`,
            exported models, readers of publications): `"zeros"`, or `"initial"`, its initial value
            as in training. `None` (default) is `"zeros"`, and `"initial"` if `trainable` is false;
            a restored checkpoint replaces it by what its table had.

    Raises:
        ConfigError: `dim`, `expected_rows` or `max_length` is not a whole number in range; the
            initializer, `combiner`, `keep`, `gather_on` or `unseen` is unknown; `placement`,
            `admission`, `eviction` or `storage` has the wrong type; two settings cannot be
            combined; or the optimizer is one of Keras.

    Example:

    >>> import tfhybrid
    >>> tfhybrid.TableConfig(dim=16, optimizer=tfhybrid.optimizers.Adagrad(0.05)).dim
    16
    """

    dim: int
    initializer: Any = "uniform"
    optimizer: SparseOptimizer | str | None = None
    regularizer: Regularizer | str | None = None
    lazy: bool = True
    admission: Admission | int | None = None
    eviction: Eviction | None = None
    expected_rows: int | None = None
    placement: Placement | str = REPLICATED
    trainable: bool = True
    combiner: str | None = None
    max_length: int | None = None
    keep: str = "first"
    storage: FileTier | None = None
    gather_on: str = "host"
    unseen: str | None = None

    def __post_init__(self) -> None:
        _refuse_keras(self.optimizer)
        if isinstance(self.admission, numbers.Integral):
            object.__setattr__(self, "admission", Admission(self.admission))
        for rule, names, holds in _CHECKS:
            if not holds(self):
                received = ", ".join(f"{name}={getattr(self, name)!r}" for name in names.split())
                raise ConfigError(f"{rule}. Received: {received}")
        object.__setattr__(self, "dim", int(self.dim))
        object.__setattr__(self, "initializer", initializers.get(self.initializer, self.dim))

    @property
    def policy(self) -> dict[str, Any]:
        """Admission and eviction as fields of `native.RowPolicyStruct`; empty without either."""
        assert not isinstance(self.admission, int)
        return native_policy(self.admission, self.eviction)


def _refuse_keras(optimizer: object) -> None:
    kind = type(optimizer)
    if any(base.__module__.split(".")[0] in ("keras", "tf_keras") for base in kind.__mro__):
        raise ConfigError(
            "A table's optimizer runs in the native core: use tfhybrid's optimizer of that name, "
            f"such as tfhybrid.optimizers.{kind.__name__}(...), or None for the counterpart of the "
            f"one that DistributedOptimizer wraps. Received: optimizer={optimizer!r}"
        )


def _is_whole(value: object, least: int, limit: float = math.inf) -> bool:
    return isinstance(value, numbers.Integral) and least <= int(value) < limit


# Rules of a table's settings, in the order in which they are checked: what an error says, the
# settings that it shows, and whether the rule holds. Rules may rely on those before them.
_CHECKS: tuple[tuple[str, str, Callable[[TableConfig], bool]], ...] = (
    (
        "dim must be a whole number from 1 to 65536",
        "dim",
        lambda t: _is_whole(t.dim, 1, 65537) and not isinstance(t.dim, bool),
    ),
    (
        "expected_rows must be a number of rows below 2^40, or None",
        "expected_rows",
        lambda t: t.expected_rows is None or _is_whole(t.expected_rows, 0, 2**40),
    ),
    (
        "combiner must be 'sum', 'mean', 'sqrtn' or None",
        "combiner",
        lambda t: t.combiner in (None, "sum", "mean", "sqrtn"),
    ),
    (
        "max_length must be a number of keys, at least 1, or None",
        "max_length",
        lambda t: t.max_length is None or _is_whole(t.max_length, 1),
    ),
    ("keep must be 'first' or 'last'", "keep", lambda t: t.keep in ("first", "last")),
    (
        "gather_on must be 'host' or 'device'",
        "gather_on",
        lambda t: t.gather_on in ("host", "device"),
    ),
    (
        "unseen must be 'initial', 'zeros' or None",
        "unseen",
        lambda t: t.unseen in (None, "initial", "zeros"),
    ),
    (
        "placement must be tfhybrid.Replicated(), tfhybrid.Sharded() or 'auto'",
        "placement",
        lambda t: isinstance(t.placement, Placement) or t.placement == "auto",
    ),
    (
        "placement='auto' needs expected_rows",
        "expected_rows",
        lambda t: t.placement != "auto" or t.expected_rows is not None,
    ),
    (
        "admission must be a tfhybrid.Admission, or a number of updates",
        "admission",
        lambda t: isinstance(t.admission, Admission | None),
    ),
    (
        "eviction must be a tfhybrid.Eviction",
        "eviction",
        lambda t: isinstance(t.eviction, Eviction | None),
    ),
    (
        "lazy=False cannot be combined with admission or eviction",
        "admission eviction",
        lambda t: t.lazy or not t.policy,
    ),
    (
        "storage must be a tfhybrid.FileTier",
        "storage",
        lambda t: isinstance(t.storage, FileTier | None),
    ),
    (
        "A table in files must be updated lazily: with lazy=False each step would read and write "
        "all of it",
        "lazy",
        lambda t: t.storage is None or t.lazy,
    ),
    (
        "A table in files does not support eviction by min_norm, which would have to read every "
        "row from the disk",
        "eviction",
        lambda t: t.storage is None or not t.policy.get("min_norm"),
    ),
)
