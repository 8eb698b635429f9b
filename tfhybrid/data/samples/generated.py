"""Data sets of TensorFlow that read a Python iterator, and end before Python does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfhybrid._ending import EndingIterator


def generated(elements: Callable[[], Iterator[Any]], signature: Any) -> tf.data.Dataset:
    """Returns a data set of the elements that a Python iterator yields.

    The process can end before it has read all of them.

    Args:
        elements: Function that returns a new iterator over the elements. It is called at the start
            of each iteration of the data set, on a thread of TensorFlow.
        signature: Structure of `tf.TypeSpec` of an element.

    Raises:
        tf.errors.InvalidArgumentError: During the iteration: `elements` or its iterator raised a
            `ValueError` or `TypeError`, or an element does not fit `signature`.
        tf.errors.UnknownError: During the iteration: they raised an error of most other types.
            Both errors of TensorFlow contain its message.
    """
    return tf.data.Dataset.from_generator(
        lambda: EndingIterator(elements()), output_signature=signature
    )
