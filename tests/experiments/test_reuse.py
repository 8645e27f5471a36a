"""Owns reuse that can be trusted: the one check in every state, and running again in an empty directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .scripts import Place, environment, eventually, python, run, tenuto

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


OWN_ID = """
class NAME(Task):
    __xpmid__ = "my.own"
    def execute(self):
        return "NAME"
if __name__ == "__main__":
    with experiment(HERE / "ws", "NAME"):
        print(NAME.C().submit().result())
"""


def test_a_class_that_was_copied_with_its_id_into_another_file_is_refused(place: Place) -> None:
    """The copy had the result of the class that it was copied from, and a note about its code."""
    write(place, {"one.py": OWN_ID.replace("NAME", "One"), "two.py": OWN_ID.replace("NAME", "Two")})
    assert out(place, script="one.py") == "One\n"
    refused = run(python(place.directory / "two.py"), place.directory)
    assert "Two of" in refused.stderr
    assert "have one id, 'my.own'" in refused.stderr
    (place.directory / "one.py").rename(place.directory / "moved.py")
    assert out(place, script="moved.py") == "One\n", "a class that moved keeps its results"
    edit(place, "moved.py", "my.own", "my.other")
    assert out(place, script="two.py") == "One\n", "no other class has the id now: this one was renamed"


OF_FUNCTION = """
@task(id="my.own")
def own() -> str:
    return "NAME"
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        print(own.C().submit().result())
"""


@pytest.mark.parametrize(
    "text", [OWN_ID.replace("class NAME", "class Own").replace("NAME.C", "Own.C"), OF_FUNCTION]
)
def test_a_class_that_was_copied_with_its_name_and_id_is_refused_once_it_differs(
    place: Place, text: str
) -> None:
    """Of the same name in another file, it had the result of the one that it was copied from."""
    write(place, {"one.py": text.replace("NAME", "one"), "twin.py": text.replace("NAME", "one")})
    assert out(place, script="one.py") == "one\n"
    assert out(place, script="twin.py") == "one\n", "nothing differs"
    write(place, {"two.py": text.replace("NAME", "two")})
    refused = run(python(place.directory / "two.py"), place.directory)
    assert "have one id, 'my.own'" in refused.stderr
    for file in ("one.py", "twin.py"):
        (place.directory / file).unlink()
    assert out(place, script="two.py") == "one\n", "the class was moved, and edited"


ABOVE = """
class Up(Task):
    x: Param[int] = ONE
    def execute(self):
        return self.x
class Mid(Task):
    up: Param[Up]
    def execute(self):
        return self.up.result()
class Dn(Task):
    mid: Param[Mid]
    def execute(self):
        return "from " + str(self.mid.result())
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        mid = Mid.C(up=Up.C().submit(transient=FIRST)).submit(transient="remove")
        print(Dn.C(mid=mid).submit().result())
