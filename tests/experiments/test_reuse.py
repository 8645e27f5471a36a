"""Owns reuse that can be trusted: the one check in every state, and running again in an empty directory."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .scripts import Place, environment, python, run, tenuto

HEAD = "from pathlib import Path\nfrom tenuto import *\nimport time\nHERE = Path(__file__).parent\n"


def write(place: Place, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (place.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (place.directory / name).write_text(HEAD + text)
    return place.directory / "script.py"


def edit(place: Place, name: str, old: str, new: str) -> None:
    path = place.directory / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    for stale in path.parent.rglob("*.pyc"):  # Python takes a file of the same second and size for unchanged
        stale.unlink()


def out(place: Place, *options: str, code: int = 0, script: str = "script.py") -> str:
    done = run(tenuto("run", *options, place.directory / script), place.directory)
    assert done.returncode == code, done.stderr
    return done.stdout


def record(place: Place, task: str) -> dict[str, Any]:
    (done,) = place.workspace.glob(f"jobs/*{task}/*/*.done")
    found: dict[str, Any] = json.loads(done.read_text())["record"]
    return found


MAIN = "if __name__ == '__main__':\n    with experiment(HERE / 'ws', 'x'):\n"


# -- a changed default, in every state


def waiting(place: Place) -> subprocess.Popen[bytes]:
    script = place.directory / "script.py"
    started = subprocess.Popen(python(script), cwd=place.directory, env=environment())
    deadline = time.monotonic() + 30
    while not list(place.workspace.glob("jobs/*/*/begun")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return started


SLOW = """
class Slow(Task):
    x: Param[int] = 1
    def execute(self):
        Path("begun").touch()
        while not (HERE / "release").exists():
            time.sleep(0.02)
        return self.x
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        print(Slow.C().submit().result())
"""


def test_a_job_that_runs_with_another_default_is_refused(place: Place) -> None:
    write(place, {"script.py": SLOW})
    started = waiting(place)
    started.send_signal(signal.SIGKILL)
    started.wait()
    edit(place, "script.py", "Param[int] = 1", "Param[int] = 2")
    planned = run(tenuto("plan", place.directory / "script.py"), place.directory)
    assert "refused" in planned.stdout
    refused = run(python(place.directory / "script.py"), place.directory)
    assert refused.returncode == 1
    assert "runs with another value, which was a default then: x was 1 and is 2 now" in refused.stderr
    edit(place, "script.py", "Param[int] = 2", "Param[int] = field(default=2, ignore_default=1)")
    place.release.touch()
    assert out(place) == "2\n", "the remedy works"


RESUMABLE = """
class Steps(ResumableTask):
    x: Param[int] = 1
    def execute(self):
        log = Path("log")
        log.write_text((log.read_text() if log.exists() else "") + str(self.x))
        if len(log.read_text()) < 2 and not (HERE / "release").exists():
            raise RuntimeError("half")
        return log.read_text()
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        print(Steps.C().submit().result())
"""


def test_an_unfinished_job_does_not_go_on_with_another_default(place: Place) -> None:
    write(place, {"script.py": RESUMABLE})
    out(place, code=1)
    edit(place, "script.py", "Param[int] = 1", "Param[int] = 2")
    refused = run(python(place.directory / "script.py"), place.directory)
    assert "was begun, and would continue, with another value" in refused.stderr
    place.release.touch()
    assert out(place, "--rerun", "task~Steps") == "2\n", "in an empty directory"


def test_a_plain_task_that_failed_begins_anew_with_another_default(place: Place) -> None:
    write(place, {"script.py": RESUMABLE.replace("ResumableTask", "Task")})
    out(place, code=1)
    edit(place, "script.py", "Param[int] = 1", "Param[int] = 2")
    place.release.touch()
    assert out(place) == "2\n"


SHARED = """
CODE = "a"
ITERATIONS = param_group("n")
class Load(Prepare):
    version: Param[str] = "v1"
    path: Meta[Path] = field(default_factory=PathGenerator("f"))
    def execute(self):
        self.path.write_text(self.version + CODE)
class Held(Config):
    version: Param[str] = "v1"
    @cache("c")
    def read(self, path):
        if not path.exists():
            path.write_text(self.version + CODE)
        return path.read_text()
