"""The marks that say which part of a program may change: `EVOLVE-BLOCK-START` and `EVOLVE-BLOCK-END`.
Pure: compares texts.
"""

from __future__ import annotations

START = "EVOLVE-BLOCK-START"
END = "EVOLVE-BLOCK-END"


def is_marked(text: str) -> bool:
    """Whether a text says which part of it may change."""
    return START in text


def outside(text: str) -> list[str]:
    """The lines that may not change: everything but what lies between two marks."""
    kept = []
    is_inside = False
    for line in text.splitlines():
        if END in line:
            is_inside = False
        if not is_inside:
            kept.append(line)
        if START in line:
            is_inside = True
    return kept


def changed_outside(before: str, after: str) -> str | None:
    """The first line outside the marks that a change touched, as it was or is; None if it touched none."""
    first, second = outside(before), outside(after)
    for old, new in zip(first, second, strict=False):
        if old != new:
            return old or new
    if len(first) != len(second):
        return (first if len(first) > len(second) else second)[min(len(first), len(second))]
    return None
