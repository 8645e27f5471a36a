"""Jobs that are packed: read, reused and steered as any other; packed beside runs, and by a killed packer."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tenuto import Catalogue
from tests.experiments.scripts import TASKS, Place, environment, eventually, python, run, tenuto

MORE = (
    TASKS
    + """
class Model(Task):
    seed: Param[int]
    file: Meta[Path] = field(default_factory=PathGenerator("model.txt"))
    def execute(self):
        note(f"model {self.seed}")
        print("training", self.seed)
        log_metrics({"loss": 1 / self.seed}, step=1)
        self.file.write_text(f"weights {self.seed}")
        return {"loss": 1 / self.seed}

class Score(Task):
    model: Param[Model]
    factor: Param[int]
    def execute(self):
        note(f"score {self.factor}")
        return float(self.model.file.read_text().split()[1]) * self.factor

class Array(Task):
    size: Param[int]
    def execute(self):
        import numpy
        return numpy.arange(self.size)
"""
).replace("from tenuto import *", "from tenuto import *\nfrom tenuto import log_metrics")


def packed(place: Place, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(tenuto("clean", "--pack", "--yes", "-w", "ws", *arguments), place.directory)


def on_disk(place: Place) -> list[str]:
    """The jobs that lie in directories."""
    return sorted(path.parent.name for path in place.workspace.glob("jobs/*/*"))


def asked(place: Place, *arguments: str | Path) -> object:
    done = run(tenuto(*arguments, "--json", "-w", "ws"), place.directory)
    return json.loads(done.stdout)


def started(place: Place, body: str, name: str = "script.py", **variables: str) -> str:
    done = run(python(place.script(body, name, MORE)), place.directory, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


SWEEP = """
with experiment(HERE / "ws", "sweep"):
    models = [Model.C(seed=seed) for seed in (1, 2)]
    for model in models: model.submit()
    scores = [Score.C(model=model, factor=FACTOR).submit() for model in models]
print([one.file.read_text() for one in models], [one.job.result() for one in scores])
"""


def test_a_packed_job_is_shown_and_explained_as_before(place: Place) -> None:
    started(place, SWEEP.replace("FACTOR", "3"))
    jobs = asked(place, "jobs", "--all")
    assert isinstance(jobs, list)
    job = next(one["id"] for one in jobs if one["result"] == {"loss": 1.0})
    looks = [
        ("jobs", "--all"),
        ("results",),
        ("metrics",),
        ("why", job),
        ("files", "--all", job),
        ("logs", job),
        ("du",),
        ("status",),
    ]
    before = [asked(place, *look) if look[0] != "logs" else None for look in looks]
    log = run(tenuto("logs", job, "-w", "ws"), place.directory).stdout
    told = packed(place)
    assert (told.returncode, on_disk(place)) == (0, []), told.stderr
    after = [asked(place, *look) if look[0] != "logs" else None for look in looks]
    for look, one, other in zip(looks, before, after, strict=True):
        if look[0] == "files":
            assert [file["path"] for file in one["files"] if not file["path"].endswith(".lock")] == [
                file["path"] for file in other["files"]
            ]
        elif look[0] not in ("du", "status"):
            assert one == other, look
    assert run(tenuto("logs", job, "-w", "ws"), place.directory).stdout == log == "training 1\n"
    assert asked(place, "wait", job)
    killed = run(tenuto("kill", job, "-w", "ws"), place.directory)
    assert "not running" in killed.stdout
    assert run(tenuto("export", "sweep", "kept", "-w", "ws"), place.directory).returncode == 0
    exported = (place.directory / "kept").rglob("*")
    assert any(path.is_file() and path.read_bytes() == b"training 1\n" for path in exported)
    catalogue = Catalogue(place.workspace)
    assert catalogue.detail(job[:12]).fields["directory"].endswith(job)
    assert len(list(catalogue.rows())) == 4
    assert on_disk(place) == []  # no look puts one back


def test_a_packed_job_is_reused_and_put_back_for_those_that_open_its_files(place: Place) -> None:
    first = started(place, SWEEP.replace("FACTOR", "3"))
    assert first == "['weights 1', 'weights 2'] [3.0, 6.0]\n"
    assert packed(place).returncode == 0
    ledger = place.ledger()
    assert started(place, SWEEP.replace("FACTOR", "3")) == first
    assert place.ledger() == ledger
    assert packed(place).returncode == 0
    assert started(place, SWEEP.replace("FACTOR", "5")).endswith("[5.0, 10.0]\n")
    assert place.ledger() == [*ledger, "score 5", "score 5"]
    assert packed(place).returncode == 0
    assert on_disk(place) == []


def test_results_in_files_and_paths_of_packed_jobs_are_had(place: Place) -> None:
    pytest.importorskip("numpy")
    body = """