"""


@pytest.mark.parametrize("first", ["none", "remove"])
def test_a_job_made_from_another_default_is_refused_though_its_upstream_is_gone(
    place: Place, first: str
) -> None:
    """Asked for 2, it gave what was made from 1: the job of the changed default was removed by then."""
    write(
        place,
        {"one.py": "ONE = 1\n", "script.py": "from one import ONE\n" + ABOVE.replace("FIRST", repr(first))},
    )
    assert out(place) == "from 1\n"
    tenuto_clean = run(tenuto("clean", "--yes", "task~Up", "-w", "ws"), place.directory)
    assert tenuto_clean.returncode == 0
    text = (place.directory / "script.py").read_text()
    edit(place, "script.py", "= ONE\n", "= ONE\n    new: Param[int] = 5\n")
    assert "1 reused" in run(tenuto("plan", place.directory / "script.py"), place.directory).stdout, (
        "one is new"
    )
    (place.directory / "script.py").write_text(text)
    edit(place, "one.py", "1", "2")
    says = "was done from a job of another value, which was a default then: Up.x was 1 and is 2 now"
    refused = run(python(place.directory / "script.py"), place.directory)
    assert says in refused.stderr
    assert "in Up `x: ... = field(default=2, ignore_default=1)`" in refused.stderr
    planned = run(tenuto("plan", "--json", place.directory / "script.py"), place.directory)
    assert says in planned.stdout
    if first == "none":
        assert out(place, "--rerun", "task~Dn") == "from 2\n"
    else:
        assert out(place, "--rerun-changed") == "from 2\n"
    assert out(place) == "from 2\n"


def test_a_job_of_another_default_is_run_again_by_name(place: Place) -> None:
    write(place, {"script.py": SLOW})
    place.release.touch()
    assert out(place) == "1\n"
    edit(place, "script.py", "Param[int] = 1", "Param[int] = 2")
    refused = run(tenuto("run", "--rerun-changed", place.directory / "script.py"), place.directory)
    assert "or run it with --rerun" in refused.stderr
    assert out(place, "--rerun", "task~Slow") == "2\n"
    assert out(place) == "2\n"


def test_to_write_directories_only_leaves_the_parameters_of_a_result(place: Place) -> None:
    """It wrote the new default over the old one, so that the old result passed for one of the new."""
    write(place, {"script.py": SLOW})
    place.release.touch()
    assert out(place) == "1\n"
    edit(place, "script.py", "Param[int] = 1", "Param[int] = 2")
    generated = run(tenuto("run", "--generate-only", place.directory / "script.py"), place.directory)
    assert "was done with another value, which was a default then" in generated.stderr
    again = run(tenuto("run", place.directory / "script.py"), place.directory)
    assert "was done with another value, which was a default then" in again.stderr


MEANWHILE = """
import os
import sys
NAME = sys.argv[1] if len(sys.argv) > 1 else "first"
class Hold(Task):
    def execute(self):
        while not (HERE / "release").exists():
            time.sleep(0.02)
class Steps(BASE):
    x: Param[int] = 1
    def execute(self):
        runner = os.getppid()
        if LOST and self.x == 2:
            Path("half").touch()
            while os.getppid() == runner:
                time.sleep(0.02)
            os._exit(1)
        return self.x, Path("half").exists()
if __name__ == "__main__":
    with experiment(HERE / "ws", NAME, raise_on_failure=False):
        steps = Steps.C()
        if NAME == "first":
            steps.add_dependencies(Hold.C().submit())
        steps.submit()
        (HERE / NAME).touch()
    try:
        print(steps.result())
    except NoResult as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("base", "lost", "says"),
    [
        ("Task", False, "with another value, which was a default then: x was 2 and is 1 now"),
        ("ResumableTask", True, "with another value, which was a default then: x was 2 and is 1 now"),
        ("Task", True, "(1, False)"),
    ],
)
def test_a_job_that_another_script_ran_meanwhile_is_looked_at(
    place: Place, base: str, lost: bool, says: str
) -> None:
    script = write(place, {"script.py": MEANWHILE.replace("BASE", base).replace("LOST", str(lost))})
    first = subprocess.Popen(
        python(script), cwd=place.directory, env=environment(), stdout=subprocess.PIPE, text=True
    )
    eventually((place.directory / "first").exists, "the job waits")
    edit(place, "script.py", "Param[int] = 1", "Param[int] = 2")
    second = subprocess.Popen([*python(script), "second"], cwd=place.directory, env=environment())
    if lost:
        eventually(lambda: list(place.workspace.glob("jobs/*/*/half")), "the job runs")
        (pid,) = place.workspace.glob("jobs/*Steps/*/Steps.pid")
        second.kill()
        os.kill(json.loads(pid.read_text())["pid"], signal.SIGKILL)
    second.wait(60)
    place.release.touch()
    assert says in first.communicate(timeout=60)[0]


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
    planned = run(tenuto("plan", place.directory / "script.py"), place.directory)
    assert "1 refused" in planned.stdout, "as any other job that is"


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


