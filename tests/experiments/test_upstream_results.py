"""Owns the result of a task as another task reads it: in a job, in a script, in a live object."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest

from .scripts import TASKS, Place, python, run

READERS = (
    TASKS
    + """
import pickle

class Train(Task):
    epochs: Param[int]
    def execute(self) -> dict[str, float]:
        return {"accuracy": self.epochs / 10, "curve": [0.5] * self.epochs}

class Evaluate(Task):
    trained: Param[Train]
    others: Param[list[Train]] = field(default_factory=list)
    def execute(self):
        first = self.trained.result()
        again = pickle.loads(pickle.dumps(self.trained))
        assert again.result() == first and again.epochs == self.trained.epochs
        self.trained.epochs += 1  # filled in once: what the task changed stays
        assert pickle.loads(pickle.dumps(self.trained)).epochs == self.trained.epochs
        return [first["accuracy"], *(one.result()["accuracy"] for one in self.others)]

class Own(Task):
    x: Param[int] = 1
    def execute(self):
        return self.result()
"""
)


@pytest.mark.parametrize("launcher", ["warm", "spawn"])
def test_a_task_reads_the_result_of_a_task_it_depends_on(place: Place, launcher: str) -> None:
    script = place.script(
        dedent(f"""
        from tenuto.settings import load_settings
        with experiment("ws", "x", settings=load_settings(arguments={{"launcher": {launcher!r}}})) as xp:
            trained = [Train.C(epochs=n).submit() for n in (2, 4, 100_000)]
            evaluated = Evaluate.C(trained=trained[0], others=trained[1:]).submit()
            print(evaluated.result(), trained[0].result()["accuracy"])
            print(Evaluate.C(trained=trained[0]).instance().trained.result()["accuracy"])
        """),
        tasks=READERS,
    )
    done = run(python(script), place.directory)
    assert done.stdout.split("\n")[:2] == ["[0.2, 0.4, 10000.0] 0.2", "0.2"], done.stderr


def test_a_task_has_no_result_before_it_returned(place: Place) -> None:
    script = place.script(
        dedent("""
        with experiment("ws", "x") as xp:
            Own.C().submit()
        """),
        tasks=READERS,
    )
    done = run(python(script), place.directory)
    assert done.returncode == 1
    assert "NoResult: this Own has no result: only a task that was submitted before" in done.stderr


def test_a_removed_result_is_named(place: Place) -> None:
    first = place.script(
        dedent("""
        with experiment("ws", "x") as xp:
            Train.C(epochs=2).submit()
        """),
        tasks=READERS,
    )
    assert run(python(first), place.directory).returncode == 0
    (marker,) = place.workspace.glob("jobs/*/*/*.done")
    stored = json.loads(marker.read_text())
    marker.write_text(json.dumps({**stored, "result": None, "result_stored": True}))
    second = place.script(
        dedent("""
        with experiment("ws", "x") as xp:
            Evaluate.C(trained=Train.C(epochs=2).submit()).submit()
        """),
        tasks=READERS,
    )
    done = run(python(second), place.directory)
    assert done.returncode == 1
    assert "cannot be read" in done.stderr
