"""Owns what stays valid: which results a script is given again after defaults, code or data changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenuto import Param, Task, experiment, identity
from tenuto.errors import ParameterError

from .scripts import Place, python, run, tenuto

FIT = """
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

class Solver(Config):
    steps: Param[int] = 5
    name: Param[str] = "lbfgs"

class Fit(Task):
    solver: Param[Solver]
    scale: Param[float] = 1.0

    def execute(self):
        return [self.solver.name, self.scale]

if __name__ == "__main__":
    with experiment(HERE / "ws", "fits"):
        fit = Fit.C(solver=Solver.C(name="NAME")).submit()
    print(fit.job.result())
"""


def fit(place: Place, name: str, **changes: str) -> Path:
    text = FIT.replace('"NAME"', name)
    for before, after in changes.values():
        assert before in text
        text = text.replace(before, after)
    path = place.directory / "fit.py"
    path.write_text(text)
    return path


def test_a_changed_default_is_refused_and_the_remedy_keeps_the_old_results(place: Place) -> None:
    first = run(python(fit(place, '"lbfgs"')), place.directory)
    assert first.stdout == "['lbfgs', 1.0]\n", first.stderr
    newton = '= "lbfgs"', '= "newton"'
    for name in ('"newton"', "Solver.C().name"):
        script = fit(place, name, default=newton)
        result = run(python(script), place.directory)
        assert result.returncode == 1
        assert "solver.name was 'lbfgs' and is 'newton' now" in result.stderr
        planned = run(tenuto("plan", script), place.directory)
        assert "1 refused" in planned.stdout
        assert "ignore_default" in planned.stdout
    remedy = '= "lbfgs"', '= field(default="newton", ignore_default="lbfgs")'
    again = run(tenuto("run", fit(place, '"lbfgs"', default=remedy)), place.directory)
    assert again.stdout == "['lbfgs', 1.0]\n", again.stderr
    assert "nothing had to run" in again.stderr
    new = run(tenuto("run", fit(place, "Solver.C().name", default=remedy)), place.directory)
    assert new.stdout == "['newton', 1.0]\n"
    assert "1 ran" in new.stderr


CHANGES = {
    "a bool": (
        ("shuffle: Param[bool] = True", "shuffle: Param[bool] = False"),
        "shuffle: Param[bool] = field(default=False, ignore_value=True)",
        "in Fit `shuffle: ... = field(default=False, ignore_value=True)`",
        "Fit.C(shuffle=True)",
    ),
    "a bool the other way": (
        ("shuffle: Param[bool] = False", "shuffle: Param[bool] = True"),
        "shuffle: Param[bool] = field(default=True, ignore_value=False)",
        "in Fit `shuffle: ... = field(default=True, ignore_value=False)`",
        "Fit.C(shuffle=False)",
    ),
    "a config": (
        ("inner: Param[Inner] = Inner.C(k=8)", "inner: Param[Inner] = Inner.C(k=9)"),
        "inner: Param[Inner] = field(default=Inner.C(k=9), ignore_default=Inner.C(k=8))",
        "in Fit `inner: ... = field(default=Inner.C(k=9), ignore_default=Inner.C(k=8))`",
        "Fit.C(inner=Inner.C(k=8))",
    ),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_the_remedy_of_a_changed_default_works(place: Place, kind: str) -> None:
    (before, after), mended, remedy, old = CHANGES[kind]
    tasks = f"""
from tenuto import *

class Inner(Config):
    k: Param[int] = 3

class Fit(Task):
    {before}
    def execute(self):
        return [getattr(self, "shuffle", None), self.inner.k if hasattr(self, "inner") else None]