def test_dependents_follow_a_job_that_a_filter_names(place: Place) -> None:
    """`--rerun` made the upstream anew, and gave what was made from the one before."""
    chain(place)
    edit(place, "base.py", "v1", "v2")
    done = run(tenuto("run", "--rerun", "task~Up", place.directory / "script.py"), place.directory)
    assert done.stdout == "n1v2; from n1v2\n"
    assert "0 reused, 2 ran" in done.stderr
    assert "again since" not in done.stderr
    same = run(tenuto("run", "--rerun", "task~Up", place.directory / "script.py"), place.directory)
    assert "1 reused, 1 ran" in same.stderr, "it waited, and was not run"


FILTERED = """
class Work(Task):
    n: Param[int]
    def execute(self):
        (HERE / "ledger").open("a").write(f"{self.n}\\n")
        if (HERE / "fails").exists() and self.n == 2:
            raise ValueError("bad luck")
        return {"loss": self.n / 2, "far": {"away": self.n}}
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        for n in (1, 2):
            Work.C(n=n).tag("side", "ab"[n - 1]).submit()
"""


def test_a_rerun_takes_each_filter_that_jobs_takes(place: Place) -> None:
    """Of the results, the run and the reason of a job it knew nothing: such filters named no job."""
    write(place, {"script.py": FILTERED})
    place.directory.joinpath("fails").touch()
    run(tenuto("run", place.directory / "script.py"), place.directory)
    place.directory.joinpath("fails").unlink()
    named = {
        "reason=failed": ["2"],
        "message~luck": [],
        "result.loss<1": ["1"],
        "result.far.away=2": ["2"],
        "side=b and duration<1h": ["2"],
        "group=x and run>2020 and n=1": ["1"],
        "experiment=y": [],
        "experiment=x and submitted>2020-01-01": ["1", "2"],
        "state=running": [],
        "kind=experiment and ended>2020-01-01 and task~Work and not n=1": ["2"],
    }
    for filter, wanted in named.items():
        place.directory.joinpath("ledger").unlink()
        place.directory.joinpath("ledger").touch()
        done = run(tenuto("run", "--rerun", filter, place.directory / "script.py"), place.directory)
        assert done.returncode == 0, done.stderr
        assert sorted(place.ledger()) == wanted, filter
        assert ("no job that was submitted" in done.stderr) is (not wanted), filter


THROUGH = """
class Up(Task):
    def execute(self):
        (HERE / "ledger").open("a").write("up\\n")
        return "v1"
"""
TRANSIENT = """
from up import Up
class Mid(Task):
    up: Param[Up]
    def execute(self):
        (HERE / "ledger").open("a").write("mid\\n")
        return self.up.result()
class Dn(Task):
    mid: Param[Mid]
    def execute(self):
        return "from " + self.mid.result()
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        mid = Mid.C(up=Up.C().submit(transient=TRANSIENT)).submit(transient="remove")
        print(Dn.C(mid=mid).submit().result())
"""


@pytest.mark.parametrize("first", ["none", "transient", "remove"])
def test_transient_jobs_are_made_again_only_where_their_code_changed(place: Place, first: str) -> None:
    """With `--rerun-changed` each run made them, since nothing was known of jobs that are gone."""
    write(place, {"up.py": THROUGH, "script.py": TRANSIENT.replace("TRANSIENT", repr(first))})
    assert out(place) == "from v1\n"
    again = run(tenuto("run", "--rerun-changed", place.directory / "script.py"), place.directory)
    assert "nothing had to run" in again.stderr
    assert place.ledger() == ["up", "mid"]
    edit(place, "up.py", "v1", "v2")
    noted = run(tenuto("run", place.directory / "script.py"), place.directory)
    assert "was reused, though" in noted.stderr
    assert "has changed since" in noted.stderr
    assert out(place, "--rerun-changed") == "from v2\n"
    assert place.ledger() == ["up", "mid", "up", "mid"]


