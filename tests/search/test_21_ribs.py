"""21: archives and emitters of pyribs as samplers, against their own loop."""

from __future__ import annotations

import logging
import random
import statistics
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import SearchDiffers, SearchError
from tenuto.search import Choice, Evolution, Outcome, Real, RibsSampler, Study
from tests.search import oracle
from tests.search.tasks_for_search import Ball
from tests.search.test_20_pyribs import sphere

SPACE = {"x": Real(-5.12, 5.12, shape=6)}
EMITTERS, BATCH = 2, 6


def built(seed: int | None, count: int = EMITTERS, dims: int = 20) -> tuple[Any, list[Any]]:
    """CMA-ME as a user of pyribs builds it."""
    archive = oracle.archives.GridArchive(
        solution_dim=6,
        dims=[dims, dims],
        ranges=[(-15.36, 15.36)] * 2,
        seed=seed,
        qd_score_offset=-310.0,
    )
    made = [
        oracle.emitters.EvolutionStrategyEmitter(
            archive,
            x0=[0.0] * 6,
            sigma0=0.5,
            ranker="2imp",
            batch_size=BATCH,
            seed=None if seed is None else seed + at,
            lower_bounds=[-5.12] * 6,
            upper_bounds=[5.12] * 6,
        )
        for at in range(count)
    ]
    return archive, made


def own_loop(seed: int, generations: int) -> float:
    archive, made = built(seed)
    scheduler = oracle.schedulers.Scheduler(archive, made)
    for _ in range(generations):
        found = [sphere(x) for x in scheduler.ask().tolist()]
        scheduler.tell([objective for objective, _ in found], [measures for _, measures in found])
    return float(archive.stats.qd_score)


def through_us(seed: int, generations: int, flying_at_most: int = 5) -> float:
    study = Study(SPACE, RibsSampler(*built(seed)), seed=seed)
    order = random.Random(seed)
    flying: list[Any] = []
    left = generations * EMITTERS * BATCH
    while left or flying:
        candidate = study.ask() if left and len(flying) < flying_at_most else None
        if candidate is not None:
            left -= 1
            flying.append(candidate)
        else:
            ended = flying.pop(order.randrange(len(flying)))
            study.tell(ended.number, Outcome(*sphere(ended.values["x"])))
    assert study.archive is not None
    return study.archive.qd_score + 310.0 * len(study.archive)


def test_21_cma_me_through_us_is_as_good_as_its_own_loop() -> None:
    seeds, generations = (10, 100) if oracle.WHOLE else (3, 15)
    ours = [through_us(seed, generations) for seed in range(seeds)]
    theirs = [own_loop(seed, generations) for seed in range(seeds)]
    spread = max(statistics.stdev(theirs), statistics.stdev(ours))
    assert abs(statistics.mean(ours) - statistics.mean(theirs)) <= spread, (ours, theirs)


def test_21_told_in_their_order_it_is_equal_to_their_own_loop() -> None:
    assert through_us(3, 12, flying_at_most=1) == pytest.approx(own_loop(3, 12), rel=1e-9)


def test_21_a_rebuild_goes_on_as_if_nothing_had_happened() -> None:
    def course(begun: Any, log: list[Any], upto: int) -> list[Any]:
        """Asks and tells with four in flight until so many were asked."""
        flying: list[Any] = []
        while len(log) < upto:
            proposal = begun.ask(len(log) + 1, random.Random(1), flying)
            if proposal is not None:
                log.append(proposal)
                flying.append(in_flight(len(log), proposal))
            if proposal is None or len(flying) == 4:
                one = flying.pop(0)
                begun.tell(one.number, one.proposal, outcome(one))
                told.append(one)
        return flying

    from tenuto.search.proposals import InFlight as in_flight
    from tenuto.search.proposals import Setup
    from tenuto.search.spaces import Space

    def outcome(one: Any) -> Outcome | None:
        return None if one.number % 7 == 0 else Outcome(*sphere(one.proposal.values["x"]))

    told: list[Any] = []
    log: list[Any] = []
    setup = Setup(Space(SPACE))
    first = RibsSampler(*built(5)).begin(setup)
    flying = course(first, log, 40)
    again = RibsSampler(*built(5)).begin(setup)  # as after a restart
    for one in told:
        again.tell(one.number, one.proposal, outcome(one))
    for _ in range(3):
        assert first.ask(41, random.Random(2), flying) == again.ask(41, random.Random(2), flying)
        one = flying.pop(0)
        first.tell(one.number, one.proposal, outcome(one))
        again.tell(one.number, one.proposal, outcome(one))
    assert first.archive.qd_score == again.archive.qd_score