"""
    script = place.script('with experiment("ws", "x"): print(Fit.C().submit().result())', tasks=tasks)
    first = run(python(script), place.directory)
    assert first.returncode == 0, first.stderr
    text = script.read_text()
    script.write_text(text.replace(before, after))
    refused = run(python(script), place.directory)
    assert refused.returncode == 1
    assert remedy in refused.stderr.replace("\n", " ")
    script.write_text(text.replace(before, mended))
    again = run(python(script), place.directory)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[0] != first.stdout.splitlines()[0]
    script.write_text(text.replace(before, mended).replace("Fit.C()", old))
    assert run(python(script), place.directory).stdout.splitlines()[0] == first.stdout.splitlines()[0]
    assert len(list(place.workspace.glob("jobs/*/*"))) == 2


def test_a_new_parameter_keeps_results_valid(place: Place) -> None:
    run(python(fit(place, '"lbfgs"')), place.directory)
    added = "scale: Param[float] = 1.0", "scale: Param[float] = 1.0\n    more: Param[int] = 3"
    inner = "steps: Param[int] = 5", "steps: Param[int] = 5\n    less: Param[list[int]] = [1]"
    result = run(tenuto("run", fit(place, '"lbfgs"', added=added, inner=inner)), place.directory)
    assert "nothing had to run" in result.stderr


NUMBER = """
from tenuto import *

class Number(Task):
    x: Param[int]
    def execute(self):
        return self.x
"""
CODE = """
from pathlib import Path
from tenuto import *
from number import Number

HERE = Path(__file__).parent

class Twice(Task):
    number: Param[Number]
    def execute(self):
        return "twice"

if __name__ == "__main__":
    with experiment(HERE / "ws", "numbers"):
        number = Number.C(x=1).submit()
        twice = Twice.C(number=number).submit()
    print(number.job.result(), twice.job.result())
"""


def test_changed_code_is_told_and_run_again_when_asked(place: Place) -> None:
    script, module = place.directory / "script.py", place.directory / "number.py"
    script.write_text(CODE)
    module.write_text(NUMBER)
    assert run(python(script), place.directory).stdout == "1 twice\n"
    module.write_text(NUMBER.replace("return self.x", "return 10 * self.x"))
    planned = run(tenuto("plan", script), place.directory)
    assert "done before; " in planned.stdout
    assert "number.py has changed since" in planned.stdout
    reused = run(tenuto("run", script), place.directory)
    assert reused.stdout == "1 twice\n"
    assert "note: 1 job was reused, though number.py has changed since" in reused.stderr
    alone = run(python(script), place.directory)
    assert "tenuto: 1 job was reused, though number.py has changed since" in alone.stderr
    planned = run(tenuto("plan", "--rerun-changed", script), place.directory)
    assert "2 to run once more" in planned.stdout
    again = run(tenuto("run", "--rerun-changed", script), place.directory)
    assert again.stdout == "10 twice\n", again.stderr
    assert "2 ran" in again.stderr
    quiet = run(tenuto("run", "--rerun-changed", script), place.directory)
    assert "nothing had to run" in quiet.stderr
    assert "note" not in quiet.stderr


def test_two_projects_with_a_module_of_one_name_do_not_share_results(place: Place) -> None:
    said = []
    for name in ("one", "two"):
        project = place.directory / name
        project.mkdir()
        (project / "number.py").write_text(NUMBER.replace("return self.x", f"return {name!r}"))
        script = project / f"script_{name}.py"
        script.write_text(CODE.replace('HERE / "ws"', 'HERE.parent / "ws"'))
        said.append(run(python(script), project))
    assert said[0].stdout == "one twice\n", said[0].stderr
    assert said[1].returncode == 1
    assert "one/number.py: rename one of the files" in said[1].stderr


MOVED = """
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

class Data(Config):
    path: Meta[Path]

class Train(Task):
    data: Param[Data]
    where: DataPath[Path]
    GENERATED
    def execute(self):
        (Path.cwd() / "log.txt").write_text("logged")

class Middle(Task):
    train: Param[Train]
    def execute(self): ...

