"""A griffe extension that converts docstrings to Markdown."""

from __future__ import annotations

import re

import griffe

_DOCTEST = re.compile(r"(?:^>>> .*\n(?:(?!\s*$).*\n?)*)+", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Put doctest examples in code blocks. Markdown would render them as quotations."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _DOCTEST.sub(
                lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", obj.docstring.value
            )
