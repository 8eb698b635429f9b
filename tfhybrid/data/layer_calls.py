"""The layers that look up the features of a data set, and the features' names in both."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf


@runtime_checkable
class Layer(Protocol):
    """The part of the layers of `tfhybrid.layers` that data sets use."""

    @property
    def features(self) -> list[str]:
        """Names of the features that the layer looks up."""

    @property
    def table_names(self) -> dict[str, str]:
        """The name of each feature's table; empty until the layer is built."""

    def fetches_rows(self) -> bool:
        """Returns whether lookups fetch rows from other hosts, or keep them on the device."""

    def number_ahead(self, inputs: Mapping[str, Any], batches: int) -> tf.Operation:
        """Numbers the keys of a batch before the layer looks them up.

        Args:
            inputs: Keys by feature name.
            batches: Maximum number of batches that are kept for lookups.
        """


@dataclasses.dataclass(frozen=True)
class LayerCall:
    """A call of a layer that looks up features of a data set.

    Args:
        layer: The layer.
        names: The data set's name of each of the layer's features.
    """

    layer: Layer
    names: Mapping[str, str]

    @property
    def features(self) -> list[str]:
        """The features of the data set that the layer looks up."""
        return list(self.names.values())

    def number_ahead(self, features: Mapping[str, Any], batches: int) -> tf.Operation:
        """Numbers the keys of a batch before the layer looks them up.

        Args:
            features: Keys by the data set's feature names.
            batches: Maximum number of batches that are kept for lookups.
        """
        keys = {feature: features[name] for feature, name in self.names.items()}
        return self.layer.number_ahead(keys, batches)


def calls_of(layers: Any) -> list[LayerCall]:
    """Returns the calls of one or several collections, or of a dict of layers by feature.

    Args:
        layers: Layers, as `tfhybrid.data.announce` takes them.
    """
    if isinstance(layers, Mapping):
        return [LayerCall(layer, {layer.features[0]: name}) for name, layer in layers.items()]
    collections = [layers] if isinstance(layers, Layer) else list(layers)
    return [LayerCall(each, {name: name for name in each.features}) for each in collections]
