"""Owns what a wrong or unusual use of an experiment leads to: it works, or it is refused at the call."""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto import (
    Config,
    DataPath,
    DirtyGitAction,
    LightweightTask,
    Listener,
    Param,
    RunMode,
    Task,
    TransientMode,
    experiment,
    grid,
    stop_tags,
    tag,
)
from tenuto.errors import (
    DeclarationError,
    GraphError,
    LauncherNotFound,
    NoExperiment,
    ParameterError,
    TokenError,
)
from tenuto.experiments.checked_arguments import checked
from tenuto.scheduler.listeners import Announcer
from tenuto.settings import Settings
from tenuto.tasks.ports import SubmitOptions

from .scripts import TASKS, Place, environment, eventually, python, run, tenuto


class Plain(Task):
    x: Param[int] = 0

    def execute(self) -> None: ...

    def out(self, dep: object) -> None: ...


@pytest.mark.parametrize(
    "given",
    [
        {"run_mode": "sometimes"},
        {"dirty_git": "maybe"},
        {"launcher": 5},
        {"launcher": Plain},
        {"settings": 5},
        {"settings": {5: 1}},
        {"name": 5},
        {"name": " "},
        {"workdir": ""},
        {"workdir": 5},
        {"port": "80"},
        {"wait_for_lock_s": "60"},
        {"raise_on_failure": "no"},
        {"register_signals": "yes"},
        {"project_paths": 5},
        {"submit_hooks": [5]},
        {"submit_hooks": 5},
    ],
)
def test_an_experiment_refuses_what_it_cannot_use(tmp_path: Path, given: dict[str, object]) -> None:
    arguments = {"workdir": tmp_path, "name": "x", **given}
    with pytest.raises(ParameterError, match=r"test_misuse.py|is empty"):
        experiment(arguments.pop("workdir"), arguments.pop("name"), **arguments)  # type: ignore[arg-type]


def test_an_experiment_understands_natural_spellings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    xp = experiment(
        "~/ws",
        "x",
        run_mode="dry-run",
        dirty_git="error",
        launcher="spawn",
        settings={"slots": 2, "history": {"max_done": 3}},
        project_paths=tmp_path,
    )
    assert xp.workspace.path == tmp_path / "ws"
    assert (xp.run_mode, xp._context.opening.dirty_git) == (RunMode.DRY_RUN, DirtyGitAction.ERROR)
    assert (xp.settings.slots, xp.settings.history.max_done) == (2, 3)
    with xp:
        job = Plain.C().submit(launcher="warm", transient="remove", run_mode="dry_run", max_retries=1).job
        assert (job.launcher.name, job.transient) == ("warm", TransientMode.REMOVE)  # type: ignore[attr-defined]
        assert Plain.C(x=1).submit().job.launcher.name == "spawn"  # type: ignore[attr-defined]
        with pytest.raises(ParameterError, match="which runs nothing"):
            Plain.C(x=2).submit(run_mode="normal")
        xp.setenv("OMP_NUM_THREADS", 1)
        assert xp.environment == {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    "given",
    [
        {"run_mode": "sometimes"},
        {"transient": "REMOVED"},
        {"max_retries": "3"},
        {"max_retries": -1},
        {"max_retries": True},
        {"launcher": 5},
        {"workspace": 5},
    ],
)
def test_a_submission_is_checked_at_the_call(given: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match=next(iter(given))):
        checked(SubmitOptions(**given), Settings())  # type: ignore[arg-type]


def test_callbacks_and_dependencies_are_checked_at_the_call() -> None:
    task = Plain.C()
    for wrong in (
        lambda: task.on_completed(5),  # type: ignore[arg-type]
        lambda: task.watch_output("out", 5),  # type: ignore[arg-type]
        lambda: task.watch_output(5, print),  # type: ignore[arg-type]
        lambda: task.watch_output("nothing", print),
        lambda: task.add_dependencies([Plain.C()]),
        lambda: task.add_dependencies("later"),
        lambda: stop_tags(5),  # type: ignore[type-var]
    ):
        with pytest.raises((ParameterError, GraphError)):
            wrong()
    task.watch_output("out", print)


