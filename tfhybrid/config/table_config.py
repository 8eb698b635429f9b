"""Settings of an embedding table."""

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
        fast_tier: Memory from which lookups take rows: `"host"` (default), memory of the host; or
            `"device"`, a variable on the device on which the layer is built. That variable holds
            the rows of an announced pass and is kept up to date (`tfhybrid.data.announce`).

    Raises:
        ConfigError: `dim`, `expected_rows` or `max_length` is not a whole number in range; the
            initializer, `combiner`, `keep` or `fast_tier` is unknown; `placement`, `admission`,
            `eviction` or `storage` has the wrong type; two settings cannot be combined; or the
            optimizer is one of Keras.

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
        self._check_rows_and_bags()
        self._check_placement()
        self._check_policies()
        self._check_storage()
        object.__setattr__(self, "dim", int(self.dim))
        object.__setattr__(self, "initializer", initializers.get(self.initializer, self.dim))

    def _check_rows_and_bags(self) -> None:
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

    def _check_placement(self) -> None:
        if self.fast_tier not in ("host", "device"):
            raise ConfigError(
                f"fast_tier must be 'host' or 'device'. Received: fast_tier={self.fast_tier!r}"
            )
        if not isinstance(self.placement, Placement) and self.placement != "auto":
            raise ConfigError(
                "placement must be tfhybrid.Replicated(), tfhybrid.Sharded() or 'auto'. "
                f"Received: placement={self.placement!r}"
            )
        if self.placement == "auto" and self.expected_rows is None:
            raise ConfigError("placement='auto' needs expected_rows. Received: expected_rows=None")

    def _check_policies(self) -> None:
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

    def _check_storage(self) -> None:
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
