"""Owns the proof by models: checks each as it is and with every planted bug, and reports.
Knows no protocol; the table below names them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from proof.models import (
    cancel,
    claims,
    cleaning,
    handover,
    phases,
    quotas,
    search,
    shared_claim,
    start,
    terminate,
    tokens,
)
from proof.models.checker import Checked, Model, check
from proof.report import Case, Options, Planted, Report, Violation
from proof.spread import spread


class Subject(NamedTuple):
    """A model, how large it is built, and the bugs that can be planted in it."""

    model: type[Any]
    tried: str
    planted: Mapping[str, str]
    small: Mapping[str, int]
    """Large enough to show every planted bug."""
    full: Mapping[str, int]


SUBJECTS: dict[str, Subject] = {
    start.StartAndAdopt.name: Subject(
        start.StartAndAdopt,
        "two schedulers, runner, payload, its daemons; any of them killed, or power lost, at any step",
        start.PLANTED,
        small={"faults": 1},
        full={"faults": 3},
    ),
    phases.Phases.name: Subject(
        phases.Phases,
        "four jobs in the real core, one transient, two with a token; a person cancels and submits again, "
        "attempts fail, time out or find the machine short",
        phases.PLANTED,
        small={"slots": 2, "wishes": 2, "faults": 3},
        full={"slots": 2, "wishes": 4, "faults": 4},
    ),
    cancel.CancelAgainstFinish.name: Subject(
        cancel.CancelAgainstFinish,
        "a scheduler and `tenuto kill` cancel a job that ends, times out, is lost or deaf; all may be killed",
        cancel.PLANTED,
        small={"faults": 1},
        full={"faults": 3},
    ),
    claims.ClaimsAndFence.name: Subject(
        claims.ClaimsAndFence,
        "two drivers, runners that a cluster starts late or twice, and late reads; lies and kills anywhere",
        claims.PLANTED,
        small={"faults": 2},
        full={"faults": 3},
    ),
    handover.Handover.name: Subject(
        handover.Handover,
        "servers that die or freeze, nodes that refuse, submissions and answers that are lost or come late",
        handover.PLANTED,
        small={"faults": 3},
        full={"faults": 3, "servers": 3},
    ),
    search.OneCandidate.name: Subject(
        search.OneCandidate,
        "two schedulers, two workers, a broker that loses and repeats; all freeze or die, a person cancels",
        search.PLANTED,
        small={"faults": 2},
        full={"faults": 4},
    ),
    search.CandidatesOfASearch.name: Subject(
        search.CandidatesOfASearch,
        "the same with two candidates, and one of the processes that freezes or dies",
        search.PLANTED,
        small={"candidates": 1, "faults": 2},
        full={"candidates": 2, "faults": 1},
    ),
    quotas.Quotas.name: Subject(
        quotas.Quotas,
        "two users; servers that claim within quotas, die, freeze, take over; nodes that refuse or are mute",
        quotas.PLANTED,
        small={"faults": 2},
        full={"faults": 1, "places": 2},
    ),
    shared_claim.SharedClaim.name: Subject(
        shared_claim.SharedClaim,
        "members of a database that claim a row, freeze, die, or leave with what they hold; answers are lost",
        shared_claim.PLANTED,
        small={"faults": 3},
        full={"faults": 4},
    ),
    shared_claim.LeasedClaim.name: Subject(
        shared_claim.LeasedClaim,
        "the same with claims that end with a lease, whoever is a member",
        shared_claim.PLANTED_LEASED,
        small={"faults": 2},
        full={"faults": 3},
    ),
    terminate.Terminate.name: Subject(
        terminate.Terminate,
        "two users end a job that is claimed, sent, started or ends by itself; server and node may be killed",
        terminate.PLANTED,
        small={"faults": 5},
        full={"faults": 9},
    ),
    cleaning.Cleaning.name: Subject(
        cleaning.Cleaning,
        "two cleaners, a download and an upload; a cleaner is killed at any step, or the clock jumps",
        cleaning.PLANTED,
        small={"faults": 9},
        full={"faults": 20},
    ),
    tokens.TokensWithTickets.name: Subject(
        tokens.TokensWithTickets,
        "two schedulers, jobs that need units of shared tokens; all may be killed, a capacity lowered",
        tokens.PLANTED,
        small={"faults": 1, "tokens": 1},
        full={"faults": 2, "tokens": 2},
    ),
}


NOTE = """Every reachable state of each model was visited, and from each one a good end can be reached without
a further fault. What happens next to a job is decided by the real `Core`, what a directory means by the real
`derive_state` and `after_attempt`, which job gets a token by the real `decide`, which service job is next by
`next_jobs`, and when a cleaner rests by `CleanerRest`."""


class _Order(NamedTuple):
    name: str
    bug: str | None
    size: Mapping[str, int]


class _Outcome(NamedTuple):
    checked: Checked
    seconds: float


def run(options: Options, names: Sequence[str] = tuple(SUBJECTS)) -> Report:
    """Check every model in full, then every planted bug."""
    sizes = {name: SUBJECTS[name].small if options.small else SUBJECTS[name].full for name in names}
    bugs = [(name, bug) for name in names for bug in SUBJECTS[name].planted if options.planted]
    work: list[_Order] = [_Order(name, None, sizes[name]) for name in names]
    work += [_Order(name, bug, SUBJECTS[name].small) for name, bug in bugs]
    outcomes = list(spread(_check, work, options.workers))
    seen = {(order.name, order.bug): outcome for order, outcome in zip(work, outcomes, strict=True)}
    return Report(
        name="models",
        title="Model checks",
        cases=tuple(_case(name, sizes[name], seen[name, None]) for name in names),
        violations=tuple(
            Violation(name, found.what, found.text(), "python -m proof --only models")
            for name in names
            if (found := seen[name, None].checked.found) is not None
        ),
        planted=tuple(_planted(name, bug, seen[name, bug]) for name, bug in bugs),
        notes=(NOTE,),
    )


def _check(order: _Order) -> _Outcome:
    began = time.perf_counter()
    model: Model[Any] = SUBJECTS[order.name].model(**order.size, planted=order.bug)
    return _Outcome(check(model), time.perf_counter() - began)


def _case(name: str, size: Mapping[str, int], outcome: _Outcome) -> Case:
    checked = outcome.checked
    bounds = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in size.items())
    note = f"{bounds}; {checked.steps:,} steps, depth {checked.depth}"
    return Case(name, SUBJECTS[name].tried, checked.states, "states", outcome.seconds, note)


def _planted(name: str, bug: str, outcome: _Outcome) -> Planted:
    found = outcome.checked.found
    how = "" if found is None else f"{found.what}, after {len(found.trace) - 1} steps"
    stands_for = SUBJECTS[name].planted[bug]
    return Planted(name, bug, stands_for, found is not None, how, outcome.seconds)