class Part(Task):
    k: Param[str] = "v1"
    n: Param[int] = field(groups=[ITERATIONS])
    shared = partial(exclude_groups=[ITERATIONS])
    p: Meta[Path] = field(default_factory=PathGenerator("p", partial=shared))
    def execute(self):
        if not self.p.exists():
            self.p.parent.mkdir(parents=True, exist_ok=True)
            self.p.write_text(self.k)
        return self.p.read_text()
class UseLoad(Task):
    load: Param[Load]
    def execute(self):
        return self.load.path.read_text()
class UseHeld(Task):
    held: Param[Held]
    n: Param[int]
    def execute(self):
        return self.held.read()
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("UseLoad.C(load=Load.C())", "UseLoad.C(load=Load.C())"),
        ("UseHeld.C(held=Held.C(), n=1)", "UseHeld.C(held=Held.C(), n=2)"),
        ("Part.C(n=1)", "Part.C(n=2)"),
    ],
)
def test_what_jobs_share_is_not_used_with_another_default(place: Place, first: str, second: str) -> None:
    submit = f"{MAIN}        print(ASKED.submit().result())\n"
    write(place, {"script.py": SHARED + submit.replace("ASKED", first)})
    out(place)
    edit(place, "script.py", first, second)
    text = (place.directory / "script.py").read_text()
    (place.directory / "script.py").write_text(text.replace('Param[str] = "v1"', 'Param[str] = "v2"'))
    for job in place.workspace.glob("jobs/*/*/*.done"):
        if "UseLoad" in first:
            job.unlink()  # else the job itself, which is done, is refused
    refused = run(python(place.directory / "script.py"), place.directory)
    assert refused.returncode == 1
    assert "was made with another value" in refused.stderr or "with another value" in refused.stderr
    assert "'v1'" in refused.stderr


# -- classes of one name


def test_a_module_of_another_project_is_refused_also_as_a_parameter(place: Place) -> None:
    library = (
        "class Fit(Task):\n    net: Param[Config]\n    def execute(self):\n        return self.net.name()\n"
    )
    (place.directory / "lib").mkdir()
    (place.directory / "lib" / "shared_fit.py").write_text(HEAD + library)
    found = []
    for project in ("one", "two"):
        folder = place.directory / project
        folder.mkdir()
        (folder / "models.py").write_text(
            f"from tenuto import *\nclass Net(Config):\n    def name(self):\n        return {project!r}\n"
        )
        (folder / f"go_{project}.py").write_text(
            "import sys\nfrom tenuto import experiment\nsys.path.insert(0, '../lib')\n"
            "from shared_fit import Fit\nfrom models import Net\nif __name__ == '__main__':\n"
            f"    with experiment('../ws', {project!r}):\n"
            "        print(Fit.C(net=Net.C()).submit().result())\n"
        )
        found.append(run(python(folder / f"go_{project}.py"), folder))
    assert found[0].stdout == "one\n", found[0].stderr
    assert found[1].returncode == 1
    assert "two/models.py would share its results with the class of the same name in" in found[1].stderr
    planned = run(tenuto("plan", "go_two.py"), place.directory / "two")
    assert "would share its results" in planned.stdout + planned.stderr


# -- code, and running again


BASE = """
class Base(Task):
    def execute(self):
        return self.said() + 'v1'
    def said(self):
        return ''
"""
NET = "class Net(Config):\n    def name(self):\n        return 'n1'\n"
CHAIN = (
    "from base import Base\nfrom net import Net\n"
    "class Up(Base):\n    net: Param[Net]\n    def said(self):\n        return self.net.name()\n"
    "class Dn(Task):\n    up: Param[Up]\n    def execute(self):\n        return 'from ' + self.up.result()\n"
    f"{MAIN}        up = Up.C(net=Net.C()).submit()\n        dn = Dn.C(up=up).submit()\n"
    "    print(up.result(), dn.result(), sep='; ')\n"
)


def chain(place: Place) -> None:
    write(place, {"script.py": CHAIN, "base.py": BASE, "net.py": NET})
    assert out(place) == "n1v1; from n1v1\n"


@pytest.mark.parametrize(("file", "old", "new"), [("base.py", "v1", "v2"), ("net.py", "n1", "n2")])
def test_bases_and_classes_of_parameters_count_as_code(place: Place, file: str, old: str, new: str) -> None:
    chain(place)
    edit(place, file, old, new)
    noted = run(tenuto("run", place.directory / "script.py"), place.directory)
    assert f"{file} has changed since" in noted.stderr
    (up,) = place.workspace.glob("jobs/*Up/*")
    assert f"{file} has changed since" in run(tenuto("why", up.name, "-w", "ws"), place.directory).stdout
    wanted = "n1v1".replace(old, new)
    assert out(place, "--rerun-changed") == f"{wanted}; from {wanted}\n"
    assert "changed since" not in run(tenuto("plan", place.directory / "script.py"), place.directory).stdout


