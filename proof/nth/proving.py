"""Owns the loop: each scenario, with its 1st, 2nd, ... operation failing, until none is left to fail.
Knows no scenario; `scenarios` lists them.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from proof.descriptors import open_files
from proof.nth.bugs import BUGS
from proof.nth.faults import Fault, Killed, failing
from proof.nth.scenarios import Place, Scenario, scenarios
from proof.report import Case, Options, Planted, Report, Violation
from proof.spread import spread
from tenuto.errors import TenutoError
from tenuto.workspace.machine import this_machine

_MOST_OPERATIONS = 10_000
_UNTIDY = (Fault.KILL, Fault.STAYS_BROKEN)
"""After these nobody could clear up; the next attempt does."""
_FAST = "/dev/shm"
"""A disk in memory: real system calls, and no waiting for a device that other programs use."""
ALWAYS, IN_TURNS = (Fault.TORN, Fault.KILL), (Fault.SHORT, Fault.ENOSPC, Fault.EIO)
"""In the sizes of `make test`: the faults of every operation, and those of which it meets one."""
SMALL_FAULTS = (*ALWAYS, *IN_TURNS)


class Tried(NamedTuple):
    """One scenario under one fault, at every operation."""

    cases: int
    struck: Counter[str]
    """Which operations failed, how often."""
    violations: list[Violation]


def run(options: Options) -> Report:
    faults = SMALL_FAULTS if options.small else tuple(Fault)
    cases, violations = [], []
    struck: Counter[str] = Counter()
    began_all = time.perf_counter()
    names = [scenario.name for scenario in scenarios()]
    tried_all = spread(_small_tries if options.small else _tries, range(len(names)), options.workers)
    for name, (tries, seconds) in zip(names, tried_all, strict=True):
        count = sum(tried.cases for tried in tries)
        operations = max(tried.cases for tried in tries)
        tried_here = f"{operations} operations, {len(faults)} faults"
        cases.append(Case(name, tried_here, count, "cases", seconds))
        for tried in tries:
            violations += tried.violations
            struck += tried.struck
    called = ", ".join(f"{name} {count}" for name, count in struck.most_common())
    return Report(
        name="nth",
        title="Every operation on files fails once, in every way",
        cases=tuple(cases),
        violations=tuple(violations),
        planted=tuple(spread(_hunt, range(len(BUGS)), options.workers)) if options.planted else (),
        notes=(
            f"Faults: {', '.join(f'{fault.name} ({fault.value})' for fault in faults)}.",
            f"Operations that failed: {called}.",
        ),
        seconds=time.perf_counter() - began_all,
    )


def _tries(number: int) -> tuple[list[Tried], float]:
    """Every operation of a scenario fails in every way; with the seconds that it took."""
    began = time.perf_counter()
    return [try_all(number, fault) for fault in Fault], time.perf_counter() - began


def _small_tries(number: int) -> tuple[list[Tried], float]:
    """Every operation of a scenario fails in the ways of `_each_small_try`; with the seconds that it took."""
    began = time.perf_counter()
    return list(_each_small_try(number)), time.perf_counter() - began


def _each_small_try(number: int) -> Iterator[Tried]:
    """Every operation of a scenario is torn once, killed once, and fails in one way of those in turns."""
    for fault in ALWAYS:
        yield try_all(number, fault)
    for turn, fault in enumerate(IN_TURNS, 1):
        yield try_all(number, fault, first=turn, every=len(IN_TURNS))


def try_all(
    number: int, fault: Fault, *, most: int = _MOST_OPERATIONS, first: int = 1, every: int = 1
) -> Tried:
    """One scenario under one fault, with its operation 1, 2, ... failing, until there is none any more.

    `first`, `every`: with which operation to begin, and how many to go on at a time.
    """
    violations: list[Violation] = []
    struck: Counter[str] = Counter()
    for at in range(first, most, every):
        name, operation, problem = _try(number, fault, at)
        if problem is not None:
            what, details = problem
            again = f"python -c 'from proof.nth.proving import show; show({number}, \"{fault.name}\", {at})'"
            violations.append(Violation(name, f"{what} [{fault.name} at {operation}, {at}]", details, again))
        if operation is None:
            return Tried(struck.total(), struck, violations)
        struck[operation] += 1
    raise AssertionError(f"{name} never ends")


def show(number: int, fault: str, at: int) -> None:
    """One case again, for the search of its cause."""
    print(_try(number, Fault[fault], at))


def _try(number: int, fault: Fault, at: int) -> tuple[str, str | None, tuple[str, str] | None]:
    """The scenario's name, the operation that failed (None if none did), and what was wrong afterwards."""
    scenario = scenarios()[number]
    root = tempfile.mkdtemp(prefix="tenuto-nth-", dir=_FAST if os.path.isdir(_FAST) else None)
    try:
        place = Place(root, this_machine())
        scenario.prepare(place)
        before = open_files(root).keys()
        gc.disable()  # what is made now stays young
        with failing(at, fault) as machine:
            finished = _finishes(scenario, place)
        leaked = open_files(root).keys() - before
        if fault is Fault.KILL and leaked:
            _drop_objects()
            for fd in open_files(root).keys() - before:  # as the kernel does
                with suppress(OSError):
                    os.close(fd)
        elif leaked:
            return scenario.name, machine.struck, (f"{len(leaked)} descriptors were left open", "")
        scenario.check(place, finished=finished)
        if fault not in _UNTIDY and machine.struck not in ("unlink", "close"):
            left = place.temporary_files()
            assert not left, f"temporary files stay: {left}"
        # Once more, on a machine without a fault.
        again = _finishes(scenario, place)
        assert again, "it cannot be done again, though nothing fails any more"
        scenario.check(place, finished=True)
        return scenario.name, machine.struck, None
    except AssertionError as broken:
        return scenario.name, machine.struck, (str(broken), traceback.format_exc(limit=4))
    except Exception as error:  # noqa: BLE001  whatever comes out of a reader is a finding
        what = f"{type(error).__name__} instead of an answer: {error}"
        return scenario.name, machine.struck, (what, traceback.format_exc(limit=6))
    finally:
        gc.enable()
        shutil.rmtree(root, ignore_errors=True)


