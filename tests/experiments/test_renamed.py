"""Owns that results stay valid when the class of a task is renamed and the old one deprecated."""

from __future__ import annotations

import json
import os
import shutil
from textwrap import dedent

import pytest

from .scripts import Place, python, run, tenuto

BEFORE = """
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

def note(text):
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(f"{text}\\n")

class Train(Task):
    lr: Param[float]
    model: Meta[Path] = field(default_factory=PathGenerator("model.txt"))
    def execute(self):
        note("train")
        self.model.write_text(str(self.lr))
        return self.lr

class Evaluate(Task):
    trained: Param[Train]
    def execute(self):
        note("evaluate")
        return self.trained.result() + float(self.trained.model.read_text())
"""
AFTER = (
    BEFORE.replace("class Train(Task)", "class Fit(Task)").replace("Param[Train]", "Param[Fit]")
    + """
@deprecate
class Train(Fit):
    pass

class Compare(Task):
    trained: Param[Fit]
    def execute(self):
        return [self.trained.lr, self.trained.result(), self.trained.model.read_text()]
"""
)


def test_a_renamed_task_is_found_under_its_former_name_and_moved(place: Place) -> None:
    body = """
    with experiment("ws", "x"):
        print(Evaluate.C(trained={}.C(lr=0.5).submit()).submit().result())
    """
    script = place.script(dedent(body).format("Train"), tasks=BEFORE)
    assert run(python(script), place.directory).stdout == "1.0\n"
    assert place.ledger() == ["train", "evaluate"]

    place.script(dedent(body).format("Fit"), tasks=AFTER.replace("@deprecate\n", ""))
    hinted = run(tenuto("plan", script), place.directory).stdout
    assert "the first of its task here; script.Train has the same parameters: if it was renamed" in hinted

    more = "    print(Compare.C(trained=Fit.C(lr=0.5).submit()).submit().result())\n"
    place.script(dedent(body).format("Fit") + more, tasks=AFTER)
    after = run(python(script), place.directory)
    assert after.stdout == "1.0\n[0.5, 0.5, '0.5']\n", after.stderr
    assert "2 jobs are kept under a former name, such as script.Train" in after.stderr
    assert place.ledger() == ["train", "evaluate"]

    place.script(dedent(body).format("Train"), tasks=AFTER)
    assert run(python(script), place.directory).stdout == "1.0\n", "the deprecated class is the same job"
    assert place.ledger() == ["train", "evaluate"]

    would = run(tenuto("clean", "--renamed", "-w", "ws"), place.directory)
    assert "2 jobs would be moved" in would.stderr + would.stdout
    moved = run(tenuto("clean", "--renamed", "--yes", "-w", "ws"), place.directory)
    assert moved.returncode == 0, moved.stderr
    assert not list(place.workspace.glob(".renamed/*"))
    (fit,) = place.workspace.glob("jobs/script.Fit/*")
    assert (fit / "Fit.done").exists()
    assert not fit.is_symlink()

    place.script(dedent(body).format("Fit") + more, tasks=AFTER)
    last = run(python(script), place.directory)
    assert last.stdout == "1.0\n[0.5, 0.5, '0.5']\n", last.stderr
    assert "former name" not in last.stderr
    assert place.ledger() == ["train", "evaluate"]
    listed = run(tenuto("jobs", "--all", "-w", "ws"), place.directory).stdout
    assert listed.count("done") == 3, listed
    assert "link" not in listed


def test_runs_from_before_a_move_stay_readable(place: Place) -> None:
    """They showed their jobs as links, without results, and `clean --orphans` took what they asked for."""
    body = """
    with experiment("ws", "x"):
        print(Evaluate.C(trained={}.C(lr=0.5).submit()).submit().result())
    """
    script = place.script(dedent(body).format("Train"), tasks=BEFORE)
    run(python(script), place.directory)
    (old,) = (path.name for path in place.workspace.glob("experiments/x/2*"))
    (former,) = (path.name for path in place.workspace.glob("jobs/script.Train/*"))
    names = ["Fit", "Learn"]  # it is renamed twice
    for before, name in zip(["Train", "Fit"], names, strict=True):
        again = f"\n@deprecate\nclass {before}({name}):\n    pass\n"
        tasks = BEFORE.replace("class Train(Task)", f"class {name}(Task)")
        tasks = tasks.replace("Param[Train]", f"Param[{name}]") + again
        place.script(dedent(body).format(name), tasks=tasks)
        assert run(python(script), place.directory).stdout == "1.0\n"
        moved = run(tenuto("clean", "--renamed", "--yes", "-w", "ws"), place.directory)
        assert "2 jobs moved" in moved.stderr, moved.stderr
    assert place.ledger() == ["train", "evaluate"]

    shown = run(tenuto("runs", "show", f"x/{old}", "-w", "ws"), place.directory).stdout
    assert "2 done" in shown, shown
    rows = json.loads(run(tenuto("results", "-r", f"x/{old}", "-w", "ws", "--json"), place.directory).stdout)
    assert sorted(row["result"] for row in rows) == [0.5, 1.0]
    code = f"from tenuto import load_xp_info; print(len(load_xp_info('ws', 'x', '{old}').results()))"
    assert run([*python(script)[:-1], "-c", code], place.directory).stdout == "2\n"
    for name in (former, former[:10], f"script.Train/{former}"):
        why = run(tenuto("why", name, "-w", "ws"), place.directory).stdout
        assert "script.Learn" in why, why
    graph = run(tenuto("graph", "-r", f"x/{old}", "-w", "ws"), place.directory).stdout
    assert "Learn" in graph, graph
    links = [path for path in place.workspace.glob("jobs/*/*") if path.is_symlink()]
    assert len(links) == 4
    assert not any(os.path.isabs(os.readlink(path)) for path in links)  # a workspace can be moved
    for path in place.workspace.glob("experiments/x/2*"):
        if path.name != old:
            shutil.rmtree(path)
    orphans = run(tenuto("clean", "--orphans", "--yes", "-w", "ws"), place.directory)
    assert "nothing to delete" in orphans.stderr, orphans.stdout


