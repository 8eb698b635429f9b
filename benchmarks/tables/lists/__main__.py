"""Lists of keys as ragged tensors and as padded ones: samples per second of the same networks.

    python -m benchmarks.tables.lists [--rounds 5] [--steps 20]

Lengths are drawn from a Beta distribution, so that their median is 0.3 of the longest list. Each
network reads them ragged, as `models.din` and a table with a combiner do, or padded with key 0
and masked. One process; the sides take turns (A B A B ...).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from rich import box
from rich.console import Console
from rich.table import Table

import tfhybrid
from benchmarks.support import launch
from tfhybrid.models.din import Interest

DIM, KEYS = 16, 1_000_000
ATTENTION = (80, 40)
NETWORKS = ("attention", "mean")


class PaddedInterest(Interest):
    """`Interest` over padded sequences, float `[batch, length, dim]`, with their mask."""

    supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        """Returns the weighted sum of each sample's sequence, `[batch, dim]`."""
        rows, candidates = inputs
        candidate = tf.broadcast_to(candidates[:, tf.newaxis, :], tf.shape(rows))
        weight = tf.concat([rows, candidate, rows - candidate, rows * candidate], axis=2)
        for layer in self._weigh:
            weight = layer(weight)
        return tf.reduce_sum(weight * rows * tf.cast(mask[0], rows.dtype)[..., tf.newaxis], axis=1)

    def compute_output_spec(self, inputs: Any, mask: Any = None) -> Any:
        """Returns the spec of the sums."""
        return super().compute_output_spec(inputs)


def table(combiner: str | None = None) -> tfhybrid.TableConfig:
    """Returns the settings of a side's tables."""
    return tfhybrid.TableConfig(
        DIM, optimizer=tfhybrid.optimizers.Adagrad(0.05), combiner=combiner, expected_rows=KEYS
    )


def ragged(network: str) -> keras.Model:
    """Builds a network that reads ragged lists."""
    if network == "attention":
        return tfhybrid.models.din(
            ["item"], behaviours={"liked": "item"}, table=table(), attention=ATTENTION
        )
    liked = keras.Input((None,), dtype="int64", ragged=True, name="liked")
    pooled = tfhybrid.layers.Embedding(table("mean"), table="ragged")(liked)
    return keras.Model({"item": item_input(), "liked": liked}, tower(pooled))


def padded(network: str) -> keras.Model:
    """Builds the same network for lists that are padded with key 0."""
    liked = keras.Input((None,), dtype="int64", name="liked")
    if network == "mean":
        layer = tfhybrid.layers.Embedding(table(), table="padded", padded=True, mask_key=0)
        pooled = keras.layers.GlobalAveragePooling1D()(layer(liked))
        return keras.Model({"item": item_input(), "liked": liked}, tower(pooled))
    item = item_input()
    layer = tfhybrid.layers.Embedding(table(), table="padded_item", padded=True, mask_key=0)
    candidate = keras.layers.GlobalAveragePooling1D()(layer(item))
    interest = PaddedInterest(ATTENTION)([layer(liked), candidate])
    both = keras.layers.Concatenate()([candidate, interest])
    return keras.Model({"item": item, "liked": liked}, tower(both))


def item_input() -> Any:
    """Returns the input of the candidates, which the network of means does not read."""
    return keras.Input((1,), dtype="int64", name="item")


def tower(features: Any) -> Any:
    """Adds the layers of `models.din` behind its attention."""
    for units in (200, 80):
        features = keras.layers.Dense(units, activation="relu")(features)
    return keras.layers.Dense(1)(features)


def batches(count: int, batch: int, longest: int) -> list[tuple[dict[str, tf.Tensor], tf.Tensor]]:
    """Returns batches of ragged lists, the same in every call."""
    draw = np.random.default_rng(1)
    made = []
    for _ in range(count):
        lengths = np.ceil(draw.beta(1.2, 2.4, batch) * longest).astype(np.int64)
        keys = draw.zipf(1.2, lengths.sum()) % KEYS + 1
        lists = tf.RaggedTensor.from_row_lengths(keys, lengths)
        item = tf.constant(draw.integers(1, KEYS, (batch, 1)))
        labels = tf.constant(draw.integers(0, 2, (batch, 1)), tf.float32)
        made.append(({"item": item, "liked": lists}, labels))
    return made


def step_of(model: keras.Model) -> Callable[[dict[str, Any], tf.Tensor], tf.Tensor]:
    """Returns a compiled training step of a model."""
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )

    @tf.function(reduce_retracing=True)
    def step(features: dict[str, Any], labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x=features, y=labels, y_pred=model(features, training=True))
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return step


def measure(network: str, arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Returns the samples per second of each round of both sides."""
    lists = batches(arguments.steps, arguments.batch, arguments.longest)
    filled = [({**features, "liked": features["liked"].to_tensor()}, y) for features, y in lists]
    sides = {
        "ragged": (step_of(ragged(network)), lists),
        "padded": (step_of(padded(network)), filled),
    }
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(arguments.rounds + 1):
        for side, (step, data) in sides.items():
            start = time.perf_counter()
            for features, labels in data:
                loss = step(features, labels)
            loss.numpy()
            if number:  # the first round traces
                seconds = time.perf_counter() - start
                rates[side].append(round(arguments.steps * arguments.batch / seconds))
    return rates


def main() -> None:
    """Measures both networks, prints medians and keeps the numbers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables.lists", description=__doc__)
    for name, default in (("rounds", 5), ("steps", 20), ("batch", 1024), ("longest", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    tfhybrid.init()
    lengths = batches(1, 10_000, arguments.longest)[0][0]["liked"].row_lengths().numpy()
    share = float(np.median(lengths)) / arguments.longest
    shown = Table("network", title=f"lists of median {share:.2f} of the longest", box=box.SIMPLE)
    for heading in ("ragged, samples/s", "padded", "ragged / padded"):
        shown.add_column(heading, justify="right")
    found = {}
    for network in NETWORKS:
        rates = measure(network, arguments)
        medians = {side: statistics.median(each) for side, each in rates.items()}
        ratio = medians["ragged"] / medians["padded"]
        found[network] = {"rounds": rates, "medians": medians, "ratio": round(ratio, 2)}
        shown.add_row(network, *(f"{each:,.0f}" for each in medians.values()), f"{ratio:.2f}")
    Console().print(shown)
    launch.write_result("lists", {"setting": vars(arguments), "networks": found})


if __name__ == "__main__":
    main()