with experiment(HERE / "ws", "arrays"):
    array, noted = Array.C(size=3000).submit(), Note.C(name="one").submit()
print(array.job.result().sum(), noted.stdout().read_text() == "", sorted(os.listdir(noted.job.path)))
"""
    first = started(place, body)
    assert packed(place).returncode == 0
    assert on_disk(place) == []
    assert started(place, body) == first


def test_failed_jobs_are_packed_retried_and_run_again(place: Place) -> None:
    body = """
with experiment(HERE / "ws", "bad"):
    Fail.C(name="x").submit()
    Note.C(name="y").submit()
"""
    script = place.script(body, tasks=MORE)
    assert run(python(script), place.directory).returncode == 1
    assert packed(place).returncode == 0
    assert on_disk(place) == []
    shown = run(tenuto("logs", "script.Fail", "-w", "ws"), place.directory)
    assert "x is bad" in shown.stdout + shown.stderr
    again = run(tenuto("retry", "--failed", "-w", "ws"), place.directory)
    assert again.returncode in (0, 1), again.stderr
    eventually(lambda: place.ledger().count("x") == 2, "the retried job")
    eventually(lambda: len(list(place.workspace.glob("jobs/*Fail/*/*.failed"))) == 1, "its marker")
    (job,) = [one for one in asked(place, "jobs", "--all") if one["state"] == "error"]
    assert job["attempt"] == 2
    rerun = run(tenuto("run", "--rerun", "state=done", script), place.directory)
    assert place.ledger().count("y") == 2, rerun.stderr


def test_a_job_that_was_run_again_is_packed_again(place: Place) -> None:
    body = """
with experiment(HERE / "ws", "again", rerun_changed=True):
    Model.C(seed=1).submit()
"""
    started(place, body)
    assert packed(place).returncode == 0
    started(place, body.replace("Model.C", "Model.C") + "\n# changed\n")
    assert len(place.ledger()) == 2
    (job,) = place.workspace.glob("jobs/*/*")
    assert not (job / ".tenuto").exists()
    assert packed(place).returncode == 0
    assert on_disk(place) == []
    started(place, body + "\n# changed\n")
    assert len(place.ledger()) == 2


def test_a_packed_job_is_deleted_and_run_again(place: Place) -> None:
    body = """
with experiment(HERE / "ws", "notes"):
    for name in "abc": Note.C(name=name).submit()
"""
    started(place, body)
    assert packed(place).returncode == 0
    one = next(job["id"] for job in asked(place, "jobs", "--all") if job["result"] == "a")
    would = run(tenuto("clean", f"id={one}", "-w", "ws"), place.directory)
    assert "1 job" in would.stderr + would.stdout
    done = run(tenuto("clean", f"id={one}", "--yes", "-w", "ws"), place.directory)
    assert done.returncode == 0, done.stderr
    assert on_disk(place) == []
    assert len(asked(place, "jobs", "--all")) == 2
    started(place, body)
    assert sorted(place.ledger()) == ["a", "a", "b", "c"]


def test_packing_takes_few_inodes_and_says_what_it_would_do(place: Place) -> None:
    started(
        place, 'with experiment(HERE / "ws", "e"):\n    for n in range(200): Note.C(name=str(n)).submit()'
    )
    would = run(tenuto("clean", "--pack", "-w", "ws"), place.directory)
    assert "200 jobs" in would.stderr
    assert len(on_disk(place)) == 200
    done = packed(place, "state=done")
    assert (done.returncode, on_disk(place)) == (0, []), done.stderr
    assert len(list((place.workspace / ".packs").rglob("*"))) <= 3
    assert not list(place.workspace.glob("experiments/*/*/jobs/*/*"))
    jobs = asked(place, "jobs", "--all")
    assert len(jobs) == 200
    back = run(tenuto("clean", "--unpack", f"id={jobs[0]['id']}", "--yes", "-w", "ws"), place.directory)
    assert (back.returncode, len(on_disk(place))) == (0, 1), back.stderr


def test_jobs_of_a_live_run_and_what_a_running_job_needs_are_not_packed(place: Place) -> None:
    body = """
