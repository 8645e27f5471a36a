"""Owns the promise that a script's class has one identity, however it is started, and is found again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto import Config, Param, identity, state_dict
from tenuto.errors import ClassNotFound
from tenuto.tasks.location import locate

SCRIPT = """\
import enum, json, sys
from tenuto import Config, Param, Task, identity, state_dict


class Kind(enum.Enum):
    GOOD = 1


class Data(Config):
    name: Param[str]

    class Inner(Config):
        size: Param[int] = 1


class Train(Task):
    data: Param[Data]
    kind: Param[Kind] = Kind.GOOD
    inner: Param[Data.Inner] = Data.Inner.C(size=2)


def report():
    task = Train.C(data=Data.C(name="mnist"))
    return {"identity": identity(task), "state": state_dict(task)}


if __name__ == "__main__":
    print(json.dumps(report()))
"""

READ = """\
import json, sys
import tenuto
from tenuto.tasks.location import be_process_of_a_job
be_process_of_a_job()
config = tenuto.from_state_dict(json.load(sys.stdin))
module = sys.modules[type(config).__module__]
found = {"identity": tenuto.identity(config), "module": module.__name__, "file": module.__file__}
print(json.dumps(found))
"""


def run(*command: str | Path, cwd: Path, **options: Any) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1", **options.pop("env", {})},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **options,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def report(*command: str | Path, cwd: Path, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*command, cwd=cwd, **options))
    return found


def tenuto_run(script: str | Path) -> tuple[str | Path, ...]:
    return "-c", "import sys; from tenuto.cli import main; main()", "run", script


IMPORT = "import json, {0} as m; print(json.dumps(m.report()))"


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """A folder with a script that belongs to no package."""
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def packaged(tmp_path: Path) -> Path:
    """A folder with a script inside two packages."""
    folder = tmp_path / "pkg" / "sub"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "__init__.py").touch()
    (folder.parent / "__init__.py").touch()
    return tmp_path


def test_a_script_has_one_identity_however_it_is_started(alone: Path) -> None:
    (alone / "elsewhere").mkdir()
    ways = {
        "python train.py": report("train.py", cwd=alone),
        "python -m train": report("-m", "train", cwd=alone),
        "an absolute path": report(alone / "train.py", cwd=alone / "elsewhere"),
        "a relative path": report("../train.py", cwd=alone / "elsewhere"),
        "tenuto run": report(*tenuto_run("train.py"), cwd=alone),
        "tenuto run elsewhere": report(*tenuto_run("../train.py"), cwd=alone / "elsewhere"),
        "imported": report("-c", IMPORT.format("train"), cwd=alone),
        "runpy": report("-c", "import runpy; runpy.run_path('train.py', run_name='__main__')", cwd=alone),
    }
    assert_same(ways)
    assert ways["imported"]["state"]["objects"][0]["type"] == "train.Data"


def test_a_script_in_packages_has_one_identity_however_it_is_started(packaged: Path) -> None:
    folder = packaged / "pkg" / "sub"
    ways = {
        "python pkg/sub/train.py": report("pkg/sub/train.py", cwd=packaged),
        "python train.py": report("train.py", cwd=folder),
        "python -m pkg.sub.train": report("-m", "pkg.sub.train", cwd=packaged),
        "tenuto run": report(*tenuto_run("pkg/sub/train.py"), cwd=packaged),
        "tenuto run there": report(*tenuto_run("train.py"), cwd=folder),
        "imported": report("-c", IMPORT.format("pkg.sub.train"), cwd=packaged),
    }
    assert_same(ways)
    assert ways["imported"]["state"]["objects"][0]["type"] == "pkg.sub.train.Data"


def assert_same(ways: dict[str, dict[str, Any]]) -> None:
    assert {name: found["identity"] for name, found in ways.items()} == dict.fromkeys(
        ways, ways["imported"]["identity"]
    )
    assert {name: found["state"] for name, found in ways.items()} == dict.fromkeys(
        ways, ways["imported"]["state"]
    )


def test_the_main_file_of_a_folder_is_named_with_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "__main__.py").write_text(SCRIPT)
    ways = [report("study", cwd=tmp_path), report("study/__main__.py", cwd=tmp_path)]
    ways.append(report("-m", "study", cwd=tmp_path))
    (folder / "__init__.py").touch()
    ways += [report("-m", "study", cwd=tmp_path), report("study/__main__.py", cwd=tmp_path)]
    assert {way["state"]["objects"][0]["type"] for way in ways} == {"study.__main__.Data"}
    assert len({way["identity"] for way in ways}) == 1


def test_a_child_of_multiprocessing_sees_the_same_identity(alone: Path) -> None:
    (alone / "parallel.py").write_text(
        SCRIPT.replace("print(json.dumps(report()))", "")
        + "    import multiprocessing\n"
        + "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        + "        print(json.dumps([report(), pool.apply(report)]))\n"
    )
    here, there = json.loads(run("parallel.py", cwd=alone))
    assert here == there


@pytest.mark.parametrize(
    "name", ["my-script.py", "01_first.py", "v1.2.py", "test.py", "été.py", "with space.py"]
)
def test_a_script_of_any_name_is_found_by_another_process(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / name).write_text(SCRIPT)
    written = report(name, cwd=folder)
    read = report("-c", READ, cwd=tmp_path, input=json.dumps(written["state"]))
    assert read["identity"] == written["identity"]
    assert read["file"] == str(folder / name)


@pytest.mark.parametrize("start", [("pkg/sub/train.py",), ("-m", "pkg.sub.train")], ids=" ".join)
def test_a_script_in_packages_is_found_by_another_process(start: tuple[str, ...], packaged: Path) -> None:
    (packaged / "elsewhere").mkdir()
    written = report(*start, cwd=packaged)
    for cwd in (packaged, packaged / "elsewhere"):
        read = report("-c", READ, cwd=cwd, input=json.dumps(written["state"]))
        assert read["identity"] == written["identity"]
        assert read["module"] == "pkg.sub.train"


def test_a_script_is_never_run_as_main_by_a_reader_of_its_class(alone: Path) -> None:
    written = report("train.py", cwd=alone)
    script = alone / "train.py"
    script.write_text(script.read_text() + "    raise SystemExit('run as a script')\n")
    assert report("-c", READ, cwd=alone, input=json.dumps(written["state"]))["module"] == "train"


def test_the_script_itself_reads_what_it_stored(alone: Path) -> None:
    script = alone / "train.py"
    script.write_text(
        script.read_text()
        + "    from tenuto import from_state_dict\n"
        + "    assert type(from_state_dict(report()['state'])) is Train.C\n"
        + "    assert 'train' not in sys.modules\n"
    )
    starts = (("train.py",), ("-m", "train"), tenuto_run("train.py"))
    assert len({report(*start, cwd=alone)["identity"] for start in starts}) == 1


def test_another_module_of_that_name_does_not_hide_a_script(alone: Path) -> None:
    written = report("train.py", cwd=alone)
    (alone / "other").mkdir()
    (alone / "other" / "train.py").write_text("raise SystemExit('the wrong module')\n")
    read = report("-c", READ, cwd=alone / "other", input=json.dumps(written["state"]))
    assert read["file"] == str(alone / "train.py")


def test_a_class_whose_file_is_gone_is_refused_with_a_sentence(alone: Path) -> None:
    written = report("train.py", cwd=alone)
    (alone / "train.py").unlink()
    with pytest.raises(
        AssertionError, match=r"ClassNotFound: no class Data is declared in module train .*renamed"
    ):
        report("-c", READ, cwd=alone, input=json.dumps(written["state"]))


WITHOUT_A_FILE = textwrap.dedent("""
    from tenuto import Config, Param, identity, state_dict
    from tenuto.errors import ClassNotFound
    from tenuto.tasks.location import locate
    class Loose(Config):
        x: Param[int]
    config = Loose.C(x=1)
    assert config.instance().x == 1
    identity(config)
    for ask in (lambda: locate(Loose), lambda: state_dict(config), lambda: state_dict([config])):
        try:
            ask()
        except ClassNotFound as error:
            print(error)
