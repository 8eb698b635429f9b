"""Documentation of what all models have in common, written once.

A line such as `{{deep}}` in the docstring of a model stands for one of these texts. `complete` puts
it there, for `help` and for the site of the documentation.

{{features}}
    features: Names of the features, in the order in which the network reads them. Each gets a
        table of that name. A feature has one key per sample. If its recipe has a `combiner`, it is
        a list with any number of keys, such as tags.

{{table}}
    table: Recipe of the embeddings, or a recipe for each feature.

{{table_with_weights}}
    table: Recipe of the embeddings, or a recipe for each feature. Rows have `table.dim + 1`
        values: the embedding and the first-order weight.

{{dense}}
    dense: Width of each dense column, float `[batch, width]`, by name; none by default. Networks
        and crosses read the numbers beside the embeddings, and a first-order term has a weight for
        each of them.

{{deep}}
    hidden: Units of the deep network's layers.
    dropout: Fraction of the deep network's activations dropped in training, in `[0, 1)`.
    batch_norm: Whether the deep network normalizes its activations.
    name: Name of the model.

{{logits}}
    A functional model from `{feature: int64 [batch, 1], dense column: float [batch, width]}` to
    logits, float `[batch, 1]`; a list is a `tf.RaggedTensor` `[batch, (length)]`;
    train it with `keras.losses.BinaryCrossentropy(from_logits=True)`.

{{errors}}
    ConfigError: `features` is empty or names one twice; `table` lacks a feature or has others, or
        dims differ; a dense column has the name of a feature, or no width; or `hidden` or `dropout`
        is out of range.
    NotInitializedError: `tfhybrid.init()` was not called: layers open their tables here.
    NameTakenError: The job already has a table with the name of a feature.
"""

from __future__ import annotations

import re
import textwrap

_TEXTS = dict(re.findall(r"^\{\{(\w+)\}\}\n((?:    .*\n)+)", __doc__ or "", re.MULTILINE))
_PLACEHOLDER = re.compile(r"^( *)\{\{(\w+)\}\}$", re.MULTILINE)


def complete(docstring: str) -> str:
    """Returns a docstring with the shared texts in place of its placeholders.

    Args:
        docstring: Docstring of a model; may be empty.

    Raises:
        KeyError: A placeholder has no text.

    Example:

    >>> print(complete("{{table}}"))
    table: Recipe of the embeddings, or a recipe for each feature.
    """
    return _PLACEHOLDER.sub(
        lambda line: textwrap.indent(textwrap.dedent(_TEXTS[line[2]]).rstrip(), line[1]), docstring
    )
