"""The prompt of an agent: the goal, the program it changes, others that may inspire it, what failed.
Pure: text of values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

_LONGEST = 4000


def prompt_text(
    goal: str, context: Mapping[str, Any], protected: Sequence[str], diff: Callable[[str], str]
) -> str:
    """What an agent reads. `diff(commit)`: how that commit differs from the parent."""
    parent = context.get("parent", {})
    parts = [f"# Goal\n\n{goal.strip() or 'Improve the objective of the program.'}"]
    parts.append(f"# The program\n\nIt lies in the working directory. Change it there.\n\n{_scores(parent)}")
    if protected:
        names = "\n".join(f"- {path}" for path in protected)
        parts.append(f"These files are put back before the program is evaluated:\n\n{names}")
    parts += [
        f"## {name} (of its evaluation)\n\n{_fenced(text)}"
        for name, text in parent.get("artifacts", {}).items()
    ]
    for other in context.get("inspirations", ()):
        changes = diff(other["commit"])
        parts.append(
            f"# Another program, {other['commit'][:12]}\n\n{_scores(other)}\n\nIt differs from yours by:\n\n"
            f"{_fenced(changes, 'diff')}"
        )
    best = context.get("best", ())
    if best:
        lines = "\n".join(f"- {other['commit'][:12]}: {_scores(other)}" for other in best)
        parts.append(f"# The best so far\n\n{lines}")
    failures = context.get("failures", ())
    if failures:
        parts.append(
            "# What failed\n\nThe last changes of this program that could not be evaluated:\n\n"
            + "\n\n".join(_fenced(text) for text in failures)
        )
    return "\n\n".join(parts) + "\n"


def _scores(record: Mapping[str, Any]) -> str:
    if record.get("objective") is None:
        return "It was not evaluated yet."
    shown = {"objective": record["objective"], **record.get("metrics", {})}
    return ", ".join(f"{name} {_number(value)}" for name, value in shown.items())


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:200]


def _fenced(text: str, kind: str = "") -> str:
    """A block of text, with a fence that the text itself does not contain."""
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n[{len(text) - _LONGEST} characters more]"
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}"