def _finishes(scenario: Scenario, place: Place) -> bool:
    """Whether it went through. Errors of the system and of our tree are fair; anything else is not."""
    try:
        scenario.act(place)
    except (OSError, TenutoError, Killed):
        return False
    return True


def _drop_objects() -> None:
    """Have objects of the killed attempt close what they opened: one that is collected later would close a
    number that belongs to another file by then.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect(0)


# Planted bugs


class _Bug(NamedTuple):
    name: str
    stands_for: str
    target: Any
    attribute: str
    broken: Callable[..., object]
    found_in: str
    """The scenario to begin with: those before it find nothing, and took nine tenths of the hunt."""


def _hunt(number: int) -> Planted:
    """Break an adapter, and see whether the loop notices."""
    bug = _Bug(*BUGS[number])
    began = time.perf_counter()
    right = getattr(bug.target, bug.attribute)
    setattr(bug.target, bug.attribute, bug.broken)
    try:
        found = _first_violation(bug.found_in)
    finally:
        setattr(bug.target, bug.attribute, right)
    how = "" if found is None else f"{found.case}: {found.what}"
    return Planted("nth", bug.name, bug.stands_for, found is not None, how, time.perf_counter() - began)


def _first_violation(begin: str) -> Violation | None:
    """What the scenario `begin`, or any other, finds first."""
    names = [scenario.name for scenario in scenarios()]
    for number in sorted(range(len(names)), key=lambda number: names[number] != begin):
        for tried in _each_small_try(number):
            for violation in tried.violations:
                return violation
    return None