RENAMED = """
class Old(Task):
    def execute(self):
        return "v1"
Up = Old
"""
OF_RENAMED = """
from up import Up
class Dn(Task):
    up: Param[Up]
    def execute(self):
        return "from " + self.up.result()
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        print(Dn.C(up=Up.C().submit()).submit().result())
"""


@pytest.mark.parametrize("is_moved", [True, False])
@pytest.mark.parametrize("how", ["--rerun-changed", "--rerun=task~New"])
def test_a_renamed_upstream_that_is_made_again_is_seen(place: Place, is_moved: bool, how: str) -> None:
    """The record of a dependent has the key that its upstream had then."""
    write(place, {"up.py": RENAMED, "script.py": OF_RENAMED})
    out(place)
    edit(place, "up.py", "Old", "New")
    old = "\n@deprecate\nclass Old(New): pass\n"
    edit(place, "up.py", "\nUp = New\n", f"{old}\nUp = New\n")
    assert out(place) == "from v1\n"
    if is_moved:
        moved = run(tenuto("clean", "--renamed", "--yes", "-w", "ws"), place.directory)
        assert "2 jobs moved" in moved.stderr, moved.stderr
        edit(place, "up.py", old, "")
    edit(place, "up.py", "v1", "v2")
    run(tenuto("clean", "--yes", "task~New" if is_moved else "task~Old", "-w", "ws"), place.directory)
    noted = run(tenuto("run", place.directory / "script.py"), place.directory)
    assert noted.stdout == "from v1\n"
    assert "was made again since" in noted.stderr
    edit(place, "up.py", "v2", "v3")
    assert out(place, how) == "from v3\n"


PARTIAL = """
EPOCHS = param_group("epochs")
class Learn(ResumableTask):
    epochs: Param[int] = field(groups=[EPOCHS])
    run = partial(exclude_groups=[EPOCHS])
    state: Meta[Path] = field(default_factory=PathGenerator("state", partial=run))
    def execute(self):
        self.state.parent.mkdir(parents=True, exist_ok=True)
        done = self.state.read_text().split() if self.state.exists() else ["v1", "0"]
        (HERE / "ledger").open("a").write(f"{self.epochs} from {done[1]}\\n")
        self.state.write_text(f"{done[0]} {self.epochs}")
        return self.state.read_text()
given = options(epochs=sweep(1))
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        for n in given.epochs:
            learn = Learn.C(epochs=n).submit()
            learn.wait()
    print(learn.result())
"""


@pytest.mark.parametrize("how", ["--rerun-changed", "--rerun=task~Learn"])
def test_running_again_sets_partials_aside(place: Place, how: str) -> None:
    """A task found its finished checkpoint in the directory that it shares, and was stamped as new."""
    write(place, {"script.py": PARTIAL})
    assert out(place, "-c", "epochs=1,2") == "v1 2\n"
    edit(place, "script.py", '"v1"', '"v2"')
    noted = run(tenuto("run", "-c", "epochs=3", place.directory / "script.py"), place.directory)
    assert noted.stdout == "v1 3\n"
    assert "1 job was run on from" in noted.stderr
    assert "though script.py has changed since" in noted.stderr
    assert out(place, how, "-c", "epochs=1,2") == "v2 2\n"
    assert place.ledger() == ["1 from 0", "2 from 1", "3 from 2", "1 from 0", "2 from 1"]
    (aside,) = place.workspace.glob("partials/*/*/*.aside")
    assert (aside / "state").read_text() == "v1 3"
    last = run(
        tenuto("run", "--rerun-changed", "-c", "epochs=4", place.directory / "script.py"), place.directory
    )
    assert last.stdout == "v2 4\n"
    assert place.ledger()[-1] == "4 from 2"
    assert out(place, "--rerun-changed", "-c", "epochs=3") == "v2 3\n", "it was run on from v1"


