"""Owns the Markdown tables of a benchmark run.
Decides nothing: what is met is the row's own word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bench.rows import OURS, Row

NONE = "–"


def time_text(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def value_text(row: Row) -> str:
    if row.value is None:
        return NONE
    if row.unit == "s":
        return time_text(row.value)
    if row.unit == "s CPU":
        return f"{time_text(row.value)} CPU"
    return f"{row.value:.3g} {row.unit}"


def met_text(row: Row) -> str:
    return {None: "", True: "hit", False: "MISSED"}[row.met]


def number_text(value: float | None, form: str = ".3g") -> str:
    return NONE if value is None else f"{value:{form}}"


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]], right: Iterable[str] = ()) -> str:
    """A table; the columns named in `right` are aligned there."""
    aligned = set(right)
    rule = ["--:" if name in aligned else "---" for name in header]
    cells = [header, rule, *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in cells)


FULL = {
    "Workload": lambda row: row.workload,
    "Case": lambda row: row.case,
    "System": lambda row: row.system,
    "Size": lambda row: f"{row.size:,}",
    "Value": value_text,
    "One job": lambda row: NONE if row.each is None else time_text(row.each),
    "x ref, wall": lambda row: number_text(row.x_wall),
    "x ref, CPU": lambda row: number_text(row.x_cpu),
    "Spread": lambda row: number_text(row.spread, ".0%"),
    "Load": lambda row: number_text(row.load, ".1f"),
    "Target": lambda row: row.target,
    "Met": met_text,
    "Note": lambda row: row.note,
}
RIGHT = ("Size", "Value", "One job", "x ref, wall", "x ref, CPU", "Spread", "Load")


def columns(rows: Iterable[Row], *left_out: str) -> str:
    """The rows, with all columns but some."""
    shown = {name: cell for name, cell in FULL.items() if name not in left_out}
    return markdown(list(shown), ([cell(row) for cell in shown.values()] for row in rows), RIGHT)


def bullets(around: Mapping[str, object]) -> str:
    lines = []
    for name, value in around.items():
        text = (
            ", ".join(f"{key} {known}" for key, known in value.items())
            if isinstance(value, Mapping)
            else value
        )
        text = f"{text:.2f}" if isinstance(text, float) else text
        lines.append(f"- {name.replace('_', ' ')}: {text}")
    return "\n".join(lines)


def verdict(rows: Iterable[Row]) -> str:
    """How many targets are hit."""
    judged = [row for row in rows if row.system == OURS and row.met is not None]
    missed = [row for row in judged if not row.met]
    text = f"{len(judged) - len(missed)} of {len(judged)} figures with a target hit it"
    names = "; ".join(f"{row.workload} {row.case} at {row.size:,}" for row in missed)
    return f"{text}; missed: {names}." if missed else f"{text}."


def page(rows: Sequence[Row], around: Mapping[str, object], left_out: Sequence[str]) -> str:
    """All there is to say of a run."""
    parts = ["# A run of the benchmark", bullets(around), verdict(rows), columns(rows)]
    if left_out:
        parts.append("## Left out\n\n" + "\n".join(f"- {what}" for what in left_out))
    return "\n\n".join(parts) + "\n"