def test_dependents_follow_after_a_rerun_that_failed(place: Place) -> None:
    chain(place)
    edit(place, "base.py", "'v1'", "v9")
    done = run(tenuto("run", "--rerun-changed", place.directory / "script.py"), place.directory)
    assert done.returncode == 1
    (up,) = place.workspace.glob("jobs/*Up/*")
    assert list((up / ".tenuto" / "aside").glob("*.done")), "what it had is still there"
    why = run(tenuto("why", up.name, "-w", "ws"), place.directory).stdout
    assert "what it had before it was run again is kept in" in why
    edit(place, "base.py", "v9", "'v3'")
    assert out(place, "--rerun-changed") == "n1v3; from n1v3\n"
    assert not (up / ".tenuto" / "aside").exists()


def test_dependents_follow_after_their_upstream_was_removed(place: Place) -> None:
    chain(place)
    edit(place, "base.py", "v1", "v2")
    run(tenuto("clean", "--yes", "task~Up", "-w", "ws"), place.directory)
    noted = run(tenuto("run", place.directory / "script.py"), place.directory)
    assert noted.stdout == "n1v2; from n1v1\n"
    assert "was made again since" in noted.stderr
    planned = run(tenuto("plan", "--rerun-changed", place.directory / "script.py"), place.directory)
    assert "to run once more" in planned.stdout
    assert out(place, "--rerun-changed") == "n1v2; from n1v2\n"


def test_a_dependent_stays_valid_if_its_upstream_gave_the_same(place: Place) -> None:
    chain(place)
    (dn,) = place.workspace.glob("jobs/*Dn/*/*.done")
    before = dn.read_text()
    run(tenuto("clean", "--yes", "task~Up", "-w", "ws"), place.directory)
    again = run(tenuto("run", "--rerun-changed", place.directory / "script.py"), place.directory)
    assert again.stdout == "n1v1; from n1v1\n"
    assert "again since" not in again.stderr
    assert dn.read_text() == before
    assert out(place, "--rerun", "task~Up") == "n1v1; from n1v1\n"
    assert dn.read_text() == before


EMPTY = """
class Keep(ResumableTask):
    def execute(self):
        state = Path("checkpoint")
        if not state.exists():
            state.write_text("v1")
        return state.read_text()
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        print(Keep.C().submit().result())
"""


def test_running_again_means_an_empty_directory(place: Place) -> None:
    write(place, {"script.py": EMPTY})
    assert out(place) == "v1\n"
    edit(place, "script.py", '"v1"', '"v2"')
    assert out(place) == "v1\n"
    assert out(place, "--rerun-changed") == "v2\n"
    (job,) = place.workspace.glob("jobs/*/*")
    (job / "checkpoint").write_text("by hand")
    assert out(place, "--rerun", "state=done and task~Keep") == "v2\n"
    assert out(place, "--rerun", "task~Other") == "v2\n"
    for filter, is_said in [("task~Other", True), ("task~Keep", False)]:
        done = run(tenuto("run", "--rerun", filter, place.directory / "script.py"), place.directory)
        assert ("no job that was submitted is of that kind" in done.stderr) is is_said, done.stderr
    wrong = run(tenuto("run", "--rerun", "task~(", place.directory / "script.py"), place.directory)
    assert wrong.returncode == 2
    assert not (job / ".tenuto" / "aside").exists()


WATCHED = """
class Point(Config):
    step: Param[int]
class Train(Task):
    def point(self, dep, step):
        return dep(Point.C(step=step))
    def execute(self):
        for step in (1, 2):
            Path(f"p{step}").write_text("v1")
            self.register_task_output(self.point, step)
        return "v1"
class Rate(Task):
    point: Param[Point]
    train: Param[Path]
    def execute(self):
        return (self.train / f"p{self.point.step}").read_text()
if __name__ == "__main__":
    rated = []
    with experiment(HERE / "ws", "x"):
        train = Train.C()
        def rate(point):
            rated.append(Rate.C(point=point, train=train.jobpath).submit())
        train.watch_output(train.point, rate)
        train.submit()
    print(train.result(), [rate.result() for rate in rated])
"""


