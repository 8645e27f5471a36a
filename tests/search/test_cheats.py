"""What agents and programs try in order to look better than they are, or to get at what is not theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto.search.program_commands import CommandRules, imported_names, module_name, places_of
from tests.search.programs import git, programs, repository, state_of
from tests.search.terminal import tenuto

IMPORTING = """
import json, os, re, sys
sys.path.insert(0, os.getcwd())
import program
found = {"objective": program.A, "measures": {"a": program.A, "b": program.B}}
found["artifacts"] = {"said": str(getattr(program, "SAID", ""))}
print(json.dumps(found))
"""

HELPED = """
import json
from helper import worth
values = {}
exec(open("program.py").read(), values)
print(json.dumps({"objective": worth(values["A"]), "measures": {"a": 1, "b": 1}}))
"""


@pytest.fixture
def confined(require: Callable[[str], None]) -> None:
    require("bubblewrap")


def cheat(tmp_path: Path, program: str, agent: str = "", **options: Any) -> dict[str, Any]:
    """What became of the candidate whose program is `program`; `agent`: what its agent does besides."""
    path = repository(tmp_path, options.pop("evaluator", IMPORTING))
    before = state_of(path)
    text = f"from pathlib import Path\nPath('program.py').write_text({program!r})\n{agent}\n"
    result = programs(tmp_path, text, max_total_jobs=2, **options).run(slots=1)
    row: dict[str, Any] = result.rows()[1]
    assert state_of(path) == before
    return row


@pytest.mark.parametrize("score", ["float('nan')", "float('inf')", "'1e9'", "True", "10 ** 400", "None"])
def test_a_score_that_is_no_number_fails(tmp_path: Path, score: str) -> None:
    row = cheat(tmp_path, f"A = {score}\nB = 0.0\n")
    assert (row["status"], row["objective"]) == ("FAILED", None)


def test_an_edited_evaluator_is_put_back(tmp_path: Path) -> None:
    edit = "Path('evaluate.py').write_text('print(1e9)')"
    assert cheat(tmp_path, "A = 2.0\nB = 0.0\n", edit)["objective"] == 2.0


@pytest.mark.parametrize("name", ["checks/re.py", "checks/helper.py", "checks/json/__init__.py", "yaml.py"])
def test_a_module_beside_the_evaluator_or_in_place_of_an_installed_one_fails(
    tmp_path: Path, name: str
) -> None:
    path = repository(tmp_path)
    (path / "checks").mkdir()
    (path / "checks" / "evaluate.py").write_text(
        f"try:\n    import helper\nexcept ImportError: pass\n{IMPORTING}"
    )
    git(path, "add", "checks")
    git(path, "commit", "-q", "-m", "checks", "checks")
    agent = f"""
import os
from pathlib import Path
Path("program.py").write_text("A = 2.0\\nB = 0.0\\n")
os.makedirs(os.path.dirname({name!r}) or ".", exist_ok=True)
Path({name!r}).write_text('print(1e9); import os; os._exit(0)')
"""
    evaluate = [sys.executable, "checks/evaluate.py"]
    row = programs(tmp_path, agent, evaluate=evaluate, max_total_jobs=2).run(slots=1).rows()[1]
    assert (row["status"], "would take the place of" in row["message"]) == ("FAILED", True), row


@pytest.mark.parametrize("words", [["checks/evaluate.py"], ["-m", "checks.evaluate"]])
def test_a_compiled_module_is_no_part_of_a_program(tmp_path: Path, words: list[str]) -> None:
    path = repository(tmp_path)
    (path / "checks").mkdir()
    (path / "checks" / "evaluate.py").write_text("import os, sys\nsys.path.insert(0, 'checks')\n" + HELPED)
    (path / "checks" / "helper.py").write_text("def worth(a):\n    return a\n")
    git(path, "add", "checks")
    git(path, "commit", "-q", "-m", "checks", "checks")
    agent = """
import py_compile
from pathlib import Path
Path("program.py").write_text("A = 2.0\\nB = 0.0\\n")
Path("lie.py").write_text("def worth(a):\\n    return 1e9\\n")
Path("other.py").write_text('print(\\'{\\"objective\\": 1e9, \\"measures\\": {\\"a\\": 1, \\"b\\": 1}}\\')')
for source, name in (("lie", "helper"), ("other", "evaluate")):
    target = f"checks/__pycache__/{name}.{__import__('sys').implementation.cache_tag}.pyc"
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(f"{source}.py", target, invalidation_mode=unchecked)
    Path(f"{source}.py").unlink()