class Held(Task):
    model: Param[Model]
    def execute(self):
        note("held")
        while not (HERE / "release").exists(): time.sleep(0.01)
        return self.model.file.read_text()
"""
    started(place, 'with experiment(HERE / "ws", "other"):\n    Note.C(name="free").submit()')
    script = place.script(
        'with experiment(HERE / "ws", "live"):\n    Held.C(model=Model.C(seed=4).submit()).submit()',
        "live.py",
        MORE + body,
    )
    process = subprocess.Popen(python(script), cwd=place.directory, env=environment())
    try:
        eventually(lambda: "held" in place.ledger(), "the running job")
        told = packed(place)
        assert told.returncode == 1
        assert len(on_disk(place)) == 2, told.stdout  # the other run's is packed
        process.kill()
        process.wait()
        told = packed(place)
        assert len(on_disk(place)) == 2, told.stdout  # the job runs on, and reads its file
    finally:
        place.release.touch()
        process.kill()
        process.wait()
    eventually(lambda: list(place.workspace.glob("jobs/*Held/*/*.done")), "the end of the job")
    eventually(lambda: packed(place).returncode == 0, "all packed")
    assert on_disk(place) == []


def test_du_counts_what_packed_jobs_take_on_the_disk(place: Place) -> None:
    started(place, SWEEP.replace("FACTOR", "3"))
    before = asked(place, "du")
    assert packed(place).returncode == 0
    after = asked(place, "du")
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    real = [path for path in place.workspace.rglob("*") if path.is_file() or path.is_symlink()]
    assert after["total"] == {"bytes": sum(path.lstat().st_size for path in real), "files": len(real)}
    assert all(one["files"] == 0 for one in after["tasks"].values())
    assert 0 < sum(one["bytes"] for one in after["tasks"].values()) < after["total"]["bytes"]
    assert before["total"]["files"] > after["total"]["files"]


@pytest.mark.slow
def test_killed_packers_and_two_at_once_lose_no_job(place: Place) -> None:
    body = 'with experiment(HERE / "ws", "e"):\n    for n in range(60): Note.C(name=str(n)).submit()'
    started(place, body)
    wanted = asked(place, "jobs", "--all")
    chance = random.Random(1)
    for _ in range(12):
        processes = [
            subprocess.Popen(
                tenuto("clean", f"--{way}", "--yes", "-w", "ws"),
                cwd=place.directory,
                env=environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for way in ("pack", "unpack", "pack")
        ]
        time.sleep(0.25 + chance.random() * 0.3)  # the kill may come at any step
        for process in processes[:2]:
            process.kill()
        for process in processes:
            process.wait()
        assert asked(place, "jobs", "--all") == wanted
    assert packed(place).returncode == 0
    assert on_disk(place) == []
    started(place, body)
    assert len(place.ledger()) == 60


def test_a_run_packs_its_jobs_at_its_end_if_so_set(place: Place) -> None:
    started(place, SWEEP.replace("FACTOR", "3"), TENUTO_PACK="true")
    assert len(on_disk(place)) == 2  # those whose files the script has paths of
    assert len(asked(place, "jobs", "--all")) == 4
    assert started(place, SWEEP.replace("FACTOR", "3"), TENUTO_PACK="true").endswith("[3.0, 6.0]\n")
    assert len(place.ledger()) == 4


def test_commands_that_name_the_files_of_a_packed_job_say_so(place: Place) -> None:
    body = """
with experiment(HERE / "ws", "bad"):
    Fail.C(name="x").submit()
