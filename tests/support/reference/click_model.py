"""One small click model, as a Keras model on the tables and as its reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tensorflow import keras

import tfhybrid
from tests.support.reference import training
from tfhybrid.config.placement import Placement

INT64 = np.iinfo(np.int64)

# What the model looks up: (feature, table). `clicked` and `carted` share a table, `user` comes
# twice, `item` holds the longer lists, and the tables have different dims.
FIELDS = (("user", "user"), ("clicked", "item"), ("carted", "item"), ("user", "user"))
LENGTHS = {"user": 1, "clicked": 3, "carted": 2}
DIMS = {"user": 8, "item": 5}
WIDE = tfhybrid.initializers.Uniform(-0.5, 0.5)

OPTIMIZERS: Mapping[str, tuple[Callable, training.Optimizer]] = {
    "sgd": (lambda: keras.optimizers.SGD(0.5), training.SGD(0.5)),
    "adagrad": (lambda: keras.optimizers.Adagrad(0.1), training.Adagrad(0.1)),
    # Keras rounds beta_2^step to float32: an error of 1e-5 of the rate, in Keras's own half.
    "adam": (lambda: keras.optimizers.Adam(0.001), training.Adam(0.001)),
}
REPLICATED = (tfhybrid.Replicated(), tfhybrid.Replicated())  # placements of both tables
HOST = ("host", "host")  # fast tiers of both


def keras_model(
    seed: int = 0,
    optimizer=None,
    regularizer=None,
    lazy: bool = True,
    placements: Sequence[Placement] = REPLICATED,
    storage: tfhybrid.FileTier | None = None,
    gather_on: Sequence[str] = HOST,
    **options,
) -> keras.Model:
    """Returns the model; equal seeds give equal dense weights.

    Args:
        seed: Of the dense weights.
        optimizer: Of the tables, where it is not the twin of the model's.
        regularizer: Of the tables.
        lazy: Likewise.
        placements: Likewise, of each.
        storage: Likewise.
        gather_on: Likewise, of each.
        **options: Of the `EmbeddingCollection`.
    """
    user, item = (
        tfhybrid.TableConfig(
            dim,
            WIDE,
            optimizer,
            regularizer,
            lazy,
            placement=placement,
            storage=storage,
            gather_on=place,
        )
        for dim, placement, place in zip(DIMS.values(), placements, gather_on, strict=True)
    )
    layer = tfhybrid.layers.EmbeddingCollection(
        {"user": user, "item": item}, shared={"item": ["clicked", "carted"]}, **options
    )
    inputs = {f: keras.Input((n,), dtype="int64", name=f) for f, n in LENGTHS.items()}
    first, second = layer(inputs), layer(inputs)  # a layer called twice
    embeddings = [first["user"], first["clicked"], first["carted"], second["user"]]
    x = keras.layers.Concatenate()([keras.layers.Flatten()(e) for e in embeddings])
    for units, activation in ((16, "relu"), (1, None)):
        initializer = keras.initializers.GlorotUniform(seed + units)
        x = keras.layers.Dense(units, activation, kernel_initializer=initializer)(x)
    return keras.Model(inputs, x)


def collection(model: keras.Model) -> tfhybrid.layers.EmbeddingCollection:
    """Returns the model's only collection."""
    (layer,) = (
        layer for layer in model.layers if isinstance(layer, tfhybrid.layers.EmbeddingCollection)
    )
    return layer


def dense_weights(model: keras.Model) -> list[np.ndarray]:
    """Returns kernel and bias of each dense layer."""
    layers = [layer for layer in model.layers if isinstance(layer, keras.layers.Dense)]
    return [weight.numpy() for layer in layers for weight in layer.weights]


def reference(
    model: keras.Model,
    optimizer: training.Optimizer,
    *,
    dense_optimizer: training.Optimizer | None = None,
    prefix: str = "",
    table_options: Mapping[str, object] | None = None,
    **options,
) -> training.Trainer:
    """Returns the reference of a model that was not trained yet.

    Args:
        model: It.
        optimizer: Of the tables.
        dense_optimizer: Of the dense weights, where it is another one.
        prefix: Of the collection.
        table_options: Of `training.Table`.
        **options: Of `training.Trainer`.
    """
    tables = {
        name: training.Table(prefix + name, table.config, optimizer, **(table_options or {}))
        for name, table in collection(model).tables.items()
    }
    return training.Trainer(
        FIELDS, tables, dense_weights(model), dense_optimizer or optimizer, **options
    )


def regularized(
    lazy: bool = True,
    placements: Sequence[Placement] = REPLICATED,
    gather_on: Sequence[str] = HOST,
    **options,
) -> tuple[keras.Model, training.Trainer, Callable]:
    """Returns a model with penalties, its reference, and what makes an AdamW of either.

    Args:
        lazy: Of the tables.
        placements: Likewise.
        gather_on: Likewise.
        **options: Of `training.Trainer`; `clipping` is by global norm.
    """
    penalties, rate, weight_decay = (0.01, 0.05), 0.001, 2.0
    clipping = options.get("clipping")
    regularizer = keras.regularizers.L1L2(*penalties)
    model = keras_model(
        regularizer=regularizer, lazy=lazy, placements=placements, gather_on=gather_on
    )
    trainer = reference(
        model,
        training.Adam(rate),
        table_options={"weight_decay": weight_decay, "penalties": penalties, "lazy": lazy},
        weight_decay=weight_decay,
        **options,
    )
    limit = clipping and clipping[1]
    return model, trainer, lambda: keras.optimizers.AdamW(rate, weight_decay, global_clipnorm=limit)


def batches(
    steps: int, ranks: int, samples: int = 16, span: int = 30
) -> list[list[training.Batch]]:
    """Returns the batches of all steps and ranks, with keys that are hard on purpose.

    Most keys lie within `span` of 0.

    Every step has the extreme keys; a key that all ranks have and keys that one rank has alone;
    one that fills a whole feature, and one that comes twice in a sample.
    """
    random = np.random.default_rng(7)
    return [[_batch(random, rank, samples, span) for rank in range(ranks)] for _ in range(steps)]


def _batch(random: np.random.Generator, rank: int, samples: int, span: int) -> training.Batch:
    keys = {
        feature: random.integers(-span, span, (samples, length))
        for feature, length in LENGTHS.items()
    }
    if samples:
        keys["user"][:4, 0] = 0, -1, INT64.min, INT64.max
        keys["clicked"][1] = keys["clicked"][0, 0]
        keys["clicked"][2] = 1000 + rank
        keys["carted"][:, 1] = 77
    return keys, random.integers(0, 2, samples).astype(np.float64)


def concatenate(ranks: Sequence[training.Batch]) -> training.Batch:
    """Returns the batches of all ranks as one."""
    keys = {f: np.concatenate([keys[f] for keys, _ in ranks]) for f in LENGTHS}
    return keys, np.concatenate([labels for _, labels in ranks])


def relative_differences(model: keras.Model, trainer: training.Trainer) -> dict[str, float]:
    """Returns max|difference| / max|weight| of each table and of the dense weights."""
    pairs = {"dense": (_flat(dense_weights(model)), _flat(trainer.dense))}
    for name, table in collection(model).tables.items():
        keys = np.array([*trainer.tables[name].rows, 123456], np.int64)
        pairs[name] = (table.lookup(keys), trainer.tables[name].lookup(keys))
    return {
        name: float(np.abs(actual - wanted).max() / np.abs(wanted).max())
        for name, (actual, wanted) in pairs.items()
    }


def _flat(weights: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([weight.ravel() for weight in weights])