RETRIED = """
from up import Up
class Dn(Task):
    up: Param[Up]
    def execute(self):
        if not (HERE / "release").exists():
            raise RuntimeError("not yet")
        return "from " + self.up.result()
given = options(all=True)
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        up = Up.C().submit()
        if given.all:
            print(Dn.C(up=up).submit().result())
"""


def test_a_retried_job_is_made_from_what_is_there_then(place: Place) -> None:
    """Its record named what the attempt before would have been made from, and it was run once more."""
    write(place, {"up.py": THROUGH, "script.py": RETRIED})
    out(place, code=1)
    edit(place, "up.py", "v1", "v2")
    assert out(place, "--rerun", "task~Up", "-c", "all=false") == ""
    place.release.touch()
    retried = run(tenuto("retry", "Dn", "-w", "ws"), place.directory)
    assert retried.returncode == 0, retried.stderr
    last = run(tenuto("run", "--rerun-changed", place.directory / "script.py"), place.directory)
    assert last.stdout == "from v2\n"
    assert "nothing had to run" in last.stderr


CONTINUED = """
from up import Up, word
EPOCHS = param_group("epochs")
class Held(Config):
    up: Param[Up]
    @cache("c")
    def read(self, path):
        if not path.exists():
            path.write_text(self.up.result())
        return path.read_text()
class Steps(ResumableTask):
    up: Param[Up]
    n: Param[int] = field(groups=[EPOCHS])
    held: Param[Held | None] = None
    own: Meta[Path] = Output("own")
    shared: Meta[Path] = Output("shared", partial=partial(exclude_groups=[EPOCHS]))
    def execute(self):
        path = getattr(self, WHICH)
        if WHICH == "held":
            return path.read()
        path.parent.mkdir(parents=True, exist_ok=True)
        log = path.read_text() if path.exists() else ""
        path.write_text(log + self.up.result() + word())
        if not (HERE / "release").exists():
            raise RuntimeError("half")
        return path.read_text()
given = options(n=1, all=True)
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        up = Up.C().submit()
        if given.all:
            held = Held.C(up=up) if WHICH == "held" else None
            print(Steps.C(up=up, n=given.n, held=held).submit().result())
"""
MADE_AGAIN = """
class Up(Task):
    def execute(self):
        return "u1"
def word():
    return ""
"""


def continued(place: Place, which: str) -> Path:
    script = CONTINUED.replace("WHICH", repr(which))
    if which != "shared":
        script = script.replace(", partial=partial(exclude_groups=[EPOCHS])", "")
    return write(place, {"up.py": MADE_AGAIN, "script.py": script})


@pytest.mark.parametrize("how", ["run", "retry"])
@pytest.mark.parametrize("what", ["code", "upstream"])
def test_a_job_that_continues_what_is_older_is_doubted_and_run_again(
    place: Place, what: str, how: str
) -> None:
    """Half of its result was of older code, or of an older upstream, and nothing ever said so."""
    script = continued(place, "own")
    out(place, code=1)
    if what == "code":
        edit(place, "script.py", "+ word()", "+ 'w' + word()")
        half, whole, why = "u1u1w", "u1w", "script.py has changed since"
    else:
        edit(place, "up.py", "u1", "u2")
        out(place, "--rerun", "task~Up", "-c", "all=false")
        half, whole, why = "u1u2", "u2", "was made again since"
    planned = run(tenuto("plan", script), place.directory)
    assert f"failed before (FAILED); {'up.Up' if what == 'upstream' else ''}" in planned.stdout
    assert why in planned.stdout
    place.release.touch()
    if how == "retry":
        assert run(tenuto("retry", "Steps", "-w", "ws"), place.directory).returncode == 0
    for _ in ("continued, or found", "found again"):
        noted = run(tenuto("run", script), place.directory)
        assert noted.stdout == f"{half}\n"
        assert "though it continued an earlier attempt, and" in noted.stderr
        assert why in noted.stderr
    assert "it continued an attempt" in run(tenuto("why", "Steps", "-w", "ws"), place.directory).stdout
    assert out(place, "--rerun-changed") == f"{whole}\n"
    assert "note" not in run(tenuto("run", script), place.directory).stderr