class NoTask(Config):
    x: Param[int] = 0


def test_arguments_of_an_experiment_are_checked_at_the_call(tmp_path: Path) -> None:
    wrong: list[Callable[[Any], object]] = [
        lambda xp: xp.results("Plain"),
        lambda xp: xp.results(Plain.C()),
        lambda xp: xp.results(NoTask),
        lambda xp: xp.tag(5),
        lambda xp: xp.token(5, 1),
        lambda xp: xp.token("gpu", 1)(Plain.C(), 1),
        lambda xp: xp.token("gpu", 1)(1, NoTask.C()),
        lambda xp: xp.add_service(5),
        lambda xp: xp.subscribe(5),
        lambda xp: Plain.C().submit(init_tasks=5),  # type: ignore[arg-type]
        lambda xp: grid(Plain, [1]),  # type: ignore[arg-type]
        lambda xp: grid(dict, {"x": [1]}),  # type: ignore[type-var]
        lambda xp: grid(Plain, {5: [1]}),  # type: ignore[dict-item]
        lambda xp: grid(Plain, {"x": [1]}, x=2),
    ]
    with experiment(tmp_path, "x", run_mode="dry_run") as xp:
        for call in wrong:
            with pytest.raises((ParameterError, TokenError), match=r"test_misuse.py|gpu"):
                call(xp)
        assert xp.results(Plain) == []
    for late in (lambda: xp.setenv("A", 1), lambda: xp.token("gpu", 1), xp.gpu_token):
        with pytest.raises(NoExperiment, match="comes after its block"):
            late()
    with pytest.raises(LauncherNotFound, match="'wrm'"):
        experiment(tmp_path, "x", launcher="wrm")


class Reads(Task):
    place: DataPath

    def execute(self) -> str:
        return self.place.read_text()


def test_a_relative_data_path_is_refused_where_it_is_submitted(tmp_path: Path) -> None:
    with experiment(tmp_path, "x", run_mode="dry_run"):
        for task in (Reads.C(place=Path("data/x")), Reads.C(place=Path("data/x")).seal()):
            with pytest.raises(
                ParameterError, match=r"Reads.place is a relative path.*Path\('data/x'\).resolve"
            ):
                task.submit()
        Reads.C(place=tmp_path / "x").submit()


def test_dependencies_that_were_not_submitted_or_come_too_late_are_refused(tmp_path: Path) -> None:
    with experiment(tmp_path, "x", run_mode="dry_run"):
        with pytest.raises(GraphError, match="was not submitted"):
            Plain.C(x=1).add_dependencies(Plain.C(x=2)).submit()
        with pytest.raises(ParameterError, match="units of tokens"):
            Plain.C(x=3).add_dependencies(Path()).submit()
        first = Plain.C(x=4).submit()
        second = Plain.C(x=5).add_dependencies(first).submit()
        with pytest.raises(ParameterError, match="too late"):
            first.add_dependencies(second)  # which would be a cycle


def test_a_tag_can_be_stopped() -> None:
    class Holder(Task):
        inner: Param[Plain]

    outer = Holder.C(inner=stop_tags(Plain.C().tag("a", 1)))
    assert outer.tags() == {}
    with pytest.raises(ParameterError, match="the tag 'inner'"):
        Holder.C(inner=stop_tags(tag(Plain.C())))


def test_a_task_with_a_yield_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DeclarationError, match="has a `yield`"):

        class Yields(Task):
            def execute(self) -> object:
                yield 1

    with pytest.raises(DeclarationError, match="has a `yield`"):

        class YieldsLater(LightweightTask):
            async def execute(self) -> object:  # type: ignore[override]
                yield 1


def written(place: Place, text: str) -> Path:
    """A script with classes of its own before its main part."""
    classes, _, body = text.partition('if __name__ == "__main__":\n')
    return place.script(textwrap.dedent(body), tasks=TASKS + classes)