"""
    evaluate = [sys.executable, *words]
    row = programs(tmp_path, agent, evaluate=evaluate, max_total_jobs=2).run(slots=1).rows()[1]
    assert row["objective"] == 2.0, row
    assert "pycache" not in git(path, "ls-tree", "-r", "--name-only", row["solution"])


@pytest.mark.parametrize("name", ["re.py", "json.py", "json/__init__.py", "sitecustomize.py"])
def test_a_module_that_takes_the_place_of_another_fails(tmp_path: Path, name: str) -> None:
    lie = 'print(\'{\\"objective\\": 1e9, \\"measures\\": [1, 1]}\'); import os; os._exit(0)'
    shadow = f"import os\nos.makedirs(os.path.dirname('{name}') or '.', exist_ok=True)\n"
    row = cheat(tmp_path, "A = 2.0\nB = 0.0\n", f"{shadow}Path('{name}').write_text({lie!r})")
    assert row["objective"] in (None, 2.0)
    assert row["objective"] == 2.0 or "would take the place of" in row["message"]


def test_modules_are_known_by_their_files_and_imports() -> None:
    assert [
        module_name(path) for path in ("re.py", "a/__init__.py", "a/b.py", "x.txt", "n.cpython-311.so")
    ] == [
        "re",
        "a",
        None,
        None,
        "n",
    ]
    assert imported_names("import a.b, c\nfrom d.e import f\nfrom . import g") == {"a", "c", "d"}
    assert imported_names("(") == set()


@pytest.mark.usefixtures("confined")
def test_a_program_sees_no_variables_no_network_and_no_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "stolen")
    monkeypatch.syspath_prepend(tmp_path / "repository")  # as for a script that lies there
    monkeypatch.setenv("GIVEN", "given")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "token").write_text("stolen")
    look = f"""
import os, socket
A, B, SAID = 3.0, 0.0, []
for name in ("SECRET_KEY", "GIVEN", "EVOLVE_COMMIT"):
    SAID.append(name in os.environ)
def tried(act):
    try:
        act()
        SAID.append(True)
    except OSError:
        SAID.append(False)
tried(lambda: open({str(tmp_path / "secret" / "token")!r}))
tried(lambda: open({str(tmp_path / "w" / "search.db")!r}))
tried(lambda: open({str(tmp_path / "repository" / "notes.txt")!r}))
tried(lambda: open("/etc/tenuto-was-here", "w"))
tried(lambda: open({str(tmp_path / "agent.py")!r}))
tried(lambda: socket.create_connection(("127.0.0.1", 1), 1))
SAID.append(len(os.listdir("/sys/class/net")) > 1 if os.path.isdir("/sys/class/net") else False)
SAID.append(str(os.getppid()) != "1" and os.path.exists("/proc/{os.getpid()}/environ"))
tried(lambda: open("mine", "w"))
"""
    row = cheat(tmp_path, look, pass_variables=["GIVEN"])
    job = next((tmp_path / "w").glob(row["directory"]))
    said = row["status"], row["message"]
    assert row["status"] == "SUCCEEDED", said
    assert job.is_dir()
    found = tenuto(tmp_path, "search", "best", "stir", "-w", "w").stdout
    wanted = [False, True, True, *[False] * 8, True]
    assert str(wanted) in found, found


@pytest.mark.usefixtures("confined")
def test_an_agent_has_the_network_and_the_home_it_was_given(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config").write_text("7")
    agent = f"""
import os, socket
listener = socket.create_server(("127.0.0.1", 0))
socket.create_connection(listener.getsockname(), 5)
value = Path(os.environ["HOME"], "config").read_text()
Path(os.environ["HOME"], "left").write_text("x")
Path("program.py").write_text(f"A = {{value}}.0\\nB = 0.0\\n")
try:
    Path({str(tmp_path / "repository" / "notes.txt")!r}).write_text("mine")
    Path("program.py").write_text("A = 99.0\\nB = 0.0\\n")
except OSError:
    pass