def test_evaluations_of_dynamic_outputs_follow(place: Place) -> None:
    write(place, {"script.py": WATCHED})
    assert out(place) == "v1 ['v1', 'v1']\n"
    edit(place, "script.py", '"v1"', '"v2"')
    assert out(place, "--rerun-changed") == "v2 ['v2', 'v2']\n"
    plans = {
        run(tenuto("plan", "--json", place.directory / "script.py"), place.directory).stdout.count(
            "done before"
        )
        for _ in range(3)
    }
    assert plans == {3}


PREPARED = """
CODE = "a"
class Load(Prepare):
    path: Meta[Path] = field(default_factory=PathGenerator("f"))
    def execute(self):
        self.path.write_text(CODE)
class Held(Config):
    @cache("c")
    def read(self, path):
        if not path.exists():
            path.write_text(CODE)
        return path.read_text()
class Use(Task):
    load: Param[Load]
    held: Param[Held]
    def execute(self):
        return self.load.path.read_text() + self.held.read()
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        print(Use.C(load=Load.C(), held=Held.C()).submit().result())
"""


def test_preparation_and_caches_follow_and_are_made_again_when_gone(place: Place) -> None:
    write(place, {"script.py": PREPARED})
    assert out(place) == "aa\n"
    edit(place, "script.py", 'CODE = "a"', 'CODE = "b"')
    assert out(place) == "aa\n"
    assert out(place, "--rerun-changed") == "bb\n"
    shutil.rmtree(place.workspace / "partials")
    shutil.rmtree(next(place.workspace.glob("jobs/*Use/*")))
    assert out(place) == "bb\n"


# -- the record


def test_the_record_tells_what_a_result_was_made_of_after_its_run_is_gone(place: Place) -> None:
    chain(place)
    shutil.rmtree(place.workspace / "experiments")
    up, dn = record(place, "Up"), record(place, "Dn")
    assert sorted(Path(file).name for file in up["files"]) == ["base.py", "net.py", "script.py"]
    assert [Path(file).name for file in dn["files"]] == ["script.py"]
    ((key, life, code, result),) = dn["made_from"]
    assert "script.Up/" in key
    assert (life, code, result) == (up["begun"], up["code"], up["result"])
    assert {"run", "python", "packages", "host", "launcher"} <= up.keys()
    assert (place.workspace / "provenance" / f"{up['packages']}.json").exists()
    (job,) = place.workspace.glob("jobs/*Dn/*")
    shown = run(tenuto("why", "--json", job.name, "-w", "ws"), place.directory)
    assert json.loads(shown.stdout)["provenance"]["made_from"] == dn["made_from"]
    assert "made from script.Up/" in run(tenuto("why", job.name, "-w", "ws"), place.directory).stdout


def test_results_tell_provenance(place: Place) -> None:
    text = CHAIN + "    print([row['provenance.host'] is not None for row in xp.results(provenance=True)])\n"
    files = {"script.py": text.replace("'x'):", "'x') as xp:"), "base.py": BASE, "net.py": NET}
    write(place, files)
    assert out(place).endswith("[True, True]\n")


OUTPUT = """
class Make(Task):
    file: Meta[Path] = field(default_factory=PathGenerator("model.pt"))
    folder: Meta[Path] = field(default_factory=PathGenerator("parts"))
    never: Meta[Path] = field(default_factory=PathGenerator("never"))
    def execute(self):
        self.file.write_text("1234")
        self.folder.mkdir(exist_ok=True)
        return 1
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        print(Make.C().submit().jobpath.joinpath("model.pt").exists())
"""


def test_declared_outputs_are_checked(place: Place) -> None:
    write(place, {"script.py": OUTPUT})
    out(place)
    assert record(place, "Make")["outputs"] == {"model.pt": 4, "parts": None}
    (job,) = place.workspace.glob("jobs/*/*")
    (job / "model.pt").write_text("12")
    planned = run(tenuto("plan", place.directory / "script.py"), place.directory)
    assert "model.pt is gone, or has another size" in planned.stdout
    out(place)
    assert (job / "model.pt").read_text() == "1234"
    (job / "parts").rmdir()
    out(place)
    assert (job / "parts").is_dir()
    (job / "model.pt").unlink()
    run(tenuto("run", place.directory / "script.py"), place.directory, TENUTO_CHECK_OUTPUTS="false")
    assert not (job / "model.pt").exists()
