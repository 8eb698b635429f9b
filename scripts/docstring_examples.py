"""Prepares docstrings for the site: an extension of griffe, which mkdocs.yml names."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import griffe

# Lines from a prompt to the next empty line.
_SESSION = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
# Run as a file: importing tfhybrid.models would import TensorFlow.
_SHARED_DOCS = Path(__file__).parents[1] / "tfhybrid" / "models" / "shared_docs.py"
_complete = runpy.run_path(str(_SHARED_DOCS))["complete"]


class DocstringExamples(griffe.Extension):
    """Puts a fence around every session of the interpreter, as Markdown takes `>>>` for quotes.

    Models get the texts that they share.
    """

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrites the docstring of an object before it is parsed."""
        if not obj.docstring:
            return
        if obj.path.startswith("tfhybrid.models.") and obj.is_function:
            obj.docstring.value = _complete(obj.docstring.value)
        obj.docstring.value = _SESSION.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
