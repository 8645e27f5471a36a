"""Owns the search: plain mutations for a quick look, mutations guided by coverage, and atheris where it is.
All three feed the same readers, and report each kind of finding once.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple

import tenuto
from proof.fuzz.mutations import mutated
from proof.fuzz.readers import targets
from proof.fuzz.targets import Bench, Target, play

MEMORY_MB = 1024
_OURS = os.path.dirname(tenuto.__file__) + os.sep


class Finding(NamedTuple):
    """An input that a reader does not bear."""

    what: str
    data: bytes
    details: str


class Fuzzed(NamedTuple):
    executions: int
    reached: int
    """How many places of our code the inputs led to; 0 if nobody counted."""
    findings: tuple[Finding, ...]
    engine: str


def target_named(name: str, bench: Bench) -> Target:
    return next(target for target in targets(bench) if target.name == name)


def tried(target: Target, data: bytes) -> Finding | None:
    """One execution."""
    try:
        play(target, data)
    except Exception as error:  # noqa: BLE001  that is what we look for
        where = [frame for frame in traceback.extract_tb(error.__traceback__) if _OURS in frame.filename]
        place = f" in {Path(where[-1].filename).name}:{where[-1].name}" if where else ""
        return Finding(
            f"{type(error).__name__}{place}: {str(error)[:100]}", data, traceback.format_exc(limit=-4)
        )
    return None


def plain(
    name: str,
    executions: int,
    seed: int = 0,
    *,
    first_only: bool = False,
    broken: Callable[[Target], Target] = lambda target: target,
) -> Fuzzed:
    """So many mutations of the seeds, the same ones each time; with `first_only`, until one is a finding.

    `broken`: plants a bug in the reader.
    """
    bench = Bench()
    try:
        target = broken(target_named(name, bench))
        seeds = target.seeds()
        random = Random(f"{name} {seed}")
        found: dict[str, Finding] = {}
        for data in seeds:
            _note(found, tried(target, data))
        for _ in range(executions):
            if first_only and found:
                break
            _note(found, tried(target, mutated(random.choice(seeds), random, seeds)))
        return Fuzzed(executions + len(seeds), 0, tuple(found.values()), "mutations")
    finally:
        bench.close()


def guided(name: str, seconds: float, seed: int = 0) -> Fuzzed:
    """Mutations of whatever reached a new place in our code, for a while."""
    bench = Bench()
    try:
        target = target_named(name, bench)
        random = Random(f"{name} {seed}")
        corpus: list[bytes] = []
        reached: set[tuple[int, int, int]] = set()
        found: dict[str, Finding] = {}
        executions = 0
        end = time.monotonic() + seconds
        waiting = target.seeds()
        while time.monotonic() < end:
            data = waiting.pop() if waiting else mutated(random.choice(corpus), random, corpus)
            edges, finding = _traced(target, data)
            executions += 1
            _note(found, finding)
            if not edges <= reached or not corpus:
                reached |= edges
                corpus.append(data)
        return Fuzzed(executions, len(reached), tuple(found.values()), "guided by coverage")
    finally:
        bench.close()


def _traced(target: Target, data: bytes) -> tuple[set[tuple[int, int, int]], Finding | None]:
    edges: set[tuple[int, int, int]] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        code, last = id(frame.f_code), 0

        def local(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            edges.add((code, last, frame.f_lineno))
            last = frame.f_lineno
            return local

        return local

    before = sys.gettrace()  # a debugger's, or that of a measure of coverage
    sys.settrace(trace)
    try:
        finding = tried(target, data)
    finally:
        sys.settrace(before)
    return edges, finding


def _note(found: dict[str, Finding], finding: Finding | None) -> None:
    if finding is not None:
        known = found.get(finding.what.partition(":")[0])
        if known is None or len(finding.data) < len(known.data):
            found[finding.what.partition(":")[0]] = finding


# Atheris


def has_atheris() -> bool:
    return importlib.util.find_spec("atheris") is not None


def by_atheris(name: str, seconds: float, seed: int = 0) -> Fuzzed:
    """libFuzzer on instrumented code, in a process of its own; it ends at the first finding."""
    with tempfile.TemporaryDirectory(prefix="tenuto-atheris-") as directory:
        command = [
            sys.executable, str(Path(__file__).with_name("with_atheris.py")), name, directory,
            f"-max_total_time={max(int(seconds), 1)}", f"-seed={seed + 1}", "-timeout=120",
            f"-rss_limit_mb={MEMORY_MB}", "-max_len=8192", "-print_final_stats=1",
            f"-artifact_prefix={directory}/found-", f"{directory}/corpus",
        ]  # fmt: skip
        path = os.pathsep.join([str(Path(__file__).parents[2]), str(Path(tenuto.__file__).parents[1])])
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False,
            env={**os.environ, "PYTHONPATH": path}, timeout=seconds + 300,
        )  # fmt: skip
        said = done.stderr + done.stdout
        executions = re.search(r"number_of_executed_units:\s*(\d+)", said)
        reached = re.findall(r"\bcov: (\d+)", said)
        artifacts = [path for path in Path(directory).glob("found-*") if path.is_file()]
        findings = tuple(_explained(name, path, said) for path in artifacts)
        if done.returncode and not findings:
            findings = (Finding(f"the fuzzer ended with code {done.returncode}", b"", said[-2000:]),)
        return Fuzzed(
            int(executions[1]) if executions else 0, int(reached[-1]) if reached else 0, findings, "atheris"
        )


def _explained(name: str, artifact: Path, said: str) -> Finding:
    data = artifact.read_bytes()
    bench = Bench()
    try:
        again = tried(target_named(name, bench), data)
    finally:
        bench.close()
    return again or Finding(artifact.name.removeprefix("found-").partition("-")[0], data, said[-2000:])