class _Now:
    def call(self, function: object) -> None:
        function()  # type: ignore[operator]


def test_listeners_are_heard_in_both_spellings() -> None:
    heard: list[object] = []

    class Theirs:
        def job_state(self, job: object) -> None:
            heard.append(("state", job))

        def on_job_submitted(self, job: object) -> None:
            heard.append(("submitted", job))

    class Later:
        def on_job_state_changed(self, job: object) -> None:
            heard.append(("changed", job))

    announcer = Announcer(_Now())  # type: ignore[arg-type]
    theirs = Theirs()
    for listener in (theirs, Later(), Listener()):
        announcer.add_listener(listener)  # type: ignore[arg-type]
    for known in announcer._listeners:
        known.job_submitted("a")  # type: ignore[arg-type]
        known.job_state("b", "state_record")  # type: ignore[arg-type]
        known.job_explained("c", None)  # type: ignore[arg-type]
    assert heard == [("submitted", "a"), ("state", "b"), ("changed", "b")]
    announcer.remove_listener(theirs)  # type: ignore[arg-type]
    assert len(announcer._listeners) == 2
    with pytest.raises(ParameterError, match="add_listener"):
        announcer.add_listener(5)  # type: ignore[arg-type]


def test_async_tasks_run_threads_submit_and_callbacks_need_no_argument(place: Place) -> None:
    script = written(
        place,
        """
import asyncio, threading

class Slowly(Task):
    async def execute(self):
        await asyncio.sleep(0.001)
        note("slowly")
        return 3

if __name__ == "__main__":
    with experiment(HERE / "ws", "x") as xp:
        thread = threading.Thread(target=lambda: Note.C(name="threaded").submit())
        thread.start()
        thread.join()
        task = Slowly.C()
        task.on_completed(lambda: note("called"))
        task.submit()
        print(task.job.result())
""",
    )
    result = run(python(script), place.directory)
    assert (result.stdout, result.returncode) == ("3\n", 0), result.stderr
    assert sorted(place.ledger()) == ["called", "slowly", "threaded"]


def test_a_callback_that_raises_fails_the_run(place: Place) -> None:
    script = written(
        place,
        """
def broken():
    raise ValueError("the callback is broken")

if __name__ == "__main__":
    with experiment(HERE / "ws", "x") as xp:
        task = Note.C(name="a")
        task.on_completed(broken)
        task.submit()
""",
    )
    result = run(python(script), place.directory)
    assert result.returncode == 1
    assert "all jobs are done, but a callback" in result.stderr
    assert "ValueError: the callback is broken" in result.stderr
    assert place.state("x") == "failed"


def test_a_script_that_catches_the_failure_still_exits_with_1(place: Place) -> None:
    body = """
try:
    with experiment(HERE / "ws", "x", raise_on_failure={}):
        Fail.C(name="a").submit()
except FailedExperiment:
    pass
"""
    assert run(tenuto("run", place.script(body.format(None))), place.directory).returncode == 1
    assert run(tenuto("run", place.script(body.format(False))), place.directory).returncode == 0


def test_one_name_for_two_classes_of_a_file_is_refused(place: Place) -> None:
    script = written(
        place,
        """
First = Note

class Note(Task):
    name: Param[str]
    def execute(self):
        note("second")

if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        First.C(name="a").submit()
""",
    )
    result = run(python(script), place.directory)
    assert result.returncode == 1
    assert "has two classes called Note" in result.stderr


SHARED_IDS = {
    "two copies": '__xpmid__ = "my.sq"',
    "one that is not used": '__xpmid__ = "my.sq"',
    "a name of another class": '__xpmid__ = "shared_id.B"',
    "another file": '__xpmid__ = "other.sq"',
    "a config": '__xpmid__ = "my.part"',
}


