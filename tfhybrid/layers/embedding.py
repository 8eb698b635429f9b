"""Embeddings of one feature."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras
from typing_extensions import override

from tfhybrid import initializers
from tfhybrid._keras import IS_KERAS_3, VERSION
from tfhybrid.config import TableConfig
from tfhybrid.errors import ConfigError, UnsupportedError
from tfhybrid.initializers import Initializer
from tfhybrid.layers import table_lookup
from tfhybrid.layers.embedding_collection import EmbeddingCollection
from tfhybrid.layers.feature_inputs import as_keys, check_dtype
from tfhybrid.layers.float_keys import as_integers, checks_of
from tfhybrid.layers.padded_lists import ListMask, PaddedList, padded_list, padded_shape
from tfhybrid.layers.scores import Scores, dense_candidates
from tfhybrid.ops.lookup import FeatureKeys, OutputForm
from tfhybrid.store import Table

# Replacements of the arguments of `keras.layers.Embedding`.
_OF_KERAS = {
    "input_dim": "there is no size: any int64 is a key",
    "input_length": "lengths may vary",
    "output_dim": "TableConfig(dim=...)",
    "embeddings_initializer": "TableConfig(initializer=...)",
    "embeddings_regularizer": "TableConfig(regularizer=...)",
    "embeddings_constraint": "rows have no constraint",
    "mask_zero": "padded=True, mask_key=0 masks key 0, which otherwise is an ordinary key",
    "weights": "layer.table.load(tfhybrid.checkpoint.ArrayRows(keys, embeddings))",
}


@keras.utils.register_keras_serializable(package="tfhybrid")
class Embedding(EmbeddingCollection):
    """Turns keys into embeddings, like `keras.layers.Embedding` but without a vocabulary size.

    Args:
        config: The table's settings.
        name: Name of the layer. It may be left out if `table` is given.
        table: Name of the table, unique within the job. Defaults to the layer's name. Layer names,
            including inputs, are unique in a model: with `keras.Input(name="user")`, only the table
            can be called "user".
        padded: Whether lists of keys become a dense tensor with a Keras mask, whichever kind of
            tensor comes. Masked places read zeros, and get no row and no gradient. Needs Keras 3.
            Default: no; a ragged tensor gives a ragged tensor.
        mask_key: Key that is masked wherever it occurs, such as the 0 of padded lists. Needs
            `padded=True`. Default: none; every key is an ordinary key.
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        ConfigError: An argument of Keras's layer is given, or neither `name` nor `table`;
            `mask_key` is not an int64, or is given without `padded`; `padded` is combined with a
            combiner.
        UnsupportedError: `padded` is given with Keras 2.

    Input shape: Integer keys of any shape, usually `[batch, length]`: a tensor, a `tf.RaggedTensor`
    or, with a combiner or `padded`, a `tf.SparseTensor`.

    Output shape: `keys.shape + [dim]`, ragged as the keys are; with a combiner `[batch, dim]`. With
    `padded`, it is as long as the longest list of a batch, and never ragged.

    Example:

    >>> import tensorflow as tf
    >>> import tfhybrid
    >>> tfhybrid.init()
    >>> layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(dim=4), name="doc_query")
    >>> layer(tf.constant([[3, -3, 0]])).shape
    TensorShape([1, 3, 4])
    >>> lists = tfhybrid.layers.Embedding(tfhybrid.TableConfig(4), table="doc_list", padded=True)
    >>> embedded = lists(tf.ragged.constant([[3, -3], []], tf.int64))
    >>> embedded.shape
    TensorShape([2, 2, 4])
    >>> embedded._keras_mask.numpy().tolist()
    [[True, True], [False, False]]
    """

    def __init__(
        self,
        config: TableConfig,
        *sizes: Any,
        name: str | None = None,
        table: str | None = None,
        padded: bool = False,
        mask_key: int | None = None,
        **kwargs: Any,
    ) -> None:
        _refuse_arguments_of_keras(config, sizes, kwargs)
        feature = table or name
        if not feature:
            raise ConfigError(
                "An Embedding needs a name for its table: Embedding(config, table='user'), or "
                "name='user' for layer and table. Received: neither"
            )
        _check_padding(config, padded, mask_key)
        super().__init__({feature: config}, name=name, **kwargs)
        self._mask_key = mask_key
        self._takes_floats = False
        self._mask = ListMask(self._padded) if padded else None
        self.supports_masking = padded

    @classmethod
    def like_keras(
        cls,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        *,
        mask_zero: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ) -> Embedding:
        """Returns a layer for the arguments of `keras.layers.Embedding`. Needs Keras 3.

        The layer also takes keys that Keras has made floats, as a `Sequential` model without an
        `Input` does. From 2^24 on, where they may be rounded, they are refused when the model runs.

        Args:
            input_dim: Number of keys to reserve memory for, `TableConfig(expected_rows=)`. It is no
                limit: larger and negative keys are keys, too.
            output_dim: Length of an embedding.
            embeddings_initializer: Initializer, as in `TableConfig`, or one of Keras's that depends
                on the sizes, such as `"glorot_uniform"`. Seeds are ignored: initial values depend
                on `tfhybrid.init(seed=)`. Default `"uniform"`.
            embeddings_regularizer: Regularizer, as in `TableConfig`. Default: none.
            mask_zero: Whether key 0 is masked, and lists of every kind are padded: `padded=True,
                mask_key=0`. Default: no; key 0 is an ordinary key.
            name: Name of the layer. Default: `"embedding"` with a number, as Keras numbers layers.
            **kwargs: Arguments of `Embedding`, such as `table`.

        Raises:
            ConfigError: An argument has no counterpart, or the wrong type.
            UnsupportedError: TensorFlow has Keras 2.

        Example:

        >>> import tensorflow as tf
        >>> import tfhybrid
        >>> tfhybrid.init()
        >>> layer = tfhybrid.layers.Embedding.like_keras(20000, 4, mask_zero=True, name="doc_word")
        >>> layer(tf.constant([[7, 0]])).shape
        TensorShape([1, 2, 4])
        """
        _refuse_keras_2("Embedding.like_keras")
        own = {"regularizer": embeddings_regularizer, "expected_rows": input_dim}
        initializer = _initializer_of(embeddings_initializer, input_dim, output_dim)
        config = TableConfig(output_dim, initializer, **own)
        if mask_zero:
            kwargs |= {"padded": True, "mask_key": 0}
        layer = cls(config, name=name or _next_name(), **kwargs)
        layer._takes_floats = True
        layer.autocast = False
        return layer

    @property
    def mask_key(self) -> int | None:
        """Key that is masked wherever it occurs; `None` for no such key."""
        return self._mask_key

    @property
    def table(self) -> Table:
        """The table with the layer's rows; `KeyError` before the layer is built."""
        return self.tables[self.features[0]]

    def call(self, inputs: Any, weights: Any = None, training: Any = None) -> tf.Tensor:
        """Looks up the keys, and combines embeddings if the settings have a combiner.

        With `padded`, Keras attaches the mask that `compute_mask` returns to the output.

        Args:
            inputs: Keys, int32 or int64.
            weights: Weights of the keys for the combiner, of the same kind and shape as the keys.
            training: Whether the model trains, as in `EmbeddingCollection.call`.

        Raises:
            ConfigError: The keys are not int32 or int64, have the wrong shape for a combiner, or
                have weights without a combiner.
            tf.errors.OpError: When the lookup runs: the table is not open, an earlier update
                failed, or an owner of rows has died.
        """
        feature = self.features[0]
        if self._mask is not None and weights is None:
            padded = self._padded(inputs)
            return padded.spread(self._read(padded.present(), training, self._number))
        inputs = self._integers(inputs)
        of_keys = None if weights is None else {feature: weights}
        return super().call({feature: inputs}, of_keys, training)[feature]

    def score(self, vectors: Any, candidates: Any) -> Any:
        """Returns the dot products of vectors and of the embeddings of candidate keys, as logits.

        The table is that of the layer, so weights are tied. The number of samples that weighs a
        rank in an update is that of the vectors, however many candidates there are. Candidates
        equal to `mask_key` score 0, and are not trained. A combiner and `max_length` do not apply.

        Args:
            vectors: Vectors, float `[batch, dim]` or `[batch, length, dim]`.
            candidates: Keys, int32 or int64: `[candidates]` for all samples, or one list for each
                vector, `[batch, candidates]` or `[batch, length, candidates]`.

        Returns:
            Scores, `[batch, candidates]` or `[batch, length, candidates]`, symbolic if an argument
            is.

        Raises:
            ConfigError: Candidates are ragged, sparse or no integers, or the shapes do not belong
                together.
            tf.errors.OpError: When the lookup runs, as in `call`.

        Example:

        >>> import tensorflow as tf
        >>> import tfhybrid
        >>> tfhybrid.init()
        >>> layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(dim=4), table="doc_item")
        >>> history = tf.reduce_mean(layer(tf.constant([[3, 7], [7, 7]])), axis=1)
        >>> layer.score(history, [3, 7, 9]).shape
        TensorShape([2, 3])
        """
        if not self.built:
            self.build()
        dim = self._configs[self.features[0]].dim
        scores = Scores(self, self._read_candidates, dim, dtype=self.compute_dtype)
        return scores(vectors, dense_candidates(candidates))

    def _read_candidates(self, candidates: Any, samples: tf.Tensor, training: Any) -> tf.Tensor:
        feature = self.features[0]
        with tf.control_dependencies(checks_of(feature, candidates)):
            keys = as_keys(feature, candidates)
        if self._mask_key is None:
            return self._read(FeatureKeys(keys, samples=samples), training)
        padded = PaddedList(keys, keys != self._mask_key)
        return padded.spread(self._read(padded.present(samples), training))

    def _integers(self, inputs: Any) -> Any:
        return as_integers(self.features[0], inputs) if self._takes_floats else inputs

    def _padded(self, inputs: Any) -> PaddedList:
        feature, inputs = self.features[0], self._integers(inputs)
        return padded_list(feature, self._configs[feature], self._mask_key, inputs)

    @override
    def _keys_of(self, inputs: Mapping[str, Any]) -> list[FeatureKeys]:
        feature = self.features[0]
        if self._mask is not None:
            return [self._padded(inputs[feature]).present()]
        return super()._keys_of({feature: self._integers(inputs[feature])})

    def _read(self, keys: FeatureKeys, training: Any, collection: int = 0) -> tf.Tensor:
        """Returns the embedding of each key."""
        (embeddings,) = table_lookup.lookup(
            list(self._proxies.values()),
            [keys],
            form=OutputForm(dtype=self.compute_dtype),
            device=self._device,
            training=training,
            collection=collection,
        )
        return embeddings

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Returns the mask of the output: False for padding and `mask_key`; `None` if not padded.

        Args:
            inputs: Keys, as for `call`.
            previous_mask: Not used: keys have no mask.
        """
        return None if self._mask is None else self._mask(inputs)

    @override
    def compute_output_spec(self, inputs: Any, weights: Any = None, training: Any = None) -> Any:
        feature = self.features[0]
        if self._takes_floats and tf.as_dtype(inputs.dtype).is_floating:
            inputs = keras.KerasTensor(
                inputs.shape, "int64", ragged=getattr(inputs, "ragged", False)
            )
        if self._mask is not None and weights is None:
            check_dtype(feature, inputs.dtype)
            dim = self._configs[feature].dim
            return keras.KerasTensor((*padded_shape(inputs), dim), self.compute_dtype)
        return super().compute_output_spec({feature: inputs})[feature]

    @override
    def compute_output_shape(self, input_shape: Any) -> Any:
        feature = self.features[0]
        return super().compute_output_shape({feature: input_shape})[feature]


def _refuse_arguments_of_keras(config: Any, sizes: tuple[Any, ...], named: dict[str, Any]) -> None:
    refused = [name for name in _OF_KERAS if name in named]
    if isinstance(config, int) or sizes:
        dim = sizes[0] if sizes and isinstance(sizes[0], int) else config
        raise ConfigError(
            "An Embedding needs a TableConfig, not Keras's sizes: "
            f"Embedding(tfhybrid.TableConfig(dim={dim}), table='user'), or Embedding.like_keras "
            f"with Keras's arguments. Received: "
            f"{', '.join(map(repr, (config, *sizes)))}"
        )
    if refused:
        advice = ". ".join(f"{name}: {_OF_KERAS[name]}" for name in refused)
        raise ConfigError(
            "An Embedding does not support these arguments of keras.layers.Embedding. "
            f"{advice}. Received: {', '.join(refused)}"
        )


def _check_padding(config: TableConfig, padded: bool, mask_key: int | None) -> None:
    if padded:
        _refuse_keras_2("padded=True")
    if padded and config.combiner is not None:
        raise ConfigError(
            "A combiner makes one embedding of a list, so there is nothing to pad: leave out "
            f"padded=True, and send ragged lists. Received: combiner={config.combiner!r}"
        )
    if mask_key is None:
        return
    if not padded:
        raise ConfigError(f"mask_key needs padded=True. Received: mask_key={mask_key!r}")
    is_whole = isinstance(mask_key, numbers.Integral) and not isinstance(mask_key, bool)
    if not is_whole or not -(2**63) <= mask_key < 2**63:
        raise ConfigError(f"mask_key must be an int64. Received: mask_key={mask_key!r}")


def _refuse_keras_2(what: str) -> None:
    if not IS_KERAS_3:
        raise UnsupportedError(
            f"{what} needs Keras 3, which comes with TensorFlow 2.16 and newer: here, use ragged "
            f"lists. Received: Keras {VERSION}"
        )


def _initializer_of(initializer: Any, keys: int, dim: int) -> Initializer:
    with contextlib.suppress(ValueError):  # one that Keras does not know may be ours
        initializer = keras.initializers.get(initializer)
    return initializers.get(initializer, dim, keys=keys)


def _next_name() -> str:
    """Returns the name that Keras would give to the next layer of this class."""
    number = keras.backend.get_uid("embedding") - 1
    return f"embedding_{number}" if number else "embedding"
