"""The settings of an embedding table."""

from __future__ import annotations

import dataclasses
import numbers
from typing import TYPE_CHECKING, Any

from tfhybrid import initializers
from tfhybrid.config.file_tier import FileTier
from tfhybrid.config.placement import REPLICATED, Placement
from tfhybrid.config.row_policy import Admission, Eviction, native_policy
from tfhybrid.errors import ConfigError

if TYPE_CHECKING:
    from tfhybrid.config.table_optimizers import Regularizer, SparseOptimizer


@dataclasses.dataclass(frozen=True)
class TableConfig:
    """The settings of an embedding table. Each feature that uses them gets a table of its own.

    Args:
        dim: Length of an embedding, 1 to 65,536.
        initializer: Gives the value of a key that was never updated: one of `tfhybrid.initializers`
            or `keras.initializers`, or a name (`"uniform"`, `"normal"`, `"truncated_normal"`,
            `"zeros"`, `"ones"`).
        optimizer: One of `tfhybrid.optimizers` (`SGD`, `Adagrad`, ...) or its name, not one of
            Keras's. `None` uses the counterpart of the Keras optimizer that `DistributedOptimizer`
            wraps, and follows its learning rate.
        regularizer: `keras.regularizers.L1`, `L2` or `L1L2`, or its name: a penalty on the
            embeddings of each step's keys, each key once. The loss that Keras shows excludes it.
        lazy: Whether a step updates only the rows of its own keys. If `False`, it updates every
            row, the others with a gradient of zero: moments decay and penalties apply, exactly as
            Keras does for a dense variable. Use that for tables with not many more rows than a step
            has keys; it cannot be combined with `admission` or `eviction`.
        admission: When a key gets a row: an `Admission`, or the number of updates in which it must
            occur. `None` gives it a row in its first update.
        eviction: Which rows are removed: an `Eviction`, or `None` for none.
        expected_rows: How many rows the table is expected to get. Memory for them is reserved at
            the start, so that what does not fit is known then; more rows make it grow. Checkpoints
            tell the number beside the real one.
        placement: On which hosts its rows lie: `Replicated()`, all on every host, or `Sharded()`,
            each on one of them. `"auto"` is `Replicated()` if `expected_rows` fit into the memory
            of every host, beside the tables made before, and else `Sharded()`.
        trainable: Whether its rows are trained. If not, keys have the rows that were loaded
            (`Table.load`, `checkpoint.restore`), and others read their initial values.
        combiner: `"sum"`, `"mean"` or `"sqrtn"` makes one embedding of a sample's keys, as
            `tf.nn.embedding_lookup_sparse` does; a sample without keys gets zeros. `None` gives
            each key its own.
        max_length: At most so many keys of a sample are used; the others are as if they were not
            there. Features that share a table may have combiners and lengths of their own.
        keep: Which ones `max_length` keeps, the `"first"` or the `"last"`.
        storage: A `FileTier`: rows lie in files on a disk, for tables that are larger than memory;
            not with `eviction` or `lazy=False`. `None` keeps them in memory.
        fast_tier: Where lookups take rows from: `"host"`, memory of the host; or `"device"`, a
            variable on the device on which the layer is built, in which the rows of an announced
            pass lie and are kept up to date (`tfhybrid.data.announce`).

    Raises:
        ConfigError: `dim`, `expected_rows` or `max_length` is not a whole number in range, or the
            initializer, `combiner`, `keep` or `fast_tier` is unknown, or `placement`, `admission`,
            `eviction` or `storage` is none, or two of them do not go together, or the optimizer is
            one of Keras.

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
    fast_tier: str = "host"

    def __post_init__(self) -> None:
        whole = isinstance(self.dim, numbers.Integral) and not isinstance(self.dim, bool)
        if not whole or not 1 <= self.dim <= 65536:
            raise ConfigError(
                f"dim must be a whole number from 1 to 65536. Received: dim={self.dim!r}"
            )
        _refuse_keras(self.optimizer)
        if self.expected_rows is not None and not (
            isinstance(self.expected_rows, numbers.Integral) and 0 <= self.expected_rows < 2**40
        ):
            raise ConfigError(
                "expected_rows must be a number of rows below 2^40, or None. "
                f"Received: expected_rows={self.expected_rows!r}"
            )
        if self.combiner not in (None, "sum", "mean", "sqrtn"):
            raise ConfigError(
                "combiner must be 'sum', 'mean', 'sqrtn' or None. "
                f"Received: combiner={self.combiner!r}"
            )
        if self.max_length is not None and not (
            isinstance(self.max_length, numbers.Integral) and self.max_length > 0
        ):
            raise ConfigError(
                "max_length must be a number of keys, at least 1, or None. "
                f"Received: max_length={self.max_length!r}"
            )
        if self.keep not in ("first", "last"):
            raise ConfigError(f"keep must be 'first' or 'last'. Received: keep={self.keep!r}")
        if self.fast_tier not in ("host", "device"):
            raise ConfigError(
                f"fast_tier is 'host' or 'device'. Received: fast_tier={self.fast_tier!r}"
            )
        if not isinstance(self.placement, Placement) and self.placement != "auto":
            raise ConfigError(
                "placement must be tfhybrid.Replicated(), tfhybrid.Sharded() or 'auto'. "
                f"Received: placement={self.placement!r}"
            )
        if self.placement == "auto" and self.expected_rows is None:
            raise ConfigError("placement='auto' needs expected_rows. Received: expected_rows=None")
        if isinstance(self.admission, numbers.Integral):
            object.__setattr__(self, "admission", Admission(self.admission))
        if not isinstance(self.admission, Admission | None):
            raise ConfigError(
                "admission must be a tfhybrid.Admission, or a number of updates. "
                f"Received: admission={self.admission!r}"
            )
        if not isinstance(self.eviction, Eviction | None):
            raise ConfigError(
                f"eviction must be a tfhybrid.Eviction. Received: eviction={self.eviction!r}"
            )
        if not self.lazy and self.policy:
            raise ConfigError(
                "lazy=False cannot be combined with admission or eviction. "
                f"Received: admission={self.admission!r}, eviction={self.eviction!r}"
            )
        if not isinstance(self.storage, FileTier | None):
            raise ConfigError(
                f"storage must be a tfhybrid.FileTier. Received: storage={self.storage!r}"
            )
        if self.storage is not None and not self.lazy:
            raise ConfigError(
                "A table in files must be updated lazily: with lazy=False each step would read and "
                "write all of it. Received: lazy=False"
            )
        if self.storage is not None and self.policy.get("min_norm"):
            raise ConfigError(
                "A table in files does not support eviction by min_norm, which would have to read "
                f"every row from the disk. Received: eviction={self.eviction!r}"
            )
        object.__setattr__(self, "dim", int(self.dim))
        object.__setattr__(self, "initializer", initializers.get(self.initializer, self.dim))

    @property
    def policy(self) -> dict[str, Any]:
        """Returns admission and eviction in the core's form."""
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