@pytest.mark.parametrize("kind", SHARED_IDS)
def test_one_id_for_two_classes_is_refused(place: Place, kind: str) -> None:
    script = place.directory / "shared_id.py"
    own = SHARED_IDS[kind]
    (place.directory / "other.py").write_text(
        'from tenuto import Param, Task\nclass Sq(Task):\n    __xpmid__ = "other.sq"\n    name: Param[str]\n'
    )
    theirs = {"a name of another class": "", "another file": ""}.get(kind, own)
    parts = {"A": "A.C(name='x')", "B": "B.C(name='x')"}
    base = "Task"
    if kind == "a config":
        base, parts = "Config", {one: f"Holds.C(part={made})" for one, made in parts.items()}
    if kind == "one that is not used":
        del parts["A"]
    elif kind == "another file":
        parts = {"A": parts["A"], "Sq": "Sq.C(name='x')"}
    elif kind == "a name of another class":
        parts = dict(reversed(parts.items()))
    submits = "\n        ".join(f"print({made}.submit().result())" for made in parts.values())
    script.write_text(
        f"""{TASKS}
from other import Sq

class A({base}):
    {own}
    name: Param[str]
    def execute(self): return "A"

class B({base}):
    {theirs}
    name: Param[str]
    def execute(self): return "B"

class Holds(Task):
    part: Param[Config]
    def execute(self): return type(self.part).__name__

if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        {submits}
"""
    )
    result = run(python(script), place.directory)
    assert result.returncode == 1, result.stdout
    assert "have one id, " in result.stderr
    assert "give one of them another __xpmid__" in result.stderr


def test_a_task_that_catches_its_end_and_returns_is_cancelled(place: Place) -> None:
    script = written(
        place,
        """
class Stubborn(Task):
    def execute(self):
        try:
            note("began")
            time.sleep(60)
        except TaskCancelled:
            Path("half").write_text("half")
        return "half"

if __name__ == "__main__":
    with experiment(HERE / "ws", "x", raise_on_failure=False):
        Stubborn.C().submit()
""",
    )
    with subprocess.Popen(python(script), cwd=place.directory, env=environment()) as running:
        eventually(place.ledger, "the task to begin")
        arguments = ("--where", 'state = "RUNNING"', "--yes", "-w", str(place.workspace))
        killed = run(tenuto("kill", *arguments), place.directory)
        assert running.wait(30) == 0, killed.stderr
    (failed,) = place.workspace.glob("jobs/*/*/*.failed")
    assert json.loads(failed.read_text())["reason"] == "CANCELLED"
    assert (failed.parent / "half").exists()


def test_a_relative_path_in_a_job_is_explained_with_the_line_of_the_user(place: Place) -> None:
    tasks = TASKS + textwrap.dedent("""
        import json

        class Reads(Task):
            def execute(self):
                with open("data/in.json") as stream:  # the user's line
                    json.load(stream)
        """)
    script = place.script('with experiment("ws", "x"):\n    Reads.C().submit()', tasks=tasks)
    done = run(python(script), place.directory)
    line = 1 + [row.endswith("# the user's line") for row in script.read_text().splitlines()].index(True)
    assert f"(script.py:{line})" in done.stderr.replace(f"{place.directory}/", "")
    assert "a job runs in its own directory, " in done.stderr
    assert "or use Path(__file__).parent / 'data/in.json'" in done.stderr


def test_after_the_first_failure_nothing_more_is_started(place: Place) -> None:
    body = """
        with experiment("ws", "x"):
            Fail.C(name="bad").submit(priority=1)
            for number in range(5):
                Note.C(name=str(number)).submit()
        """
    script = place.script(textwrap.dedent(body))
    done = run(tenuto("run", "--fail-fast", script), place.directory, TENUTO_SLOTS="1")
    assert done.returncode == 1
    assert len(place.ledger()) < 6, "most jobs were never started"
    assert "not started" in done.stderr
    assert place.state("x") == "failed"


def test_setenv_leaves_what_is_set_where_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SET_HERE", "before")
    with experiment(tmp_path / "ws", "x", run_mode="dry_run") as xp:
        xp.setenv("A", 1)
        xp.setenv("A", 2, override=False)
        xp.setenv("SET_HERE", 3, override=False)
    assert dict(xp.environment) == {"A": "1"}
