"""Owns the commands that need no experiment: doctor, demo, completion; and what holds for all of them."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tenuto.cli.commands.doctor import CheckResult, check_machine
from tenuto.cli.main import COMMANDS, loaded
from tests.experiments.scripts import environment, run, tenuto

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "src" / "tenuto" / "examples" / "sweep.py"
STARTS_QUICKLY = "rich asyncio yaml tenuto.experiments tenuto.scheduler tenuto.launchers".split()


def loaded_by(command: list[str]) -> set[str]:
    code = f"import sys; sys.argv = ['tenuto', *{command!r}]\nfrom tenuto.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\nprint(list(sys.modules))"
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    return set(ast.literal_eval(said.splitlines()[-1]))


def test_help_loads_no_heavy_part() -> None:
    loaded = loaded_by(["--help"])
    assert [name for name in STARTS_QUICKLY if name in loaded] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_and_says_what_it_does_and_how_it_exits(name: str) -> None:
    command = loaded(name)
    text = command.help or ""
    assert text
    assert name not in ("run", "plan", "doctor", "demo") or "Exit codes" in text
    parts = command.commands.values() if isinstance(command, click.Group) else [command]
    has_json = any("--json" in option.opts for part in (command, *parts) for option in part.params)
    assert has_json or name in (
        "completion",
        "skill",
        "serve",
        "node",
        "worker",
    )  # servers say it in their log


@pytest.mark.parametrize("name", "launchers node runs search token".split())
def test_the_commands_of_a_command_are_listed_in_whole_sentences_and_guessed(name: str) -> None:
    command = loaded(name)
    assert isinstance(command, click.Group)
    runner = CliRunner()
    listed = runner.invoke(command, ["--help"]).output.partition("Commands:")[2]
    assert listed
    assert "..." not in listed
    (one, *_) = sorted(command.commands)
    mistyped = runner.invoke(command, [f"{one[:2]}x{one[2:]}"])
    assert (mistyped.exit_code, f"Did you mean {one!r}?" in mistyped.output) == (2, True), mistyped.output


def test_every_command_that_tells_or_does_something_has_json() -> None:
    def without(name: str, command: click.Command) -> list[str]:
        if isinstance(command, click.Group):
            context = click.Context(command)
            inside = {one: command.get_command(context, one) for one in command.list_commands(context)}
            return [
                full for one, found in inside.items() if found for full in without(f"{name} {one}", found)
            ]
        return [] if any("--json" in option.opts for option in command.params) else [name]

    assert [full for name in COMMANDS for full in without(name, loaded(name))] == ["completion"]


def test_doctor_checks_the_machine_and_leaves_nothing(tmp_path: Path) -> None:
    checks = {check.name: check for check in check_machine(tmp_path / "not" / "yet", environment())}
    assert list(tmp_path.iterdir()) == []
    for name in (
        "tenuto",
        "python",
        "workspace",
        "locks",
        "disk",
        "pidfd",
        "inotify",
        "git",
        "gpus",
        "energy",
    ):
        assert name in checks
    assert checks["locks"].verdict is CheckResult.OK
    assert all(check.advice for check in checks.values() if check.verdict is not CheckResult.OK)


def test_doctor_warns_of_what_is_missing(tmp_path: Path) -> None:
    checks = {check.name: check for check in check_machine(tmp_path, {"PATH": str(tmp_path)})}
    assert checks["git"].verdict is CheckResult.WARN
    assert checks["gpus"].verdict is CheckResult.OK


def test_doctor_fails_where_nothing_can_be_written(require: object) -> None:
    checks = {check.name: check for check in check_machine(Path("/proc/nowhere"), environment())}
    assert checks["workspace"].verdict is CheckResult.FAIL
    assert checks["locks"].verdict is CheckResult.FAIL


def test_doctor_says_where_each_setting_comes_from(tmp_path: Path) -> None:
    (tmp_path / "tenuto.toml").write_text("\nmax_retries = 7\n")
    result = run(tenuto("doctor", "--json"), tmp_path, TENUTO_SLOTS="3")
    found = {row["setting"]: row for row in json.loads(result.stdout)["settings"]}
    assert found["max_retries"]["place"].endswith("tenuto.toml:2")
    assert found["slots"] == {"setting": "slots", "value": 3, "from": "variable", "place": "TENUTO_SLOTS"}
    assert found["grace_s"]["from"] == "default"
    text = run(tenuto("doctor"), tmp_path)
    assert "Jobs can run here." in text.stdout
    assert text.returncode == 0


def test_doctor_shows_no_password_and_folds_a_door_without_settings(tmp_path: Path) -> None:
    (tmp_path / "tenuto.toml").write_text('[database]\nurl = "postgresql://u:s3cret@db.example/d"\n')
    text = run(tenuto("doctor"), tmp_path).stdout
    found = run(tenuto("doctor", "--json"), tmp_path).stdout
    assert "s3cret" not in text + found
    assert "db.example" in text
    assert "db.example" in found
    assert "service.*" in text
    assert "service.port" in found


def test_doctor_with_broken_settings_says_so(tmp_path: Path) -> None:
    (tmp_path / "tenuto.toml").write_text("max_retrys = 7\n")
    result = run(tenuto("doctor"), tmp_path)
    assert result.returncode == 2
    assert "did you mean 'max_retries'" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_code_for_each_shell(tmp_path: Path, shell: str) -> None:
    result = run(tenuto("completion", shell), tmp_path)
    assert "_TENUTO_COMPLETE" in result.stdout
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=result.stdout, text=True, check=True)


def test_completion_knows_the_commands(tmp_path: Path) -> None:
    asked = {"_TENUTO_COMPLETE": "bash_complete", "COMP_WORDS": "tenuto d", "COMP_CWORD": "1"}
    result = run(tenuto(), tmp_path, **asked)
    assert set(result.stdout.split()) >= {"plain,doctor", "plain,demo"}


def test_there_is_one_copy_of_the_demo() -> None:
    assert (ROOT / "examples" / "sweep.py").resolve() == DEMO


@pytest.mark.slow
def test_the_demo_writes_its_script(tmp_path: Path) -> None:
    script = tmp_path / "tenuto-demo" / "sweep.py"
    script.parent.mkdir()
    (script.parent / "workspace").touch()  # where no workspace can be made nothing runs
    assert run(tenuto("demo"), tmp_path).returncode != 0
    assert script.read_text() == DEMO.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "epochs", [10, pytest.param(100, marks=pytest.mark.prove("the trainings of the script as it is shipped"))]
)
def test_the_demo_runs_and_the_second_time_everything_is_reused(tmp_path: Path, epochs: int) -> None:
    script = tmp_path / "tenuto-demo" / "sweep.py"
    if epochs < 100:
        script.parent.mkdir()
        script.write_text(
            DEMO.read_text().replace("epochs: Param[int] = 100", f"epochs: Param[int] = {epochs}")
        )
    first = run(tenuto("demo"), tmp_path)
    assert first.returncode == 0, first.stderr
    assert "0 reused, 17 ran, 0 failed" in first.stderr
    assert "Where to look next" in first.stderr
    table = [line.split() for line in first.stdout.splitlines()]
    assert table[0] == ["accuracy", "hidden", "lr"]
    assert len(table) == 9
    assert float(table[1][0].rstrip("%")) > 95
    again = run(tenuto("demo"), tmp_path)
    assert "all 17 jobs were done before, and are reused; nothing had to run" in again.stderr
    assert again.stdout == first.stdout
    script.write_text(script.read_text().replace("0.1, 0.5]", "0.1]"))
    fewer = run(tenuto("demo", "--json"), tmp_path)
    summary = json.loads(fewer.stdout)
    assert (summary["reused"], summary["ran"]) == (12, 1), "the script of the user is not written over"
