"""A console for a reporter that reads no markup.
Drops what is no news to a person who watches the search.
"""

from __future__ import annotations

from typing import Any

from tenuto.search.reporter import SearchReporter


class Plain:
    """A console for a reporter that reads no markup."""

    def __init__(self, reporter: SearchReporter) -> None:
        self._reporter = reporter

    def print(self, *objects: Any) -> None:
        text = " ".join(str(one) for one in objects)
        for mark in ("[yellow]", "[red]", "[/]"):
            text = text.replace(mark, "")
        text = text.replace("\\[", "[")
        if text != "Sampler returned no job":  # not news to a person who watches the search
            self._reporter.say(text)