""")


@pytest.mark.parametrize("start", ["-c", "stdin"])
def test_a_class_without_a_file_is_refused_with_a_sentence(start: str, tmp_path: Path) -> None:
    if start == "-c":
        said = run("-c", WITHOUT_A_FILE, cwd=tmp_path)
    else:
        said = run("-", cwd=tmp_path, input=WITHOUT_A_FILE)
    sentences = said.splitlines()
    assert len(sentences) == 3
    assert len(set(sentences)) == 1
    assert sentences[0] == (
        "Loose is defined at a prompt, so a job could not import it: "
        "move the class to a .py file, or to a notebook (instance() works without)"
    )


def test_a_class_inside_a_function_is_refused_with_a_sentence() -> None:
    class Hidden(Config):
        x: Param[int]

    config = Hidden.C(x=1)
    assert identity(config)
    assert config.instance().x == 1
    asks: list[Callable[[], object]] = [lambda: locate(Hidden), lambda: state_dict(config)]
    for ask in asks:
        with pytest.raises(
            ClassNotFound, match=r"Hidden is defined inside a function.*move the class to the top"
        ):
            ask()


def test_a_class_is_found_in_a_package_without_init_that_was_not_imported(tmp_path: Path) -> None:
    folder = tmp_path / "plain" / "inner"
    folder.mkdir(parents=True)
    (folder / "helper.py").write_text("SIZE = 3\n")
    (folder / "tasks.py").write_text(
        "from tenuto import Config, Param\n"
        "from .helper import SIZE\n\n"
        "class Found(Config):\n"
        "    size: Param[int] = SIZE\n"
    )
    program = (
        "from tenuto.tasks.location import Location, find_class\n"
        f"print(find_class(Location('plain.inner.tasks', 'Found', {str(folder / 'tasks.py')!r})).C().size)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "3\n", done.stderr
