"""Renews the parts of the pages that are drawn from the code: `python -m docs.generate`.
A test fails while a page is stale.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from tenuto.jobs.row import PlainService
from tenuto.lifecycle.service import PAYLOAD_TRANSITIONS, SERVICE_TRANSITIONS, PayloadState, ServiceState
from tenuto.lifecycle.states import TRANSITIONS, JobFailureStatus, JobState, TransientMode
from tenuto.monitor import shapes
from tenuto.monitor.tui.help import KEYS
from tenuto.workspace.derive_table import ROWS, TableRow

Vocabulary = TypeVar("Vocabulary", bound=Enum)

ANSWERS: dict[str, Any] = {
    "/api/about": shapes.About,
    "/api/overview": shapes.OverviewJson,
    "/api/groups": shapes.Groups,
    "/api/jobs": shapes.Jobs,
    "/api/job": shapes.JobDetail,
    "/api/why": shapes.WhyJson,
    "/api/log": shapes.LogPart,
    "/api/graph": shapes.Graph,
    "/api/timeline": shapes.Timeline,
    "/api/history": shapes.HistoryJson,
    "/api/results": shapes.Results,
    "/api/metrics": shapes.MetricsJson,
    "/api/tokens": shapes.TokensJson,
    "/api/queue": shapes.QueueJson,
    "/api/nodes": shapes.Nodes,
    "/api/archive": shapes.ArchiveJson,
    "/api/carbon": shapes.Carbon,
    "/api/cleanup": shapes.Cleanup,
    "/api/actions": shapes.Outcomes,
}
"""Route -> the shape of its answer; what monitor.md lists."""


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
    return _diagram(JobState.UNSCHEDULED, TRANSITIONS, lambda state: state.name)


def service_states_table() -> str:
    return table(("state", "meaning"), [(f"`{state.value}`", state.meaning) for state in ServiceState])


def service_diagram() -> str:
    return _diagram(ServiceState.QUEUED, SERVICE_TRANSITIONS, lambda state: state.value)


def payload_states_table() -> str:
    return table(("state", "meaning"), [(f"`{state.value}`", state.meaning) for state in PayloadState])


def payload_diagram() -> str:
    return _diagram(PayloadState.PREPARED, PAYLOAD_TRANSITIONS, lambda state: state.value)


def _diagram(
    first: Vocabulary,
    transitions: Mapping[Vocabulary, Mapping[Vocabulary, str]],
    shown: Callable[[Vocabulary], str],
) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {shown(first)}"]
    for state, row in transitions.items():
        lines += [f"    {shown(state)} --> {shown(to)}: {why}" for to, why in row.items()]
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


def derive_table() -> str:
    header = (
        "row",
        "marker",
        "launch record",
        "lock",
        "runner",
        "descendants",
        "claim",
        "cluster",
        "state",
        "what next",
    )
    return table(header, [_cells(row) for row in ROWS])


def _cells(row: TableRow) -> tuple[str, ...]:
    state = f"`{row.state.name}`"
    if row.reason is not None:
        state += f" ({row.reason.name})"
    if row.alarming:
        state += ", alarm"
    return (
        row.name,
        _any_of(row.mark),
        _any_of(row.launch),
        _either(row.locked),
        _any_of(row.runner),
        _either(row.descendants),
        _any_of(row.claimed),
        _any_of(row.cluster),
        state,
        row.action.name.lower(),
    )


def _any_of(values: Iterable[Enum] | None) -> str:
    return "" if values is None else ", ".join(value.value for value in values)


def _either(held: bool | None) -> str:
    return {None: "", True: "held", False: "free"}[held]


_SHARED = (
    shapes.Job,
    shapes.Group,
    PlainService,
    shapes.AttemptJson,
    shapes.Failure,
    shapes.Token,
    shapes.NodeJson,
    shapes.Edge,
    shapes.Lane,
    shapes.ColumnJson,
    shapes.OutcomeJson,
    shapes.DeltaJson,
    shapes.ResetJson,
)
_NAMES: dict[Any, str] = {shapes.Job: "job", shapes.Group: "group", PlainService: "service"}


def keys_table() -> str:
    """The keys as a table for the documentation."""
    rows = [f"| `{key.label}` | {key.meaning} |" for key in KEYS]
    return "\n".join(["| Key | What it does |", "|---|---|", *rows])


def answers_table() -> str:
    """Route -> the fields of its answer."""
    rows = [f"| `{route}` | {_fields(shape)} |" for route, shape in ANSWERS.items()]
    return "\n".join(["| Route | Fields |", "|---|---|", *rows])


def shapes_table() -> str:
    """The values inside answers, and their fields."""
    rows = [
        f"| {_NAMES.get(shape) or shape.__name__.removesuffix('Json').lower()} | {_fields(shape)} |"
        for shape in _SHARED
    ]
    return "\n".join(["| Value | Fields |", "|---|---|", *rows])


def _fields(shape: Any) -> str:
    return " ".join(f"`{name}`" for name in shape.__annotations__)


PAGES = {
    "lifecycle.md": {
        "states": states_table,
        "transitions diagram": transitions_diagram,
        "transitions": transitions_table,
        "failures": failures_table,
        "transient": transient_table,
        "derive": derive_table,
    },
    "monitor.md": {
        "answers": answers_table,
        "values": shapes_table,
        "keys": keys_table,
    },
    "service.md": {
        "service states": service_states_table,
        "service diagram": service_diagram,
        "payload states": payload_states_table,
        "payload diagram": payload_diagram,
    },
}


def fresh(page: str, text: str) -> str:
    """The page's text as it should be."""
    return refreshed(text, {name: draw() for name, draw in PAGES[page].items()})


if __name__ == "__main__":
    for page in PAGES:
        path = Path(__file__).with_name(page)
        path.write_text(fresh(page, path.read_text(encoding="utf-8")), encoding="utf-8")
