"""Owns options of scripts (`-c name=value`), groups of results, and runs that open no experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenuto import options, sweep
from tenuto.errors import InvalidOption, ParameterError
from tenuto.experiments.script_options import GivenOptions, given_options
from tests.experiments.scripts import run, tenuto

SCRIPT = """
import sys
from pathlib import Path
from tenuto import Param, Task, experiment, grid, options, sweep

class Fit(Task):
    lr: Param[float]
    n: Param[int]
    def execute(self):
        return {"loss": self.lr * self.n}

if __name__ == "__main__":
    given = options(lr=sweep(0.1), n=3, fast=False, name="x")
    print(given.lr, given.n, given.fast, given.name, sys.argv[1:])
    with experiment(Path(__file__).parent / "ws", "fits"):
        for task in grid(Fit, {"lr": given.lr}, n=given.n, seeds=2):
            task.submit()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.py"
    path.write_text(SCRIPT)
    return path


def read(given: list[str], **declared: Any) -> Any:
    token = given_options.set(GivenOptions(given))
    try:
        found = options(**declared)
        given_options.get().check()  # type: ignore[union-attr]
        return found
    finally:
        given_options.reset(token)


def test_an_option_has_the_type_of_its_default() -> None:
    found = read(
        ["lr=1", "n=4", "fast=True", "name=a,b", "path=a/b", "all=1,2"],
        lr=0.1, n=3, fast=False, name="x", path=Path("."), all=sweep(0.5), other=sweep("a", "b"),
    )  # fmt: skip
    assert repr(found) == (
        "Options(lr=1.0, n=4, fast=True, name='a,b', path=PosixPath('a/b'), all=[1.0, 2.0], other=['a', 'b'])"
    )
    assert type(found.lr) is float
    assert options(lr=0.1).lr == 0.1, "without a command line"
    assert read([], lr=sweep(1, 0.5)).lr == [1.0, 0.5]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("lr=x", "lr expects a number, not 'x'"),
        ("lr=0.1,0.2", "declares no sweep"),
        ("lr=", "expects a number"),
        ("n=1.5", "a whole number"),
        ("fast=1", "true or false"),
        ("name=", "a text"),
        ("all=1,,2", "a number"),
        ("all=", "a number"),
        ("nam=1", "did you mean name"),
        ("nothing=1", "declares no option 'nothing'"),
        ("lr", "name=value"),
        ("=1", "name=value"),
    ],
)
def test_a_wrong_option_is_refused(given: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        read([given], lr=0.1, n=3, fast=False, name="x", all=sweep(0.5))
    with pytest.raises(InvalidOption, match="given twice"):
        read([given or "a=1", "n=1", "n=2"] if "=" in given[1:] else ["n=1", "n=2"], n=1)


@pytest.mark.parametrize("default", [None, [0.1], {"a": 1}, object(), (1, 2)])
def test_a_default_without_a_type_of_its_own_is_refused(default: Any) -> None:
    with pytest.raises(ParameterError, match=r"options\(lr=\)"):
        options(lr=default)
    with pytest.raises(ParameterError, match=r"sweep\(\)"):
        sweep(1, "a")
    with pytest.raises(ParameterError, match="cannot be set"):
        options(lr=1).lr = 2


def test_a_script_takes_its_options_before_its_name(script: Path) -> None:
    place = script.parent
    done = run(tenuto("run", "-c", "lr=0.1,0.2", "-c", "n=5", script, "-c", "mine"), place)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0.1, 0.2] 5 False x ['-c', 'mine']\n"
    planned = run(tenuto("plan", "--json", "-c", "n=5", "-c", "lr=0.2,0.3", script), place)
    jobs = json.loads(planned.stdout)["experiments"][0]["jobs"]
    assert [job["intent"] for job in jobs] == ["REUSE", "REUSE", "RUN", "RUN"]
    for command in ("run", "plan"):
        for wrong in ("lrr=1", "n=x", "n=1,2", "n"):
            refused = run(tenuto(command, "-c", wrong, script), place)
            assert refused.returncode == 2, refused.stderr
            assert f"-c {wrong.partition('=')[0]}" in refused.stderr
    grouped = run(tenuto("results", "-w", "ws", "--json", "--group", "lr", "--agg", "mean,std,count"), place)
    assert json.loads(grouped.stdout) == [
        {"lr": lr, "jobs": 2, "result.loss.mean": lr * 5, "result.loss.std": 0, "result.loss.count": 2}
        for lr in (0.1, 0.2)
    ]
    assert run(tenuto("results", "-w", "ws", "--agg", "mean"), place).returncode == 2
    assert run(tenuto("results", "-w", "ws", "--group", "lr", "--agg", "mode"), place).returncode == 2
    assert run(tenuto("results", "-w", "ws", "--group", "nothing"), place).returncode == 3


def test_a_script_without_an_experiment_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "empty.py"
    script.write_text("print('hello')\n")
    for command in ("run", "plan"):
        done = run(tenuto(command, script), tmp_path)
        assert done.returncode == 0
        assert "opened no experiment" in done.stderr
    assert run(tenuto("run", "-c", "lr=1", script), tmp_path).returncode == 2
