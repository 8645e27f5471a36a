"""Plays the script in each place, strikes it, and judges what its ledger and the commands say."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from proof.clusters.script import SCRIPT, Note, read
from proof.clusters.systems import PLACES, Place, directory_of
from proof.report import Case, Options, Report, Violation
from tests.clusters.sites import Scripts

JOBS, JOBS_IN_TESTS = 200, 16
WAIT_S = 300.0
AWAY_S = 2.0
"""How long a master is away, if nothing happens meanwhile."""
TEND_S = 5.0
DELETED, STAYS = "holds0", "holds1"


def run(options: Options) -> Report:
    """All places, with as many jobs as were asked for."""
    played = [play(name, JOBS_IN_TESTS if options.small else JOBS, options.small) for name in PLACES]
    return Report(
        name="clusters",
        title="Clusters: one script, unchanged, wherever jobs run and whatever dies",
        cases=tuple(case for case, _ in played),
        violations=tuple(violation for _, found in played for violation in found),
        notes=("A machine goes only in whole proofs: Slurm gives a node up after half a minute.",),
    )


def play(name: str, jobs: int, is_small: bool) -> tuple[Case, list[Violation]]:
    """One place: strike its script, and judge."""
    began = time.perf_counter()
    directory = Path(tempfile.mkdtemp(prefix="tn-proof-clusters-", dir="/tmp"))
    directory.chmod(0o755)
    make: Any = PLACES[name]
    with make() as place:
        scripts = Scripts(directory, place.site, SCRIPT)
        (directory / "jobs").write_text(str(jobs))
        try:
            lost = strike(place, scripts, jobs, is_small)
            problems = list(judge(place, scripts, jobs, lost))
        except (AssertionError, TimeoutError, LookupError, ValueError) as error:
            lost, problems = set(), [f"{type(error).__name__}: {error}"]
        finally:
            scripts.close()
    notes = read(scripts.ledger())
    if not problems:
        shutil.rmtree(directory)
    tried = "the driver killed twice, the master killed, a task deleted by hand" + (
        f", the machine of {len(lost)} jobs gone" if lost else ""
    )
    again = "python -m proof --only clusters"
    case = Case(name, tried, jobs, "jobs", time.perf_counter() - began, f"{_begins(notes)} payloads")
    return case, [Violation(name, problem, str(directory), again) for problem in problems]


def strike(place: Place, scripts: Scripts, jobs: int, is_small: bool) -> set[str]:
    """Does to the script what is to be done, until it ends; the jobs whose machine went."""

    def begun(count: int) -> Callable[[], bool]:
        return lambda: _begins(read(scripts.ledger())) >= count

    for share in (0.2, 0.4):
        driver = scripts.start("")
        _until(begun(round(share * jobs)), f"{share:.0%} of the payloads")
        scripts.kill(driver)
    seen = _begins(read(scripts.ledger()))
    driver = scripts.start("")
    _until(begun(seen + 1), "a payload of the third driver")
    _until(lambda: _holding(scripts) >= {DELETED, STAYS}, "the jobs that stay")
    place.delete(scripts, DELETED)
    # A master that dies at once may never have written down that it was told.
    _until(lambda: "error" in _states(scripts, DELETED), "the end of the deleted task")
    place.crash_master()
    _await(begun(round(0.9 * jobs)), AWAY_S)
    place.master_again()
    lost: set[str] = set()
    if place.has_machines and not is_small:
        host = next(note.host for note in read(scripts.ledger()) if note.name == STAYS)
        place.lose(host)
        lost = _open(scripts, host)
        _until(_tended(place, lambda: _again(scripts, STAYS)), "the lost job, elsewhere")
    _until(_tended(place, begun(jobs)), "every payload")
    (scripts.directory / "release").touch()
    driver.communicate(timeout=WAIT_S)
    return lost


def judge(place: Place, scripts: Scripts, jobs: int, lost: set[str]) -> Iterator[str]:
    """What is wrong; nothing, if all is well."""
    notes = read(scripts.ledger())
    for (name, attempt), count in Counter((n.name, n.attempt) for n in notes if n.what == "begin").items():
        if count > 1:
            yield f"attempt {attempt} of {name} ran {count} times"
    for name, count in Counter(n.name for n in notes if n.what == "begin").items():
        if count > (2 if name in lost else 1) and name != "fails":  # which each driver tries again
            yield f"{name} ran {count} times"
    for name, count in Counter(n.name for n in notes if n.what == "end").items():
        if count > (2 if name in lost else 1):
            yield f"{name} was done {count} times"
    found = {str(job["id"]): job for job in scripts.jobs()}
    if len(found) != jobs:
        yield f"there are {len(found)} jobs of {jobs}"
    wanted = {"fails": ("error", "failed"), DELETED: ("error", place.deleted_is)}
    ids = {directory_of(scripts, name).name: end for name, end in wanted.items()}
    for id_, job in found.items():
        end = job["state"], job["reason"]
        if end != ids.get(id_, ("done", None)):
            yield f"{id_[:8]} ended as {end}, and should have as {ids.get(id_, ('done', None))}"
    for name, words in (("fails", "as it is meant to"), (DELETED, place.deleted_is)):
        told = scripts.tenuto("why", directory_of(scripts, name).name, "-w", str(scripts.workspace))
        if words not in told.lower():
            yield f"why {name} does not say {words!r}: {told}"
    code = scripts.exit_codes[-1]
    if code != 1:
        yield f"the driver ended with {code}, and one job failed"


def _begins(notes: list[Note]) -> int:
    return sum(note.what == "begin" for note in notes)


def _holding(scripts: Scripts) -> set[str]:
    return {note.name for note in read(scripts.ledger()) if note.name.startswith("holds")}


def _states(scripts: Scripts, name: str) -> set[str]:
    id_ = directory_of(scripts, name).name
    return {job["state"] for job in scripts.jobs() if job["id"] == id_}


def _open(scripts: Scripts, host: str) -> set[str]:
    """The jobs that had begun on a host and have no marker: a payload may have ended before its runner."""
    begun = {note.name for note in read(scripts.ledger()) if note.host == host} - {"fails", DELETED}
    return {name for name in begun if not any(directory_of(scripts, name).glob("*.done"))}


def _again(scripts: Scripts, name: str) -> bool:
    return any(note.name == name and note.attempt > 1 for note in read(scripts.ledger()))


def _tended(place: Place, condition: Callable[[], bool]) -> Callable[[], bool]:
    """The condition, before which the place is tended, now and then."""
    tended_at = 0.0

    def holds() -> bool:
        nonlocal tended_at
        if time.monotonic() - tended_at > TEND_S:
            tended_at = time.monotonic()
            place.tend()
        return condition()

    return holds


def _await(condition: Callable[[], bool], timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _until(condition: Callable[[], bool], what: str) -> None:
    if not _await(condition, WAIT_S):
        raise TimeoutError(f"waited {WAIT_S:g} s in vain for {what}")
