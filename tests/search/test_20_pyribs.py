"""20: the archive and MAP-Elites against pyribs, the oracle. The whole sizes run in `make prove`."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest

from tenuto.search import Archive, MapElites, Outcome, Real, Study, Verdict
from tests.search import oracle


def test_20_the_index_of_a_grid_is_that_of_pyribs() -> None:
    shape, ranges = (20, 7, 3), [(-1.0, 1.0), (0.1, 0.7), (-5.0, 9.0)]
    ours = Archive(shape, ranges)
    theirs = oracle.archives.GridArchive(solution_dim=1, dims=shape, ranges=ranges)
    count = 1_000_000 if oracle.WHOLE else 20_000
    rng = oracle.np.random.default_rng(1)
    points = oracle.np.stack([rng.uniform(low - 1, high + 1, count) for low, high in ranges], axis=1)
    edges = [
        [low + (high - low) * k / n for k in range(n + 1)]
        for n, (low, high) in zip(shape, ranges, strict=True)
    ]
    points = oracle.np.concatenate(
        [points, oracle.np.array([[a, b, c] for a in edges[0] for b in edges[1] for c in edges[2]])]
    )
    assert [ours.index(point) for point in points.tolist()] == theirs.index_of(points).tolist()
    cells = rng.integers(0, math.prod(shape), 200)
    assert [ours.position(int(c)) for c in cells] == [
        tuple(p) for p in theirs.int_to_grid_index(cells).tolist()
    ]


def test_20_status_score_and_best_are_those_of_pyribs() -> None:
    ours = Archive([30, 30], [(0, 1), (0, 1)], offset=-1.0)
    theirs = oracle.archives.GridArchive(
        solution_dim=1, dims=[30, 30], ranges=[(0, 1), (0, 1)], qd_score_offset=-1.0
    )
    rng = random.Random(2)
    statuses = {Verdict.WORSE: 0, Verdict.BETTER: 1, Verdict.NEW: 2}
    for number in range(100_000 if oracle.WHOLE else 1_000):
        point, objective = [rng.uniform(-0.1, 1.1), rng.betavariate(2, 2)], rng.choice([0.0, rng.gauss(0, 1)])
        verdict, _ = ours.add(number, None, objective, point)
        status = theirs.add_single([number], objective, point)["status"]
        assert statuses[verdict] == int(status)
    assert ours.qd_score == pytest.approx(float(theirs.stats.qd_score), rel=1e-9)
    assert ours.running_qd_score == pytest.approx(ours.qd_score, rel=1e-9)
    assert ours.coverage == pytest.approx(float(theirs.stats.coverage))
    assert ours.best is not None
    assert ours.best.number == int(theirs.best_elite["solution"][0])
    back = ours.to_ribs()
    assert float(back.stats.qd_score) == pytest.approx(ours.qd_score, rel=1e-9)


def sphere(x: Sequence[float]) -> tuple[float, list[float]]:
    return -sum((v - 2.048) ** 2 for v in x), [_clipped(x[: len(x) // 2]), _clipped(x[len(x) // 2 :])]


def rastrigin(x: Sequence[float]) -> tuple[float, list[float]]:
    return -sum(10 + (v - 2) ** 2 - 10 * math.cos(2 * math.pi * (v - 2)) for v in x), sphere(x)[1]


def arm(x: Sequence[float]) -> tuple[float, list[float]]:
    angles = [math.pi * v / 5.12 for v in x]
    at, place = 0.0, [0.0, 0.0]
    for angle in angles:
        at += angle
        place = [place[0] + math.cos(at), place[1] + math.sin(at)]
    mean = sum(angles) / len(angles)
    spread = math.sqrt(sum((a - mean) ** 2 for a in angles) / len(angles))
    return -spread, [10 * part / len(x) for part in place]


def _clipped(x: Sequence[float]) -> float:
    return sum(v if abs(v) <= 5.12 else 5.12 / v for v in x)


def ours(
    function: Callable[[Sequence[float]], tuple[float, list[float]]], seed: int, evaluations: int
) -> float:
    sampler = MapElites([20, 20], RANGES[function], start=64, offset=OFFSETS[function])
    study = Study({"x": Real(-5.12, 5.12, shape=10)}, sampler, seed=seed)
    order = random.Random(seed)
    flying = []
    for _ in range(evaluations):
        candidate = study.ask()
        assert candidate is not None
        flying.append(candidate)
        if len(flying) == 8:
            ended = flying.pop(order.randrange(8))
            study.tell(ended.number, Outcome(*function(ended.values["x"])))
    for ended in flying:
        study.tell(ended.number, Outcome(*function(ended.values["x"])))
    assert study.archive is not None
    return study.archive.qd_score


def theirs(
    function: Callable[[Sequence[float]], tuple[float, list[float]]], seed: int, evaluations: int
) -> float:
    emitters = pytest.importorskip("ribs.emitters")
    archive = oracle.archives.GridArchive(
        solution_dim=10, dims=[20, 20], ranges=RANGES[function], qd_score_offset=OFFSETS[function], seed=seed
    )
    rng = oracle.np.random.default_rng(seed)
    first = rng.uniform(-5.12, 5.12, (64, 10))
    emitter = emitters.IsoLineEmitter(
        archive,
        iso_sigma=0.01 * 10.24,
        line_sigma=0.2,
        x0=[0.0] * 10,
        lower_bounds=[-5.12] * 10,
        upper_bounds=[5.12] * 10,
        batch_size=8,
        seed=seed,
    )
    done, batch = 0, first
    while done < evaluations:
        found = [function(x) for x in batch.tolist()]
        archive.add(batch, [objective for objective, _ in found], [measures for _, measures in found])
        done += len(batch)
        batch = emitter.ask()
    return float(archive.stats.qd_score)


RANGES = {sphere: [(-25.6, 25.6)] * 2, rastrigin: [(-25.6, 25.6)] * 2, arm: [(-10.0, 10.0)] * 2}
OFFSETS = {sphere: -514.0, rastrigin: -720.0, arm: -4.0}


@pytest.mark.parametrize("function", [sphere, rastrigin, arm])
def test_20_map_elites_is_as_good_as_pyribs(
    function: Callable[[Sequence[float]], tuple[float, list[float]]],
) -> None:
    seeds, evaluations, share = (10, 4_000, 0.97) if oracle.WHOLE else (3, 800, 0.9)
    mine = sum(ours(function, seed, evaluations) for seed in range(seeds))
    peer = sum(theirs(function, seed, evaluations) for seed in range(seeds))
    assert mine >= share * peer, f"{mine / peer:.3f} of pyribs"


def test_voronoi_cells_are_even_and_known_by_their_nearest_point() -> None:
    archive = Archive(100, [(0, 1), (0, 10)])
    rng = random.Random(1)
    counts: dict[int, int] = {}
    for _ in range(20_00):
        cell = archive.index([rng.random(), 10 * rng.random()])
        counts[cell] = counts.get(cell, 0) + 1
    assert len(counts) == 100
    assert max(counts.values()) < 80
