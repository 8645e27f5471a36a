"""Small tables for notebooks: no scripts, hardly any colour, and nothing of others' unescaped.
It lays out given values; its callers choose them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tenuto.errors import TenutoError
from tenuto.tasks.base import ConfigBase, brief, class_name, is_config
from tenuto.tasks.identity import identity
from tenuto.tasks.schema import schema_of
from tenuto.tasks.tags import tag_words, tags

_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
# Borders of a half-transparent grey and the page's own text colour: readable on light and on dark.
_TABLE = "border-collapse:collapse;margin:2px 0"
_CELL = "text-align:left;vertical-align:top;padding:2px 8px;border:1px solid rgba(128,128,128,.35)"
_LONGEST = 200


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escaped(text: object, limit: int = _LONGEST) -> Html:
    """Foreign text: cut, without markup, and with unprintable characters spelled out."""
    if isinstance(text, Html):
        return text
    whole = str(text)
    cut = whole if len(whole) <= limit else f"{whole[: limit - 1]}…"
    spelled = (
        character if character.isprintable() or character == "\n" else ascii(character)[1:-1]
        for character in cut
    )
    return Html("".join(_ESCAPED.get(character, character) for part in spelled for character in part))


def table(title: object, rows: Iterable[Sequence[object]], head: Sequence[object] = ()) -> Html:
    """A titled table; the first cell of a row names it unless there is a head."""
    lines = []
    if head:
        lines.append("".join(_cell("th", cell) for cell in head))
    for first, *rest in rows:
        lines.append(_cell("td" if head else "th", first) + "".join(_cell("td", cell) for cell in rest))
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    shown = f'<table style="{_TABLE}">{body}</table>' if body else ""
    return Html(f"<div><strong>{escaped(title)}</strong>{shown}</div>")


def folded(title: object, content: Html) -> Html:
    """Something to unfold."""
    return Html(f"<details><summary>{escaped(title)}</summary>{content}</details>")


def joined(*parts: object) -> Html:
    """Several pieces, one after the other."""
    return Html(" ".join(escaped(part) for part in parts))


def dot(colour: str, text: object) -> Html:
    """A coloured dot before a text of the page's own colour."""
    return Html(f'<span style="color:{colour}">&#9679;</span> {escaped(text)}')


def _cell(kind: str, content: object) -> str:
    return f'<{kind} style="{_CELL}">{escaped(content)}</{kind}>'


# Configs in a notebook: their parameters as a table, the configs inside to unfold.


_MOST_CONFIGS = 40
_MOST_ITEMS = 10


def config_html(config: Any) -> str:
    """A config, or a live object, as a small table."""
    return str(_ConfigTable().config(config, is_root=True))


class _ConfigTable:
    """One table under way; of a large graph it shows the beginning."""

    def __init__(self) -> None:
        self._shown = 0

    def config(self, config: Any, *, is_root: bool = False) -> Html:
        self._shown += 1
        values = vars(config)
        rows: list[tuple[object, object]] = [
            (name, self._value(values[name])) for name in schema_of(type(config)).parameters if name in values
        ]
        if is_root and is_config(config):
            found = tag_words(tags(config))
            rows += [("tags", found)] if found else []
            job = config._state.job
            rows += [("job", joined(job.state.name, job.path))] if job is not None else []
        return table(_title(config, is_root=is_root), rows)

    def _value(self, value: Any) -> Html:
        if isinstance(value, ConfigBase):
            title = _title(value)
            if self._shown >= _MOST_CONFIGS:
                return escaped(f"{title} …")
            return folded(title, self.config(value))
        items = list(value.values() if isinstance(value, dict) else value) if _is_container(value) else []
        if not any(isinstance(item, ConfigBase) for item in items):
            return escaped(brief(value))
        shown = [self._value(item) for item in items[:_MOST_ITEMS]]
        more = len(items) - len(shown)
        return joined(*shown, f"and {more} more") if more else joined(*shown)


def _is_container(value: Any) -> bool:
    return isinstance(value, list | tuple | set | dict)


def _title(config: Any, *, is_root: bool = False) -> str:
    name = f"{class_name(config)}{'.C' if is_config(config) else ''}"
    if not is_root:
        return name
    try:
        return f"{name} {identity(config)[:12]}"
    except (TenutoError, TypeError, AttributeError):  # not complete yet, or a live object
        return name
