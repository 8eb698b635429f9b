"""Data sets of TensorFlow that read a Python iterator, and end before Python does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfhybrid._ending import EndingIterator


def generated(elements: Callable[[], Iterator[Any]], signature: Any) -> tf.data.Dataset:
    """Returns a data set of generated elements. A process can end before it has read all of them.

    Args:
        elements: Function that returns an iterator over the elements; called in each epoch, on a
            thread of TensorFlow.
        signature: Structure of `tf.TypeSpec` of an element.
    """
    return tf.data.Dataset.from_generator(
        lambda: EndingIterator(elements()), output_signature=signature
    )
