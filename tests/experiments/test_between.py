"""What one experiment leaves for another: saved configs, and what is read without the code of its tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenuto import JobState, experiment, load_xp_info
from tenuto.errors import NotFound, ParameterError

from .scripts import Place, python, run

TASKS = """
import os, sys, time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

def note(text):
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(f"{text}\\n")

class Model(Config):
    lr: Param[float]
    file: DataPath[Path]

class Train(Task[Model]):
    lr: Param[float]
    weights: Meta[Path] = field(default_factory=PathGenerator("weights.txt"))
    def task_outputs(self, dep):
        return dep(Model.C(lr=self.lr, file=self.weights))
    def execute(self):
        note(f"train {self.lr}")
        self.weights.write_text(str(self.lr))
        return {"loss": self.lr}

class Learn(Task):
    lr: Param[float]
    def execute(self):
        note(f"learn {self.lr}")

class Evaluate(Task):
    learn: Param[Learn]
    def execute(self):
        note(f"evaluate {self.learn.lr}")

class Test(Task):
    model: Param[Model]
    def execute(self):
        note(f"test {self.model.lr}")
        return self.model.file.read_text()
"""


def test_what_one_experiment_saved_another_goes_on_with(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "training") as xp:
    models = {str(lr): Train.C(lr=lr).tag("lr", lr).submit() for lr in (0.1, 0.2)}
    learned = [Learn.C(lr=0.3).submit()]
    xp.wait()
    xp.save(models, "models")
    xp.save(learned, "learned")
with experiment(HERE / "ws", "training"):
    pass
"""
        """
with experiment(HERE / "ws", "testing") as xp:
    models = xp.load("models", experiment="training")
    tested = [Test.C(model=model).submit() for model in models.values()]
    for task in xp.load("learned", experiment="training"):
        Evaluate.C(learn=task.submit()).submit()
print([test.job.result() for test in tested])
""",
        tasks=TASKS,
    )
    result = run(python(script), place.directory)
    assert result.stdout == "['0.1', '0.2']\n", result.stderr
    assert sorted(place.ledger()) == [
        "evaluate 0.3",
        "learn 0.3",
        "test 0.1",
        "test 0.2",
        "train 0.1",
        "train 0.2",
    ], "nothing runs twice"


@pytest.mark.parametrize("name", ["../..", "a/b", "/etc", "..", "", "x" * 300])
def test_configs_are_saved_in_their_run_and_nowhere_else(tmp_path: Path, name: str) -> None:
    with experiment(tmp_path / "ws", "x", register_signals=False) as xp:
        for ask in (lambda: xp.save([1], name), lambda: xp.load(name), lambda: xp.load(name, experiment="x")):
            with pytest.raises(ParameterError):
                ask()
    assert list(tmp_path.iterdir()) == [tmp_path / "ws"]


def test_a_name_that_was_not_saved_is_an_error_that_tells_the_saved_ones(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "training") as xp:
    xp.save([1, 2], "numbers")
with experiment(HERE / "ws", "testing") as xp:
    assert xp.load("numbers", experiment="training") == [1, 2]
    for experiment_, name in (("training", "models"), ("nothing", "models")):
        try:
            xp.load(name, experiment=experiment_)
        except TenutoError as error:
            print(error)
"""
    )
    result = run(python(script), place.directory)
    assert result.stdout.splitlines() == [
        "no run of experiment 'training' kept 'models'; it kept 'numbers'",
        "no run of experiment 'nothing' kept 'models'; it kept nothing",
    ], result.stderr


def test_a_past_run_is_read_without_the_code_of_its_tasks(place: Place) -> None:
    script = place.script(
        """
for number in range(2):
    with experiment(HERE / "ws", "training", raise_on_failure=False) as xp:
        for lr in (0.1, 0.2)[:number + 1]:
            Train.C(lr=lr).tag("lr", lr).submit()
    print(xp.run_id)
""",
        tasks=TASKS,
    )
    first, second = run(python(script), place.directory, TENUTO_HISTORY__MAX_DONE="none").stdout.split()
    script.unlink()
    info = load_xp_info(place.workspace, "training")
    assert (info.run_id, info.state.value) == (second, "done")
    assert [(job.task, job.state, dict(job.tags)) for job in info.jobs] == [
        ("script.Train", JobState.DONE, {"lr": 0.1}),
        ("script.Train", JobState.DONE, {"lr": 0.2}),
    ]
    assert [row["result.loss"] for row in info.results()] == [0.1, 0.2]
    assert (info.path(info.jobs[1]) / "weights.txt").read_text() == "0.2"
    assert len(load_xp_info(place.workspace, "training", first).jobs) == 1
    with pytest.raises(NotFound, match="no experiment and no run is called 'nothing'"):
        load_xp_info(place.workspace, "nothing")


def test_hooks_are_asked_before_each_submission(place: Place) -> None:
    script = place.script(
        """
from tenuto.launchers.spawn import SpawnLauncher

class Transient(SubmitHook):
    def before_submit(self, task, submission):
        print("asked", task.name)
        if task.name == "unwanted":
            return submission._replace(transient=TransientMode.TRANSIENT)
        if task.name == "evil":
            raise SubmissionRefused("no evil here")
        if task.name == "bug":
            return 1 / 0
        if task.name == "wrong":
            return "submission"

class Spawning(SubmitHook):
    def before_submit(self, task, submission):
        return submission._replace(launcher=submission.launcher or SpawnLauncher(slots=1))

with experiment(HERE / "ws", "hooked", submit_hooks=[Transient()]) as xp:
    xp.submit_hooks.append(Spawning())
    for name in ("plain", "unwanted", "evil", "bug", "wrong"):
        try:
            Note.C(name=name).submit()
        except TenutoError as error:
            print(type(error).__name__, error)
print([(job.launcher.name, job.state.name) for job in xp.jobs])
"""
    )
    result = run(python(script), place.directory)
    said = [line for line in result.stdout.splitlines() if not line.startswith("asked")]
    assert said == [
        "SubmissionRefused Transient refuses Note: no evil here",
        (
            "SubmitHookError Transient.before_submit failed for Note (ZeroDivisionError: division by zero); "
            "the task was not submitted"
        ),
        (
            "SubmitHookError Transient.before_submit returned str for Note: "
            "return the submission, changed by its _replace(), or None"
        ),
        "[('spawn', 'DONE'), ('spawn', 'UNSCHEDULED')]",
    ], result.stderr
    assert result.stdout.count("asked") == 5
    assert place.ledger() == ["plain"]