BODY = """
with experiment("ws", "x"):
    print(Evaluate.C(trained={}.C(lr=0.5).submit()).submit().result())
"""


def renamed(place: Place, before: str, name: str) -> None:
    """Run the script after its task was renamed; `clean --renamed` has something to do then."""
    tasks = BEFORE.replace("class Train(Task)", f"class {name}(Task)").replace(
        "Param[Train]", f"Param[{name}]"
    )
    tasks += f"\n@deprecate\nclass {before}({name}):\n    pass\n"
    script = place.script(BODY.format(name), tasks=tasks)
    done = run(python(script), place.directory)
    assert done.stdout == "1.0\n", done.stderr


CUT = """
import os
import sys
from tenuto.cli import main
from tenuto.workspace import machine

FILES = type(machine.this_machine().files)
whole = getattr(FILES, {method!r})

def cut(self, *arguments, **options):
    if {after}:
        whole(self, *arguments, **options)
    os._exit(9)

setattr(FILES, {method!r}, cut)
sys.argv = ["tenuto", "clean", "--renamed", "--yes", "-w", "ws"]
main()
"""


@pytest.mark.parametrize(("method", "after"), [("rename", False), ("rename", True), ("symlink", True)])
def test_a_move_that_is_killed_leaves_jobs_readable_and_is_gone_on_with(
    place: Place, method: str, after: bool
) -> None:
    script = place.script(BODY.format("Train"), tasks=BEFORE)
    run(python(script), place.directory)
    (old,) = (path.name for path in place.workspace.glob("experiments/x/2*"))
    renamed(place, "Train", "Fit")
    killed = run([*python(script)[:-1], "-c", CUT.format(method=method, after=after)], place.directory)
    assert killed.returncode == 9, killed.stderr
    shown = run(tenuto("runs", "show", f"x/{old}", "-w", "ws"), place.directory).stdout
    assert "2 done" in shown, shown
    moved = run(tenuto("clean", "--renamed", "--yes", "-w", "ws"), place.directory)
    assert moved.returncode == 0, moved.stderr
    assert not list(place.workspace.glob(".renamed/*"))
    assert [path.is_symlink() for path in place.workspace.glob("jobs/script.Train/*")] == [True]
    shown = run(tenuto("runs", "show", f"x/{old}", "-w", "ws"), place.directory).stdout
    assert "2 done" in shown, shown
    renamed(place, "Train", "Fit")
    assert place.ledger() == ["train", "evaluate"]


def test_a_task_that_is_renamed_back_has_its_jobs_where_they_were(place: Place) -> None:
    script = place.script(BODY.format("Train"), tasks=BEFORE)
    run(python(script), place.directory)
    for before, name in [("Train", "Fit"), ("Fit", "Train")]:
        renamed(place, before, name)
        moved = run(tenuto("clean", "--renamed", "--yes", "-w", "ws"), place.directory)
        assert "2 jobs moved" in moved.stderr, moved.stderr
    assert place.ledger() == ["train", "evaluate"]
    for path in place.workspace.glob("experiments/x/2*"):
        shown = run(tenuto("runs", "show", f"x/{path.name}", "-w", "ws"), place.directory).stdout
        assert "2 done" in shown, shown
    listed = run(tenuto("jobs", "--all", "-w", "ws"), place.directory).stdout
    assert listed.count("done") == 2, listed


def test_a_class_that_is_replaced_at_once_is_found_under_its_former_name(place: Place) -> None:
    before = BEFORE.replace("class Train(Task)", "class Learn(Task)").replace("Param[Train]", "Param[Learn]")
    before = before.replace("lr: Param[float]", "rate: Param[str]").replace("self.lr", "float(self.rate)")
    body = """
    with experiment("ws", "x"):
        print(Evaluate.C(trained=Learn.C(rate="0.5").submit()).submit().result())
    """
    script = place.script(dedent(body), tasks=before)
    first = run(python(script), place.directory)
    assert first.stdout == "1.0\n", first.stderr
    after = (
        BEFORE.replace("Train", "Fit")
        + """
@deprecate(replace=True)
class Learn(Task):
    rate: Param[str]
    def __convert__(self):
        return Fit.C(lr=float(self.rate))
"""
    )
    place.script(dedent(body), tasks=after)
    again = run(python(script), place.directory)
    assert again.stdout == "1.0\n", again.stderr
    assert "2 jobs are kept under a former name, such as script.Learn" in again.stderr
    assert place.ledger() == ["train", "evaluate"]


def test_a_deprecated_task_that_converts_itself_runs_as_its_successor(place: Place) -> None:
    tasks = (
        AFTER
        + """
@deprecate(Fit)
class Learn(Task):
    rate: Param[str]
    def __convert__(self):
        return Fit.C(lr=float(self.rate))
"""
    )
    script = place.script(
        dedent("""
        with experiment("ws", "x"):
            learned, fitted = Learn.C(rate="0.5").submit(), Fit.C(lr=0.5).submit()
            print(learned.result(), fitted.result(), learned.jobpath == fitted.jobpath)
            print(learned.jobpath.parent.name)
        """),
        tasks=tasks,
    )
    done = run(python(script), place.directory)
    assert done.stdout == "0.5 0.5 True\nscript.Fit\n", done.stderr
    assert place.ledger() == ["train"]
