"""The lifecycle as Markdown, drawn from the tables, so that the documentation cannot lag behind the code.
Only makes text; `docs/generate.py` puts it into the pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tenuto.lifecycle.states import TRANSITIONS, JobFailureStatus, JobState, TransientMode


def states_table() -> str:
    return table(("state", "number", "meaning"), [(f"`{s.name}`", str(s.value), s.meaning) for s in JobState])


def failures_table() -> str:
    return table(("failure status", "meaning"), [(f"`{f.name}`", f.meaning) for f in JobFailureStatus])


def transient_table() -> str:
    return table(("mode", "meaning"), [(f"`{mode.name}`", mode.meaning) for mode in TransientMode])


def transitions_table() -> str:
    rows = [
        (f"`{state.name}`", f"`{to.name}`", why)
        for state, row in TRANSITIONS.items()
        for to, why in row.items()
    ]
    return table(("from", "to", "when"), rows)


def transitions_diagram() -> str:
    """A Mermaid state diagram."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {JobState.UNSCHEDULED.name}"]
    for state, row in TRANSITIONS.items():
        lines += [f"    {state.name} --> {to.name}: {why}" for to, why in row.items()]
    return "\n".join([*lines, "```"])


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = list(header)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def refreshed(page: str, parts: Mapping[str, str]) -> str:
    """The page with its generated parts renewed: all between `<!-- begin name -->` and `<!-- end name -->`.

    Raises `KeyError` if the page lacks the place for a part.
    """
    for name, text in parts.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        before, found_begin, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise KeyError(name)
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page
