"""Parts of a page that a script writes, each between two comments with its name."""

from __future__ import annotations

import re


def with_part(page: str, name: str, content: str) -> str:
    """Returns a page in which the part between `<!-- NAME -->` and `<!-- end of NAME -->` is new.

    Args:
        page: Text of the page, which has both comments.
        name: Name of the part.
        content: New content, which ends with a line break.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    pattern = re.compile(re.escape(begin) + ".*" + re.escape(end), re.DOTALL)
    assert pattern.search(page), f"The page has no {begin.strip()}"
    return pattern.sub(lambda _: f"{begin}\n{content}\n{end}", page)