def test_21_a_search_of_jobs_uses_emitters_of_pyribs(tmp_path: Path) -> None:
    def search(total: int) -> Evolution:
        sampler = RibsSampler(*built(1, 1, 10))
        return Evolution(
            "ball", Ball, space=SPACE, sampler=sampler, max_total_jobs=total, workdir=tmp_path / "w"
        )

    evolution = search(5)
    evolution.enqueue({"x": [1.0] * 6})  # one of the user's own: told to the archive, not to the emitters
    evolution.close()
    evolution.run(slots=2)
    result = search(9).run(slots=2)  # the second generation begins after a restart
    assert (result.succeeded, result.reason) == (9, "TOTAL")
    assert result.archive is not None
    assert (result.archive.cells, len(result.archive)) == (100, len({row["cell"] for row in result.rows()}))


def test_21_what_does_not_fit_is_refused_and_missing_seeds_are_told(caplog: pytest.LogCaptureFixture) -> None:
    archive, made = built(1)
    for wrong in ([], [built(1)[1][0]]):
        with pytest.raises(SearchError):
            RibsSampler(archive, wrong)
    with pytest.raises(SearchError, match="12 solutions"):
        RibsSampler(archive, made, batch=5)
    with pytest.raises(SearchError, match="measures"):
        RibsSampler(archive, made, measures=["a"])
    for space in ({"x": Real(0, 1)}, {"x": Choice(["a", "b"])}):
        with pytest.raises(SearchError, match="RibsSampler"):
            Study(space, RibsSampler(archive, made))
    with caplog.at_level(logging.WARNING):
        Study(SPACE, RibsSampler(archive, made))
        assert not caplog.records
        Study(SPACE, RibsSampler(*built(None)))
    assert "EvolutionStrategyEmitter has no seed" in caplog.text


def changed(**given: Any) -> RibsSampler:
    """The sampler of a search, of which one argument was changed."""
    made: dict[str, Any] = {"dims": [4, 6], "high": 1.0, "rate": 0.5, "sigma0": 0.5, "seed": 1, **given}
    archive = oracle.archives.GridArchive(
        solution_dim=6,
        dims=made["dims"],
        ranges=[(0, made["high"])] * 2,
        learning_rate=made["rate"],
        threshold_min=0.0,
    )
    emitter = oracle.emitters.EvolutionStrategyEmitter(
        archive, x0=[0.0] * 6, sigma0=made["sigma0"], batch_size=6, seed=made["seed"]
    )
    return RibsSampler(archive, [emitter])


@pytest.mark.parametrize(
    "change", [{"sigma0": 0.25}, {"seed": 2}, {"high": 2.0}, {"dims": [6, 4]}, {"rate": 0.1}, {"seed": None}]
)
def test_a_sampler_that_was_changed_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    def search(sampler: RibsSampler) -> Evolution:
        return Evolution("balls", Ball, space=SPACE, sampler=sampler, workdir=tmp_path)

    for _ in range(2):  # an equal one, built anew, is the same
        same = search(changed())
        same.open()
        same.close()
    with pytest.raises(SearchDiffers, match="sampler"):
        search(changed(**change)).open()
