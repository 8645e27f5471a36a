"""An evaluator that was edited is another evaluator; and searches that look nothing up."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tenuto import errors, experiment
from tenuto.errors import SearchDiffers, SearchError
from tenuto.search import Evolution, GridSearch, Integer
from tenuto.search.program_commands import files_inside, files_outside
from tests.search.programs import git, programs, repository
from tests.search.tasks_for_search import Whole
from tests.search.terminal import tenuto

OUTSIDE = """
import json
print(json.dumps({"objective": 1.0, "measures": {"a": 1.0, "b": 0.0}}))
"""
FORMS = {
    "absolute": ["{python}", "{x}/evaluate.py"],
    "by itself": ["{x}/evaluate.sh"],
    "quoted": ["sh", "-c", "{python} {x}/evaluate.py"],
    "quoted twice": ["sh", "-c", "sh -c '{python} \"{x}/evaluate.py\"' | cat; true"],
    "glued": ["sh", "-c", "({python} {x}/evaluate.py;true)&&true"],
    "from its directory": ["sh", "-c", "cd {x} && {python} evaluate.py"],
    "as a module": ["env", "PYTHONPATH={x}", "{python}", "-m", "package.judge"],
    "as a directory": ["{python}", "{x}/whole"],
    "option": ["{python}", "{x}/other.py", "--config={x}/evaluate.py"],
    "of home": ["sh", "-c", "{python} ~/evaluate.py"],
    "variable": ["sh", "-c", "{python} $HOME/evaluate.py"],
    "above": ["{python}", "../../../../../x/evaluate.py"],
    "input": ["sh", "-c", "{python} < {x}/evaluate.py"],
}


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory outside the repository with an evaluator in every form."""
    folder = tmp_path / "x"
    (folder / "package").mkdir(parents=True)
    (folder / "whole").mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("evaluate.py", "package/judge.py", "whole/__main__.py", "other.py"):
        (folder / name).write_text(OUTSIDE)
    (folder / "evaluate.sh").write_text(f"#!/bin/sh\nexec {sys.executable} {folder}/evaluate.py\n")
    (folder / "evaluate.sh").chmod(0o755)
    return folder


def edit(folder: Path) -> None:
    """Changes all that could be meant, without changing what it prints."""
    for path in folder.rglob("evaluate.*"):
        path.write_text(path.read_text() + "# fixed\n")
    for name in ("package/judge.py", "whole/__main__.py"):
        (folder / name).write_text((folder / name).read_text() + "# fixed\n")


@pytest.mark.parametrize("form", FORMS)
def test_an_edited_evaluator_is_refused_by_its_search_and_reused_by_no_other(
    tmp_path: Path, outside: Path, form: str
) -> None:
    repository(tmp_path)
    words = [word.replace("{x}", str(outside)) for word in FORMS[form]]
    given: dict[str, Any] = {"evaluate": words, "max_total_jobs": 2}
    first = programs(tmp_path, confine="none", **given).run(slots=1)
    assert (first.succeeded, first.reused) == (2, 0), first.rows()
    same = programs(tmp_path, confine="none", name="same", **given).run(slots=1)
    assert same.reused == 2
    edit(outside)
    with pytest.raises(SearchDiffers, match=r"evaluators\."):
        programs(tmp_path, confine="none", **given).open()
    other = programs(tmp_path, confine="none", name="other", **given).run(slots=1)
    assert (other.succeeded, other.reused) == (2, 0), other.rows()


@pytest.mark.parametrize("words", [["python3", "evaluate.py"], ["sh", "-c", "cd . && python3 ./evaluate.py"]])
def test_an_evaluator_of_the_repository_is_that_of_the_root_commit(tmp_path: Path, words: list[str]) -> None:
    path = repository(tmp_path)
    given: dict[str, Any] = {"evaluate": words, "max_total_jobs": 2}
    assert programs(tmp_path, confine="none", **given).run(slots=1).succeeded == 2
    mended = (path / "evaluate.py").read_text() + "# fixed\n"
    (path / "evaluate.py").write_text(mended)  # which no candidate sees before it is committed
    assert programs(tmp_path, confine="none", name="b", **given).run(slots=1).reused == 2
    (path / "unrelated").write_text("x")
    git(path, "add", "unrelated")
    git(path, "commit", "-qm", "unrelated")
    assert programs(tmp_path, confine="none", **given).run(slots=1).scheduled == 2  # goes on from its root
    git(path, "commit", "-qam", "fixed")
    with pytest.raises(SearchDiffers, match=r"evaluators\.evaluate\.py was"):
        programs(tmp_path, confine="none", **given).open()
    assert programs(tmp_path, confine="none", name="c", **given).run(slots=1).reused == 0


