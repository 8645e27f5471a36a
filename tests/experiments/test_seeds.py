"""Owns the random numbers of jobs: a seed gives the same ones everywhere, and no seed different ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tenuto import CommandTask, Param, Task, copyconfig, experiment, identity
from tenuto.errors import ParameterError, SealedConfig
from tenuto.tasks import seeds
from tenuto.tasks.serialization import state_dict
from tenuto.tasks.stored_configs import from_state_dict


class Draw(Task):
    """Draws before and in `execute()`, of modules that it may be the first to import."""

    x: Param[int] = 0

    def __init__(self) -> None:
        import random

        self.first = random.random()

    def execute(self) -> list[float]:
        import random

        import numpy as np

        return [
            self.first,
            random.random(),
            float(np.random.rand()),
            float(np.random.default_rng().random()),
        ]


class Seeded(Draw):
    __seed__: Param[int] = 7


class Told(Draw):
    __seed__: Param[int]


def test_a_seed_gives_the_same_numbers_in_forked_and_in_fresh_processes(tmp_path: Path) -> None:
    with experiment(tmp_path, "x", settings={"slots": 2}):
        warm = Draw.C(x=1).submit(seed=3)
        fresh = Draw.C(x=2).submit(seed=3, launcher="spawn")
        other = Draw.C(x=1).submit(seed=4)
        declared = Seeded.C().submit()
        same = Seeded.C(x=1).submit(seed=7)
        free = [Draw.C(x=x).submit() for x in (1, 2)]
    assert warm.result() == fresh.result()
    assert warm.result() != other.result()
    assert declared.result() == same.result()
    numbers = [number for task in (warm, other, declared, *free) for number in task.result()]
    assert len(set(numbers)) == len(numbers), "four generators of five jobs"
    assert [_recorded(warm), _recorded(declared)] == ["3", "7"]
    assert {_recorded(task) for task in free} & {"3", "7"} == set()
    with experiment(tmp_path, "x", settings={"slots": 2}):
        again = Draw.C(x=9).submit(seed=int(_recorded(free[0])))
    assert again.result() == free[0].result(), "the seed that a job drew repeats it"


def _recorded(task: Any) -> str:
    (done,) = task.jobpath.glob("*.done")
    return str(json.loads(done.read_text())["provenance"]["seed"])


def test_a_seed_counts_where_it_is_given(tmp_path: Path) -> None:
    plain = identity(Draw.C())
    with experiment(tmp_path, "x", run_mode="dry_run"):
        given = Draw.C()
        given.submit(seed=1)
        assert identity(given) != plain
        assert identity(copyconfig(given)) == identity(given) == identity(from_state_dict(state_dict(given)))
        assert identity(Seeded.C().seal()) == identity(_submitted(Seeded.C(), 7))
        assert identity(_submitted(Told.C(), 7)) == identity(Told.C(__seed__=7))
        with pytest.raises(SealedConfig, match="submitted before with seed 1"):
            given.submit(seed=2)
        given.submit(seed=1)


def _submitted(task: Any, seed: int) -> Any:
    task.submit(seed=seed)
    return task


@pytest.mark.parametrize("seed", [-1, True, "3", 1 << 32, 1.0])
def test_a_seed_of_no_use_is_refused_at_the_call(tmp_path: Path, seed: Any) -> None:
    with experiment(tmp_path, "x", run_mode="dry_run"):
        with pytest.raises(ParameterError, match=r"submit\(seed=\) expects a whole number from 0 to"):
            Draw.C().submit(seed=seed)
        with pytest.raises(ParameterError):
            Told.C().submit()
        with pytest.raises(ParameterError, match="__seed__"):
            Told.C(__seed__=-1).submit()


def test_a_command_is_told_its_seed_and_its_record_too(tmp_path: Path) -> None:
    with experiment(tmp_path, "x") as xp:
        said = CommandTask.C(command=["sh", "-c", "echo $TENUTO_SEED"]).submit(seed=5)
    assert said.stdout().read_text() == "5\n"
    (row,) = xp.results(provenance=True)
    assert row["provenance.seed"] == 5


def test_a_forked_worker_of_a_job_draws_other_numbers(tmp_path: Path) -> None:
    with experiment(tmp_path, "x"):
        fits = [Workers.C(early=early).submit(seed=5) for early in (False, True)]
    for fit in fits:
        assert len(set(fit.result())) == 3


class Workers(Task):
    """Has forked children make generators, with NumPy loaded before the fork or after it."""

    early: Param[bool]

    def execute(self) -> list[float]:
        import multiprocessing

        if self.early:
            import numpy.random  # noqa: F401

        with multiprocessing.get_context("fork").Pool(3) as pool:
            return pool.map(_draw, range(3), 1)


def _draw(_: int) -> float:
    import time

    import numpy as np

    time.sleep(0.1)  # so that each worker has one
    return float(np.random.default_rng().random())


def test_a_library_that_is_imported_later_is_seeded_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("def manual_seed(seed):\n    global now\n    now = seed\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    others = {name: seeded for name, seeded in seeds._GENERATORS.items() if name == "torch"}
    monkeypatch.setattr(seeds, "_GENERATORS", others)
    seeds.seed_generators(1)
    seeds.seed_generators(11)
    found: Any = __import__("torch")
    del sys.modules["torch"]  # `monkeypatch.delitem` would put the stand-in back at the end
    assert isinstance(found, ModuleType)
    assert found.now == 11
    assert found.__spec__.loader.get_source("torch").startswith("def manual_seed")