"""
    row = cheat(tmp_path, "A = 1.5\nB = 0.0\n", agent, agent_home=home)
    assert row["objective"] == 7.0, row
    assert (home / "left").exists()


@pytest.mark.parametrize("confine", ["auto", "none"])
@pytest.mark.parametrize(
    "agent",
    [
        "import shutil; shutil.rmtree('.git')",
        "import shutil, os; shutil.rmtree('.git'); os.symlink({git!r}, '.git')",
        "import subprocess; subprocess.run(['git', 'push', {path!r}, '+HEAD:refs/heads/other'])",
        "import subprocess; subprocess.run(['git', 'push', 'origin', '+HEAD:refs/heads/main'])",
    ],
    ids=["removed", "linked", "push", "origin"],
)
def test_what_an_agent_does_to_git_has_no_effect(
    tmp_path: Path, require: Callable[[str], None], agent: str, confine: str
) -> None:
    if "{path" in agent:
        if confine == "none":
            pytest.skip("without a sandbox an agent may do what its user may")
        require("bubblewrap")
    path = tmp_path / "repository"
    done = agent.format(git=str(path / ".git"), path=str(path))
    row = cheat(tmp_path, "A = 2.0\nB = 0.0\n", done, confine=confine)
    assert row["objective"] == 2.0, row
    assert git(path, "for-each-ref", "refs/heads/other") == ""


@pytest.mark.usefixtures("confined")
def test_a_sandbox_that_cannot_be_started_pauses_the_search(tmp_path: Path) -> None:
    repository(tmp_path)
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "bwrap").write_text(
        f'#!/bin/sh\ntest -e {tmp_path}/broken && {{ echo "bwrap: no namespaces" >&2; exit 1; }}\n'
        f'exec /usr/bin/bwrap "$@"\n'
    )
    (broken / "bwrap").chmod(0o755)
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from tests.search.programs import programs
if __name__ == "__main__":
    there = Path({str(tmp_path)!r})
    first = programs(there, max_total_jobs=1).run(slots=1)
    (there / "broken").touch()
    result = programs(there, max_total_jobs=30).run(slots=1)
    print(result.state, result.message)
"""
    (tmp_path / "run.py").write_text(script)
    environment = {**os.environ, "PATH": f"{broken}:{os.environ['PATH']}"}
    ran = subprocess.run(
        [sys.executable, tmp_path / "run.py"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=100,
        check=False,
    )
    assert "PAUSED" in ran.stdout or "not confined" in ran.stderr, (ran.stdout, ran.stderr)


def test_the_home_of_a_person_is_not_shown_for_a_script_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "agent.py").write_text("")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "agent.py").write_text("")
    rules = CommandRules(True)
    wide = places_of(["sh", str(tmp_path / "agent.py")], rules, "/bin:/usr/bin")
    assert str(tmp_path) not in wide
    assert str(tmp_path / "agent.py") in wide
    assert str(tmp_path / "tools") in places_of(
        ["sh", str(tmp_path / "tools" / "agent.py")], rules, "/bin:/usr/bin"
    )


@pytest.mark.parametrize("link", ["json", "helper", "checks/json"])
def test_a_link_to_a_package_that_takes_the_place_of_another_fails(tmp_path: Path, link: str) -> None:
    path = repository(tmp_path, "import helper\n" + IMPORTING)
    (path / "checks").mkdir()
    (path / "checks" / "evaluate.py").write_text("try:\n    import helper\nexcept ImportError: pass\n")
    git(path, "add", "checks")
    git(path, "commit", "-q", "-m", "checks", "checks")
    agent = f"""
import os
from pathlib import Path
Path("program.py").write_text("A = 2.0\\nB = 0.0\\n")
os.makedirs("checks/lib" if "/" in {link!r} else "lib")
Path("lib/__init__.py" if os.path.isdir("lib") else "checks/lib/__init__.py").write_text("print(1e9)")
os.symlink("lib", {link!r})
"""
    evaluate = [sys.executable, "-c", "print(1.0)", "checks/evaluate.py", "evaluate.py"]
    options: dict[str, Any] = {"sampler": None, "evaluate": evaluate, "max_total_jobs": 2}
    row = programs(tmp_path, agent, **options).run(slots=1).rows()[1]
    assert (row["status"], "would take the place of" in row["message"]) == ("FAILED", True), row


@pytest.mark.parametrize("name", ["usercustomize.py", "sitecustomize.py", "conftest.py"])
def test_a_module_that_python_or_pytest_imports_by_its_name_fails(tmp_path: Path, name: str) -> None:
    repository(tmp_path, "print(1.0)")
    edit = f"open('program.py', 'w').write('A = 2')\nopen({name!r}, 'w').write('print(1e9)')"
    evaluate = ["sh", "-c", f"PYTHONPATH=. {sys.executable} evaluate.py # pytest"]
    evolution = programs(tmp_path, edit, evaluate=evaluate, sampler=None, max_total_jobs=2)
    row = evolution.run(slots=1).rows()[1]
    assert (row["status"], "would take the place of" in row["message"]) == ("FAILED", True), row


@pytest.mark.parametrize("cost", ["float('nan')", "-1", "'2'"])
def test_a_cost_that_no_budget_can_count_fails(tmp_path: Path, cost: str) -> None:
    said = IMPORTING.replace("print(", f'found["cost"] = {cost} if program.A > 1 else 0\nprint(')
    row = cheat(tmp_path, "A = 2.0\nB = 0.0\n", evaluator=said)
    assert (row["status"], "the cost is" in row["message"], row["cost"]) == ("FAILED", True, 0)


def test_a_report_of_a_cost_below_0_fails(tmp_path: Path) -> None:
    report = "import os\nPath(os.environ['EVOLVE_REPORT']).write_text('{\"cost\": -1}')"
    row = cheat(tmp_path, "A = 2.0\nB = 0.0\n", report)
    assert (row["status"], "reported a cost" in row["message"], row["cost"]) == ("FAILED", True, 0)