"""
    failed = run(python(place.script(body)), place.directory, TENUTO_PACK="true")
    assert failed.returncode == 1
    assert on_disk(place) == []
    command = failed.stderr.strip().rpartition("its output: tenuto ")[2].split()
    assert command[:2] == ["logs", "--err"]
    assert "raise" in run(tenuto(*command), place.directory).stdout
    job = command[2]
    assert f"clean --unpack {job}" in run(tenuto("files", job, "-w", "ws"), place.directory).stderr
    assert "(packed)" in run(tenuto("why", job, "-w", "ws"), place.directory).stdout


def test_a_packed_workspace_may_be_moved_and_closed_to_writers(place: Place) -> None:
    started(place, SWEEP.replace("FACTOR", "3"))
    assert packed(place).returncode == 0
    wanted = asked(place, "results")
    moved = place.directory / "jobs" / "elsewhere"
    moved.parent.mkdir()
    os.rename(place.workspace, moved)
    before = {path: path.stat().st_ctime_ns for path in moved.rglob("*")}
    found = run(tenuto("results", "--json", "-w", moved), place.directory)
    assert json.loads(found.stdout) == wanted
    assert {path: path.stat().st_ctime_ns for path in moved.rglob("*")} == before


@pytest.mark.parametrize("options", [("--pack", "--unpack"), ("--pack", "--files"), ("--pack", "--cache")])
def test_options_that_do_not_go_together_are_refused(place: Place, options: tuple[str, ...]) -> None:
    place.workspace.mkdir()
    (place.workspace / "jobs").mkdir()
    refused = run(tenuto("clean", *options, "--yes", "-w", "ws"), place.directory)
    assert refused.returncode == 2
    assert "--pack" in refused.stderr


def test_the_task_of_a_packed_job_is_had_with_its_files(place: Place) -> None:
    started(place, SWEEP.replace("FACTOR", "3"))
    assert packed(place).returncode == 0
    jobs = asked(place, "jobs", "--all")
    score = next(one for one in jobs if one["task"].endswith("Score"))
    body = f"""
score = from_task_dir({str(place.workspace)!r} + "/jobs/{score["task"]}/{score["id"]}", as_instance=True)
print(score.model.file.read_text())
"""
    assert started(place, body).startswith("weights ")
    assert len(on_disk(place)) == 2
    shutil.rmtree(place.workspace / "jobs")  # a copy may lack directories that were empty
    assert len(asked(place, "jobs", "--all")) == 2


FLAKY = """
class Flaky(Task):
    score: Param[Score]
    def execute(self):
        if not (HERE / "good").exists(): raise ValueError("not yet")
        return self.score.model.file.read_text()
"""


def test_what_a_retried_job_depends_on_is_put_back(place: Place) -> None:
    body = """
with experiment(HERE / "ws", "flaky"):
    Flaky.C(score=Score.C(model=Model.C(seed=1).submit(), factor=3).submit()).submit()
"""
    assert run(python(place.script(body, tasks=MORE + FLAKY)), place.directory).returncode == 1
    assert packed(place).returncode == 0
    (place.directory / "good").touch()
    again = run(tenuto("retry", "--failed", "-w", "ws"), place.directory)
    assert again.returncode == 0, again.stderr
    assert len(on_disk(place)) == 3


def test_the_job_whose_output_an_evaluation_uses_is_put_back(place: Place) -> None:
    tasks = """
class Checkpoint(Config):
    step: Param[int]
    train: Param["Train"]

class Train(Task):
    size: Param[int]
    def saved(self, dep, step): return dep(Checkpoint.C(step=step, train=self))
    def execute(self):
        Path("weights").write_text("w")
        self.register_task_output(self.saved, 1)

class Look(Task):
    checkpoint: Param[Checkpoint]
    factor: Param[int]
    def execute(self):
        train = HERE / "ws/jobs/script.Train"
        return [(one / "weights").read_text() for one in train.iterdir()] + [self.checkpoint.train.size]
"""
    body = """
with experiment(HERE / "ws", "train"):
    train, looks = Train.C(size=1), []
    train.watch_output(train.saved, lambda one: looks.append(Look.C(checkpoint=one, factor=FACTOR).submit()))
    train.submit()
print([look.job.result() for look in looks])
"""
    for factor in "12":
        done = run(python(place.script(body.replace("FACTOR", factor), tasks=MORE + tasks)), place.directory)
        assert done.stdout == "[['w', 1]]\n", done.stderr
        assert packed(place).returncode == 0