def test_an_evaluator_of_openevolve_that_was_edited_is_refused(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("X = 1\n")
    (tmp_path / "e.py").write_text("def evaluate(path):\n    return {'combined_score': 1.0}\n")
    words = ["--program", "program.py", "--evaluator", "e.py", "--agent", "true", "-w", "w"]
    assert tenuto(tmp_path, "evolve", *words, "--max-total", "1").returncode == 0
    assert tenuto(tmp_path, "evolve", *words, "--max-total", "1").returncode == 0
    (tmp_path / "e.py").write_text("def evaluate(path):\n    return {'combined_score': 2.0}\n")
    done = tenuto(tmp_path, "evolve", *words, "--max-total", "3")
    assert done.returncode == 2
    assert f"evaluators.{tmp_path / 'e.py'} was" in done.stderr


def test_an_evaluator_that_is_edited_while_the_search_runs_judges_no_further_candidate(
    tmp_path: Path, outside: Path
) -> None:
    repository(tmp_path)
    agent = tmp_path / "agent.sh"
    agent.write_text(f"echo '# x' >> program.py; echo '# fixed' >> {outside}/evaluate.py\n")
    given: dict[str, Any] = {
        "evaluate": ["{python}", f"{outside}/evaluate.py"],
        "command": ["sh", str(agent)],
    }
    evolution = programs(tmp_path, confine="none", max_total_jobs=2, **given)
    result = evolution.run(slots=1)
    assert "the evaluator is not that of the search" in result.rows()[1]["message"]
    evolution = programs(tmp_path, confine="none", name="b", max_total_jobs=3, **given)
    assert evolution.enqueue({"commit": "HEAD"}) == 1  # the root, which the search begins with anyway
    (outside / "evaluate.py").write_text(OUTSIDE + "# another\n")
    with pytest.raises(SearchError, match=r"the evaluator changed while its search runs: .*evaluate\.py"):
        evolution.enqueue({"commit": "HEAD"})
    evolution.close()


@pytest.mark.parametrize("word", ["{x}/log", "--out={x}/new"])
def test_an_evaluation_that_writes_a_file_of_its_own_command_fails_with_the_remedy(
    tmp_path: Path, outside: Path, word: str
) -> None:
    repository(tmp_path)
    (outside / "log").write_text("")
    (outside / "evaluate.py").write_text(
        OUTSIDE + "import sys\nopen(sys.argv[1].split('=')[-1], 'a').write('x')\n"
    )
    words = ["{python}", f"{outside}/evaluate.py", word.replace("{x}", str(outside))]
    result = programs(tmp_path, confine="none", evaluate=words, max_total_jobs=2).run(slots=1)
    assert (result.reason, result.scheduled) == ("FAILING", 1)
    assert "name it in a script" in (result.message or "")
    shell = ["sh", "-c", f"echo x >> {outside}/log; python3 {outside}/other.py 2>{outside}/new"]
    assert (
        programs(tmp_path, confine="none", name="b", evaluate=shell, max_total_jobs=2).run(slots=1).succeeded
        == 2
    )


def test_a_command_names_its_files_and_no_others(tmp_path: Path, outside: Path) -> None:
    files = [
        "evaluate.py",
        "tests/judge.py",
        "tests/data.csv",
        "package/judge.py",
        "program.py",
        "a b.py",
        "__main__.py",
    ]

    def inside(*words: str) -> list[str]:
        return files_inside([words], files)

    assert inside("python", "./evaluate.py") == ["evaluate.py"]
    assert inside("sh", "-c", "cd tests; python judge.py --data=data.csv") == files[1:3]
    assert (
        inside("python", "-m", "package.judge") == inside("python", "-mpackage.judge") == ["package/judge.py"]
    )
    assert inside("python", "{directory}/program.py") == []
    assert inside("sh", "-c", "python 'a b.py") == [] != inside("sh", "-c", "python 'a b.py'")
    checkout = str(tmp_path / "w" / "jobs" / "t" / "any" / "checkout")
    assert files_outside([[sys.executable, "-c", "1"], ["cat", "/proc/uptime", "/dev/null"]], checkout) == {}
    evaluate = str(outside / "evaluate.py")
    assert list(files_outside([["python", evaluate, evaluate]], checkout)) == [evaluate]
    assert files_outside([["python", evaluate]], checkout, 3) == {evaluate: f"{len(OUTSIDE)} bytes"}


def whole(tmp_path: Path, name: str, **options: Any) -> Evolution:
    task = Whole.C(log=str(tmp_path / "log"))
    given: dict[str, Any] = {"space": {"n": Integer(1, 4)}, "sampler": GridSearch(), **options}
    return Evolution(name, task, workdir=tmp_path / "w", **given)


def test_a_search_with_reuse_false_looks_nothing_up(tmp_path: Path) -> None:
    with experiment(tmp_path / "w", "xp"):
        Whole.C(n=4, log=str(tmp_path / "log")).submit()
    whole(tmp_path, "one", space={"n": Integer(1, 3)}).run(slots=2)
    ran = len((tmp_path / "log").read_text().splitlines())
    again = whole(tmp_path, "two", reuse=False).run(slots=2)
    assert (again.succeeded, again.reused) == (4, 0)
    assert len((tmp_path / "log").read_text().splitlines()) == ran * 2
    assert whole(tmp_path, "two", reuse=False).run(slots=2).scheduled == 4  # its own are known to it
    with pytest.raises(SearchDiffers, match="reuse"):
        whole(tmp_path, "two").open()
    assert tenuto(tmp_path, "search", "remove", "two", "-w", "w", "--yes").returncode == 0
    anew = whole(tmp_path, "two", reuse=False).run(slots=2)
    assert (anew.succeeded, anew.reused) == (4, 0)
    assert len((tmp_path / "log").read_text().splitlines()) == ran * 3
    assert whole(tmp_path, "three").run(slots=2).reused == 3  # what others know is looked up as before


HELPERS = {
    "import helper": "helper.py",
    "from helper import X": "helper.py",
    "from folder import helper": "folder/helper.py",
    "import folder.helper as h": "folder/helper.py",
    "from outer import Y": "deep/helper.py",
    "def late():\n    import helper": "helper.py",
}


@pytest.mark.parametrize("line", HELPERS)
def test_a_module_that_an_evaluator_imports_from_beside_it_is_a_part_of_it(
    tmp_path: Path, outside: Path, line: str
) -> None:
    repository(tmp_path)
    for folder in ("folder", "deep"):
        (outside / folder).mkdir()
        (outside / folder / "__init__.py").write_text("")
    (outside / "outer.py").write_text("from deep.inner import Y\n")
    (outside / "deep" / "inner.py").write_text("import json\nfrom .helper import X as Y\n")
    helper = outside / HELPERS[line]
    helper.write_text("X = 1\n")
    (outside / "evaluate.py").write_text(f"{line}\n{OUTSIDE}")
    given: dict[str, Any] = {"evaluate": ["{python}", f"{outside}/evaluate.py"], "max_total_jobs": 1}
    assert programs(tmp_path, confine="none", **given).run(slots=1).succeeded == 1
    helper.write_text("X = 2\n")
    with pytest.raises(SearchDiffers, match=r"evaluators\..*helper\.py was"):
        programs(tmp_path, confine="none", **given).open()
    other = programs(tmp_path, confine="none", name="other", **given).run(slots=1)
    assert (other.succeeded, other.reused) == (1, 0)


def test_the_command_line_looks_nothing_up_when_told(tmp_path: Path) -> None:
    repository(tmp_path)
    words = [
        "--repo",
        "repository",
        "--agent",
        "sh -c 'echo x >> program.py'",
        "--evaluate",
        "echo 0.5",
        "-w",
        "w",
    ]
    for name, more, reused in (("a", [], 0), ("b", [], 2), ("c", ["--no-reuse"], 0)):
        done = tenuto(tmp_path, "evolve", *more, *words, "--name", name, "--max-total", "2", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)[0]["reused"] == reused


def test_modules_of_tenuto_itself_are_no_part_of_an_evaluator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(errors.__file__).parents[1]))
    evaluator = tmp_path / "evaluator.py"
    evaluator.write_text("import tenuto.search\n")
    words = ["{python}", "-m", "tenuto.search.openevolve_evaluator", str(evaluator)]
    assert list(files_outside([words], str(tmp_path / "job" / "checkout"))) == [str(evaluator)]
