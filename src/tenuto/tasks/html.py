"""Small tables for notebooks: no scripts, hardly any colour, and nothing of others' unescaped.
It lays out what it is given; its callers decide what to show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
# Borders of a half-transparent grey and the page's own text colour: readable on light and on dark.
_TABLE = "border-collapse:collapse;margin:2px 0"
_CELL = "text-align:left;vertical-align:top;padding:2px 8px;border:1px solid rgba(128,128,128,.35)"
_LONGEST = 200


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escaped(text: object, limit: int = _LONGEST) -> Html:
    """Foreign text: cut, without markup, and with what cannot be printed spelled out."""
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
