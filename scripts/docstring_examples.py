"""Shows the examples of docstrings as code: an extension of griffe, which mkdocs.yml names."""

from __future__ import annotations

import re
from typing import Any

import griffe

# Lines from a prompt to the next empty line.
_SESSION = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class DocstringExamples(griffe.Extension):
    """Puts a fence around every session of the interpreter, as Markdown takes `>>>` for quotes."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrites the docstring of an object before it is parsed."""
        if obj.docstring:
            obj.docstring.value = _SESSION.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