@pytest.mark.parametrize(
    ("which", "half", "kind"), [("shared", "u1u2", "partials"), ("held", "u1", "cache data")]
)
def test_shared_files_made_from_an_older_job_are_doubted(
    place: Place, which: str, half: str, kind: str
) -> None:
    """Their record told the code alone: made from a job that ran again, they were used without a word."""
    script = continued(place, which)
    place.release.touch()
    assert out(place) == "u1\n"
    edit(place, "up.py", "u1", "u2")
    out(place, "--rerun", "task~Up", "-c", "all=false")
    planned = run(tenuto("plan", "-c", "n=2", script), place.directory)
    assert "was made again since" in planned.stdout
    noted = run(tenuto("run", "-c", "n=2", script), place.directory)
    assert noted.stdout == f"{half}\n"
    assert kind in noted.stderr
    assert "was made again since" in noted.stderr
    assert "was made again since" in run(tenuto("run", "-c", "n=2", script), place.directory).stderr
    assert out(place, "--rerun-changed", "-c", "n=3") == "u2\n"
    assert "was made again since" in run(tenuto("run", "-c", "n=2", script), place.directory).stderr
    assert out(place, "--rerun-changed", "-c", "n=2") == ("u2u2\n" if which == "shared" else "u2\n")
    assert "note" not in run(tenuto("run", "-c", "n=2", script), place.directory).stderr


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


OLDER = """
class Load(Prepare):
    path: Meta[Path] = field(default_factory=PathGenerator("f"))
    def execute(self):
        self.path.write_text("v1")
class Held(Config):
    @cache("c")
    def read(self, path):
        if not path.exists():
            path.write_text("v1")
        return path.read_text()
N = param_group("n")
class UsePart(Task):
    n: Param[int] = field(groups=[N])
    p: Meta[Path] = Output("p", partial=partial(exclude_groups=[N]))
    def execute(self):
        if not self.p.exists():
            self.p.parent.mkdir(parents=True, exist_ok=True)
            self.p.write_text("v1")
        return self.p.read_text()
class UseLoad(Task):
    load: Param[Load]
    n: Param[int]
    def execute(self):
        return self.load.path.read_text()
class UseHeld(Task):
    held: Param[Held]
    n: Param[int]
    def execute(self):
        return self.held.read()
given = options(n=1)
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        print(ASKED.submit().result())
"""


@pytest.mark.parametrize(
    "asked",
    ["UseLoad.C(load=Load.C(), n=given.n)", "UseHeld.C(held=Held.C(), n=given.n)", "UsePart.C(n=given.n)"],
)
def test_a_job_that_began_with_older_files_is_doubted_and_run_again(place: Place, asked: str) -> None:
    """It was stamped with the new code of what it read, so that its result of the old files held for ever."""
    write(place, {"script.py": OLDER.replace("ASKED", asked)})
    assert out(place) == "v1\n"
    edit(place, "script.py", '"v1"', '"v2"')
    new = place.directory / "script.py"
    for n in (2, 2):
        planned = run(tenuto("plan", "-c", f"n={n}", new), place.directory)
        assert "script.py has changed since" in planned.stdout, "the files of the plan are older"
        noted = run(tenuto("run", "-c", f"n={n}", new), place.directory)
        assert noted.stdout == "v1\n"
        assert "though script.py has changed since" in noted.stderr
    planned = run(tenuto("plan", "--rerun-changed", "-c", "n=2", new), place.directory)
    assert "1 to run once more" in planned.stdout
    assert out(place, "--rerun-changed", "-c", "n=3") == "v2\n"
    noted = run(tenuto("run", "-c", "n=2", new), place.directory)
    assert "was made again since" in noted.stderr
    assert out(place, "--rerun-changed", "-c", "n=2") == "v2\n"
    assert "note" not in run(tenuto("run", "-c", "n=2", new), place.directory).stderr


