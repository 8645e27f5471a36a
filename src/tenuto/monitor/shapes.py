"""The answers of a state provider: plain JSON values, typed; one shape for each route.
Holds no logic. A field may be added; none is renamed, because people script against them.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from tenuto.jobs.row import PlainGroup, PlainRow


class Stamp(TypedDict):
    """Which state of the server an answer shows."""

    epoch: str
    seq: int
    now: str


Job = PlainRow
"""One job in one group."""


Group = PlainGroup
"""A run of an experiment, a service or a search."""


class About(Stamp):
    """The watched source."""

    version: str
    workspace: str
    kinds: list[str]
    read_only: bool


class Failure(TypedDict):
    """Jobs that failed for what looks like the same cause."""

    reason: str
    error: str
    place: str
    jobs: list[Job]
    total: int
    targets: list[list[Any]]
    """[key, attempt] of each, at most 1,000: what *retry* of all of them names."""


class AlarmJson(TypedDict):
    """Something that a person should look at."""

    key: str
    text: str


class Holder(TypedDict):
    """A process that holds units of a token."""

    pid: int
    key: str | None


class WaiterJson(TypedDict):
    """A job that waits for units of a token."""

    key: str
    amount: int
    since: str | None


class Token(TypedDict):
    """A counted resource."""

    name: str
    capacity: int | None
    held: int
    free: int
    holders: list[Holder]
    waiting: list[WaiterJson]


class OverviewJson(Stamp):
    """The first page."""

    groups: list[Group]
    running: list[Job]
    failures: list[Failure]
    tokens: list[Token]
    alarms: list[AlarmJson]
    jobs_per_s: float
    """How many jobs ended in a second, over the last minute."""


class Groups(Stamp):
    """All groups, older runs too."""

    groups: list[Group]
    total: int
    offset: int


class Jobs(Stamp):
    """A window of the jobs of a group, or of all."""

    group: str | None
    total: int
    known: int
    matched: int
    offset: int
    jobs: list[Job]


class AttemptJson(TypedDict):
    """One try of a job."""

    attempt: int
    started: str | None
    ended: str | None
    state: str
    reason: str | None
    message: str | None
    exit_code: int | None
    signal: int | None
    host: str | None
    pid: int | None
    launcher: str | None
    usage: dict[str, float]


class JobDetail(Job, Stamp):
    """Everything about one job."""

    directory: str | None
    parameters: dict[str, Any]
    upstream: dict[str, str]
    dependencies: list[Job]
    dependents: list[Job]
    runs: list[str]
    attempts: list[AttemptJson]
    most_attempts: int | None
    """How many attempts the job may have; None if it has one, or if that is not known."""
    events: list[dict[str, Any]]
    result: Any
    earlier_logs: int
    provenance: dict[str, Any]
    """What the result was made of: code, sources, commit, packages and the like."""
    carbon: dict[str, Any] | None
    commands: list[str]
    lineage: list[dict[str, Any]]
    """Of a candidate: its ancestors, the nearest first, and the changes of each of its parent."""


class WhyJson(TypedDict):
    """Why a job is where it is."""

    key: str
    because: list[str]
    reuse: str
    nearest: dict[str, Any] | None
    code: list[str]
    next: list[str]


class LogPart(TypedDict):
    """A part of what an attempt printed."""

    key: str
    stream: str
    attempt: int
    offset: int
    next: int
    text: str
    whole: bool
    ended: bool


class NodeJson(TypedDict):
    """A task with its jobs, or one job."""

    id: str
    label: str
    task: str
    total: int
    counts: dict[str, int]
    layer: int
    order: int


Edge = TypedDict("Edge", {"from": str, "to": str, "count": int})
"""What depends on what."""


class Graph(Stamp):
    """The graph of a group."""

    nodes: list[NodeJson]
    edges: list[Edge]
    collapsed: bool


class TokenLane(Token):
    """A token over time: how many of its units were held from when to when."""

    steps: list[list[int]]


class Lane(TypedDict):
    """One group of the timeline: lines in use at once, bars, waits, or how many bars there are."""

    group: str
    label: str
    lines: int
    bars: list[list[Any]]
    waits: list[list[Any]]
    joins: list[list[Any]]
    bins: list[list[Any]]


Timeline = TypedDict(
    "Timeline",
    {
        "epoch": str,
        "seq": int,
        "now": str,
        "from": int,
        "to": int,
        "lanes": list[Lane],
        "tokens": list[TokenLane],
    },
)
"""The timeline of all doors, in milliseconds."""


class HistoryJson(Stamp):
    """How many jobs were in which state, over time."""

    at: list[str]
    counts: dict[str, list[int]]


class ColumnJson(TypedDict):
    """A column of results."""

    name: str
    kind: str
    min: float | None
    max: float | None
    less: NotRequired[bool]
    """True for an objective of which smaller values are better."""


class Results(Stamp):
    """What jobs gave."""

    columns: list[ColumnJson]
    rows: list[dict[str, Any]]
    total: int
    offset: int
    importance: dict[str, float]
    """The share of each parameter in what explains the column that was asked for, the largest first."""


class Curve(TypedDict):
    """One metric of one job: points by step, some of them where there are many."""

    name: str
    steps: list[int]
    times: list[float | None]
    values: list[float | None]
    """None where the value is no finite number."""
    total: int
    """How many points there are."""
    last: float | None
    min: float | None
    max: float | None
    packed: NotRequired[PackedJson]
    """With `packed=`: the points, and `steps`, `times` and `values` are empty."""


class PackedJson(TypedDict):
    """The points of a curve for a plot: numbers of 4 or 8 bytes, the lowest first, in base64."""

    steps: list[int]
    """All of them; of evenly spaced ones the first and the distance."""
    even: bool
    values: str
    """NaN where the value is no finite number."""
    bits: int
    """32, or 64 where 32 could be told from the number."""
    times: str | None
    """64 bits each, NaN where it is unknown; None unless they were asked for."""
    newest: float | None


class JobCurves(TypedDict):
    """The curves of one job."""

    key: str
    id: str
    name: str
    task: str
    state: str
    tags: dict[str, str]
    where: str
    names: list[str]
    """All metrics of the job, also other metrics."""
    curves: list[Curve]


class MetricsJson(Stamp):
    """Metrics over time, of one job or of many."""

    names: list[str]
    """The metrics of all these jobs."""
    jobs: list[JobCurves]
    """The jobs that logged something."""
    total: int
    """How many of the jobs that were asked for logged something; `jobs` has the first ones."""


class TokensJson(Stamp):
    """The tokens of this machine that jobs use."""

    tokens: list[Token]


class QueueJson(Stamp):
    """The queue of the service."""

    services: list[dict[str, Any]]
    users: list[dict[str, Any]]


class Nodes(Stamp):
    """The nodes of the service."""

    nodes: list[dict[str, Any]]


class ArchiveJson(Stamp):
    """The archive of a search."""

    group: str
    axes: list[dict[str, Any]]
    cells: list[list[Any]]
    in_flight: list[list[Any]]
    filled: int
    total: int
    best: float | None
    qd_score: float | None
    history: list[list[Any]]


class Carbon(Stamp):
    """What jobs used, as far as that was measured."""

    groups: list[dict[str, Any]]
    tasks: list[dict[str, Any]]


class Orphans(TypedDict):
    """Finished jobs of no run."""

    jobs: int
    bytes: int


class Cleanup(Stamp):
    """What a person may want to clean up."""

    unowned: list[Job]
    orphans: Orphans
    alarms: list[AlarmJson]
    bad_lines: int


class OutcomeJson(TypedDict):
    """What became of an action on one job."""

    key: str
    outcome: str
    detail: str
    attempt: int


class Outcomes(TypedDict):
    """What became of an action."""

    outcomes: list[OutcomeJson]


class Gone(TypedDict):
    """A job that is in its group no more."""

    group: str
    key: str


class DeltaJson(Stamp):
    """All that changed since a number, each once, as it is now."""

    jobs: list[Job]
    gone: list[Gone]
    groups: list[Group]
    many: NotRequired[list[str]]
    """Groups of which so much changed that their window is to be asked for again."""


class ResetJson(Stamp):
    """Everything is to be asked for again."""

    reset: bool