class Evaluate(Task):
    middle: Param[Middle]
    n: Param[int]
    def execute(self):
        train = self.middle.train
        log = train.log.read_text() if hasattr(train, "log") else ""
        return [str(train.data.path), str(train.where), log]

if __name__ == "__main__":
    with experiment(HERE / "ws", "moved"):
        train = Train.C(data=Data.C(path=Path("PLACE")), where=Path("PLACE"))
        middle = Middle.C(train=train.submit()).submit()
        print(Evaluate.C(middle=middle, n=NUMBER).submit().job.result())
"""


def test_dependents_of_a_reused_task_see_what_the_script_says_now(place: Place) -> None:
    def written(where: str, number: int, generated: str = "") -> Path:
        path = place.directory / "moved.py"
        text = MOVED.replace("PLACE", where).replace("NUMBER", str(number)).replace("GENERATED", generated)
        path.write_text(text)
        return path

    first = run(python(written("/old", 1)), place.directory)
    assert first.stdout == "['/old', '/old', '']\n", first.stderr
    log = 'log: Meta[Path] = field(default_factory=PathGenerator("log.txt"))'
    second = run(python(written("/new", 2, log)), place.directory)
    assert second.stdout == "['/new', '/new', 'logged']\n", second.stderr


class Read(Task):
    """Says where its data lies."""

    data: Param[Path]
    others: Param[list[Path]] = []
    size: Param[int] = 1

    def execute(self) -> str:
        return str(self.data)


class Use(Task):
    """Says where the data lies of the task before it."""

    read: Param[Read]
    by: Param[str]

    def execute(self) -> str:
        return str(self.read.data)


def test_paths_do_not_count_if_the_setting_says_so(tmp_path: Path) -> None:
    here = identity(Read.C(data=Path("/here")))
    with experiment(tmp_path, "x", settings={"count_paths": False, "slots": 2}):
        first = Read.C(data=Path("/here")).submit()
        assert Use.C(read=first, by="a").submit().result() == "/here"
    with experiment(tmp_path, "x", settings={"count_paths": False, "slots": 2}):
        moved = Read.C(data=Path("/there"), others=[Path("/more")]).submit()
        assert moved.result() == "/here", "it is reused"
        assert Use.C(read=moved, by="b").submit().result() == "/there", "what uses it sees the path of now"
        assert identity(Read.C(data=Path("/here"), size=2)) != identity(moved)
        with pytest.raises(ParameterError, match="do not agree on count_paths"), experiment(tmp_path, "y"):
            pass
    assert identity(Read.C(data=Path("/here"))) == here, "outside, paths count"
    assert identity(Read.C(data=Path("/there"))) != here


def test_markers_tell_the_defaults(place: Place) -> None:
    run(python(fit(place, '"lbfgs"')), place.directory)
    (done,) = place.workspace.glob("jobs/*/*/*.done")
    assert len(json.loads(done.read_text())["record"]["defaults"]) == 16


def test_two_projects_with_a_package_of_one_name_do_not_share_results(place: Place) -> None:
    outputs = []
    for project in ("one", "two"):
        package = place.directory / project / "lab"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "models.py").write_text(
            f"from tenuto import Param, Task\n"
            f"class Fit(Task):\n    x: Param[int]\n    def execute(self):\n        return {project!r}\n"
        )
        script = place.directory / project / f"run_{project}.py"
        script.write_text(
            "from tenuto import experiment\nfrom lab.models import Fit\n"
            "if __name__ == '__main__':\n"
            f"    with experiment({str(place.workspace)!r}, {project!r}):\n"
            "        print(Fit.C(x=1).submit().result())\n"
        )
        outputs.append(run(python(script), script.parent))
    assert outputs[0].stdout == "one\n", outputs[0].stderr
    assert outputs[1].returncode == 1
    assert "two/lab/models.py would share its results with the class of the same name in" in outputs[1].stderr