@pytest.mark.parametrize("what", ["--prepared", "--cache"])
def test_work_prepared_or_cached_again_by_the_same_code_is_the_same(place: Place, what: str) -> None:
    """To free the disk of it made each job that had used it doubtful, and run again."""
    write(place, {"script.py": PREPARED})
    out(place)
    cleaned = run(tenuto("clean", what, "--yes", "-w", "ws"), place.directory)
    assert cleaned.returncode == 0, cleaned.stderr
    for _ in range(2):
        done = run(tenuto("run", "--rerun-changed", place.directory / "script.py"), place.directory)
        assert done.stdout == "aa\n"
        assert "nothing had to run" in done.stderr
    assert out(place, "--rerun", "task~Use") == "aa\n", "and what was prepared is still there"
    edit(place, "script.py", 'CODE = "a"', 'CODE = "b"')
    assert out(place, "--rerun-changed") == "bb\n"


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
    why = run(tenuto("why", job.name, "-w", "ws"), place.directory)
    assert "model.pt, which it made, is gone, or has another size" in why.stdout
    out(place)
    assert (job / "model.pt").read_text() == "1234"
    run(tenuto("clean", "--pack", "--yes", "state=done", "-w", "ws"), place.directory)
    assert "is gone" not in run(tenuto("why", job.name, "-w", "ws"), place.directory).stdout
    run(tenuto("clean", "--unpack", "--yes", "state=done", "-w", "ws"), place.directory)
    (job / "parts").rmdir()
    out(place)
    assert (job / "parts").is_dir()
    (job / "model.pt").unlink()
    run(tenuto("run", place.directory / "script.py"), place.directory, TENUTO_CHECK_OUTPUTS="false")
    assert not (job / "model.pt").exists()


@pytest.mark.parametrize("how", ["link to nothing", "directory"])
def test_an_output_that_something_else_took_the_place_of_is_made_again(place: Place, how: str) -> None:
    write(place, {"script.py": OUTPUT})
    out(place)
    (job,) = place.workspace.glob("jobs/*/*")
    (job / "model.pt").rename(job / "moved.pt")
    (job / "model.pt").symlink_to("moved.pt")
    assert "1 reused" in run(tenuto("plan", place.directory / "script.py"), place.directory).stdout
    (job / "model.pt").unlink()
    if how == "directory":
        (job / "model.pt").mkdir()
    else:
        (job / "model.pt").symlink_to("nowhere")
    planned = run(tenuto("plan", place.directory / "script.py"), place.directory)
    assert "model.pt is gone, or has another size" in planned.stdout
    out(place)
    assert (job / "model.pt").read_text() == "1234"


KEPT_APART = """
import numpy
class Make(Task):
    def execute(self):
        return {"deep": [numpy.arange(1000)], "loss": 1.0}
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        make = Make.C().submit()
    print(make.result()["deep"][0].sum())
"""


@pytest.mark.parametrize("how", ["gone", "cut short"])
def test_a_result_whose_file_is_gone_is_made_again(place: Place, how: str) -> None:
    """The job was reused, and `result()` raised: for ever, since it was done."""
    write(place, {"script.py": KEPT_APART})
    assert out(place) == "499500\n"
    (file,) = place.workspace.glob("jobs/*/*/Make.result-1.npy")
    assert record(place, "Make")["outputs"] == {"Make.result-1.npy": file.stat().st_size}
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:100])
    assert out(place) == "499500\n"


LARGE = """
class Make(Task):
    def execute(self):
        return list(range(20_000))
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        make = Make.C().submit()
    print(len(make.result()))
"""


