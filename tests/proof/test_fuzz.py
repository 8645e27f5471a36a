"""Every reader bears garbage: a few thousand mutations, always the same, and all that was ever found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from proof.fuzz import engines
from proof.fuzz.bugs import BUGS, hunted, hunted_import
from proof.fuzz.mutations import mutated
from proof.fuzz.readers import targets
from proof.fuzz.targets import Bench, Target, Wrong, play

FOUND = sorted(Path(__file__).with_name("found").iterdir())


def names() -> list[str]:
    bench = Bench()
    try:
        return [target.name for target in targets(bench)]
    finally:
        bench.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


@pytest.mark.parametrize("name", names())
def test_a_reader_bears_garbage(name: str) -> None:
    fuzzed = engines.plain(name, 1000)
    assert fuzzed.executions > 1000
    assert fuzzed.findings == ()


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_an_input_that_was_found_does_no_harm_any_more(path: Path, bench: Bench) -> None:
    assert harm(engines.target_named(path.name.partition("--")[0], bench), path.read_bytes()) is None


def harm(target: Target, data: bytes) -> Wrong | None:
    """What is wrong with how a reader takes an input."""
    try:
        play(target, data)
    except Wrong as found:
        return found
    return None


def test_the_seeds_are_real_files_that_are_read(bench: Bench) -> None:
    """If the seeds were refused, all their mutations would be, too."""
    for target in targets(bench):
        assert target.seeds(), target.name
        for seed in target.seeds()[:1]:
            target.call(seed)


def test_garbage_is_the_same_each_time() -> None:
    seeds = [b'{"attempt": 1, "nonce": "x"}', b"a = 1\n"]

    def made() -> list[bytes]:
        random = Random(7)
        return [mutated(random.choice(seeds), random, seeds) for _ in range(200)]

    assert made() == made()
    assert len(set(made())) > 150


def test_coverage_guides_the_search() -> None:
    fuzzed = engines.guided("record-stop", 0.5)
    assert fuzzed.executions > 10
    assert fuzzed.reached > 20
    assert fuzzed.findings == ()


@pytest.mark.parametrize("name", names())
def test_a_reader_that_imports_what_a_file_names_would_be_found(name: str) -> None:
    assert hunted_import(name).found


@pytest.mark.slow
def test_planted_bugs_are_found() -> None:
    assert [bug.name for bug in map(hunted, range(len(BUGS))) if not bug.found] == []