def test_a_large_result_that_is_gone_is_made_again(place: Place) -> None:
    """The job was reused, and `result()` raised."""
    write(place, {"script.py": LARGE})
    assert out(place) == "20000\n"
    (file,) = place.workspace.glob("jobs/*/*/.tenuto/result.json")
    file.unlink()
    assert out(place) == "20000\n"


DROPPED = """
import numpy
class Base(Task):
    size: Param[int]
    data: Meta[Path] = Output("deep/data.txt")
    folder: Meta[Path] = Output("parts/sub")
    def execute(self):
        (HERE / "ledger").open("a").write(f"base {self.size}\\n")
        self.folder.mkdir(parents=True)
        (self.folder / "part").write_text("1")
        self.data.parent.mkdir()
        self.data.write_text("x" * self.size)
        Path("undeclared").write_text("y")
        return numpy.arange(1000)
class Train(Task):
    base: Param[Base]
    model: Meta[Path] = Output("model")
    def execute(self):
        (HERE / "ledger").open("a").write("train\\n")
        self.model.write_text(self.base.data.read_text() + (self.base.folder / "part").read_text())
        return 1
class Test(Task):
    train: Param[Train]
    k: Param[int]
    def execute(self):
        (HERE / "ledger").open("a").write(f"test {self.k}\\n")
        return self.train.model.read_text()
given = options(k=sweep(1), transient="none")
if __name__ == "__main__":
    with experiment(HERE / "ws", "x"):
        bases = [Base.C(size=n).submit() for n in (2, 3)]
        train = Train.C(base=bases[0]).submit(transient=given.transient)
        tests = [Test.C(train=train, k=k).submit() for k in given.k]
    print([test.result() for test in tests], int(bases[0].result().sum()))
"""


@pytest.mark.parametrize("transient", ["none", "remove"])
def test_files_can_go_and_results_stay(place: Place, transient: str) -> None:
    write(place, {"script.py": DROPPED})
    kind = f"transient={transient}"
    assert out(place, "-c", kind) == "['xx1'] 499500\n"
    first = ["base 2", "base 3", "train", "test 1"]
    assert sorted(place.ledger()) == sorted(first)
    (job,) = (
        path for path in place.workspace.glob("jobs/*Base/*") if (path / "deep/data.txt").stat().st_size == 2
    )
    for _ in range(2):
        done = run(tenuto("clean", "--files", "--yes", "state=done", "-w", "ws"), place.directory)
        assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in job.iterdir() if not path.name.startswith(("Base.", "."))) == [
        "params.json"
    ]
    assert list(job.glob("Base.result-1.*")), "a file of the result is no file of the task"
    why = json.loads(run(tenuto("why", job.name, "-w", "ws", "--json"), place.directory).stdout)
    assert why["provenance"]["dropped"] == ["deep", "deep/data.txt", "parts", "parts/sub", "undeclared"]
    for option in ("--rerun-changed", "--no-rerun-changed"):
        assert out(place, option, "-c", kind) == "['xx1'] 499500\n"
    assert len(place.ledger()) == 4, "nothing needs the files"
    planned = run(tenuto("plan", "-c", "k=1,2", "-c", kind, place.directory / "script.py"), place.directory)
    assert "its files were removed, and what runs needs them" in planned.stdout
    assert out(place, "-c", "k=1,2", "-c", kind) == "['xx1', 'xx1'] 499500\n"
    assert place.ledger()[4:] == ["base 2", "train", "test 2"]


def test_files_that_were_handed_over_stay(place: Place) -> None:
    write(place, {"script.py": WATCHED})
    out(place)
    done = run(tenuto("clean", "--files", "--yes", "task~Train", "-w", "ws"), place.directory)
    assert "jobs use outputs that it handed over" in done.stdout
    refused = run(tenuto("clean", "--files", "--unowned", "-w", "ws"), place.directory)
    assert refused.returncode == 2
