"""Tokens as a script uses them: declared by an experiment, held by its tasks, under both launchers."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tenuto import CounterToken, Meta, Output, RunMode, Task, experiment
from tenuto.errors import TokenError
from tenuto.launchers.devices import visible_devices
from tenuto.settings import Settings, load_settings

from .scripts import Place, environment, eventually, python, run, tenuto

BOTH = pytest.mark.parametrize("launcher", ["spawn", "warm"])
TASKS = """
import os, time
from pathlib import Path
from tenuto import *

HERE = Path(__file__).parent

def note(text):
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(f"{text}\\n")

class Use(Task):
    name: Param[str]
    def execute(self):
        note(f"enter {self.name}")
        time.sleep(0.05)
        note(f"leave {self.name}")
        links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd not in "012"
                 and os.path.exists(f"/proc/self/fd/{fd}")]
        assert not any(link.endswith(".units") for link in links), links
        return os.environ.get("CUDA_VISIBLE_DEVICES")
"""


def tokens_path(place: Place) -> dict[str, str]:
    return {"TENUTO_TOKENS_PATH": str(place.directory / "tokens"), "TENUTO_SLOTS": "4"}


@BOTH
def test_tasks_hold_their_tokens_while_they_run(place: Place, launcher: str) -> None:
    script = place.script(
        """
        with experiment("ws", "tokens") as xp:
            token = xp.token("licences", 2)
            assert isinstance(token, CounterToken)
            for n in range(4):
                token(1, Use.C(name=f"small-{n}")).submit()
            large = Use.C(name="large")
            large.add_dependencies(token.dependency(2))
            large.submit()
            Use.C(name="free").submit()
        """.replace("\n        ", "\n"),
        tasks=TASKS,
    )
    result = run(python(script), place.directory, **tokens_path(place), TENUTO_LAUNCHER=launcher)
    assert result.returncode == 0, result.stderr
    inside: list[str] = []
    for line in place.ledger():
        what, name = line.split()
        (inside.append if what == "enter" else inside.remove)(name)
        used = sum(2 if name == "large" else 1 for name in inside if name != "free")
        assert used <= 2, place.ledger()
    assert len(place.ledger()) == 12


@BOTH
def test_each_gpu_job_gets_devices_of_its_own(place: Place, launcher: str) -> None:
    script = place.script(
        """
        with experiment("ws", "gpus") as xp:
            gpus = xp.gpu_token()
            assert gpus.count == 3
            ones = [gpus(1, Use.C(name=f"one-{n}")).submit() for n in range(4)]
            pair = gpus(2, Use.C(name="pair")).submit()
            seen = [one.job.result() for one in ones]
            assert set(seen) <= {"2", "5", "7"}, seen
            assert sorted(pair.job.result().split(",")) in (["2", "5"], ["2", "7"], ["5", "7"])
            try:
                gpus(4, Use.C(name="more")).submit()
            except TenutoError as error:
                print(error)
        """.replace("\n        ", "\n"),
        tasks=TASKS,
    )
    variables = {**tokens_path(place), "TENUTO_LAUNCHER": launcher, "CUDA_VISIBLE_DEVICES": "5,7,2"}
    result = run(python(script), place.directory, **variables)
    assert result.returncode == 0, result.stderr
    assert "it has only 3" in result.stdout


@BOTH
def test_a_request_beyond_the_capacity_is_refused_where_it_is_submitted(place: Place, launcher: str) -> None:
    script = place.script(
        """
        with experiment("ws", "tokens") as xp:
            task = xp.token("a", 4)(3, Use.C(name="x"))
            xp.token("a", 2)
            task.submit()
        """.replace("\n        ", "\n"),
        tasks=TASKS,
    )
    result = run(python(script), place.directory, **tokens_path(place), TENUTO_LAUNCHER=launcher)
    assert result.returncode == 1
    assert "TokenError: 3 units of token 'a' are asked for, but it has only 2" in result.stderr
    assert place.ledger() == []


def settings_in(tmp_path: Path) -> Settings:
    return load_settings({"tokens_path": str(tmp_path / "tokens")}, start=tmp_path, environ={})


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2", 100_001])
def test_a_count_that_makes_no_sense_is_refused(tmp_path: Path, count: object) -> None:
    with experiment(tmp_path / "ws", "x", settings=settings_in(tmp_path)) as xp:
        with pytest.raises(TokenError, match=r"token 'a'|count="):
            xp.token("a", count)  # type: ignore[arg-type]
        token = xp.token("a", 2)
        if count != 100_001:
            with pytest.raises(TokenError, match=r"token 'a'|count="):
                token.dependency(count)  # type: ignore[arg-type]


def test_a_token_lies_beside_the_workspaces_by_machine(tmp_path: Path) -> None:
    with experiment(tmp_path / "ws", "x", settings=settings_in(tmp_path)) as xp:
        token = xp.token("a/b", 3)
    (file,) = (tmp_path / "tokens").glob("*/a~2fb.token.json")
    assert json.loads(file.read_text()) == {"capacity": 3}
    assert token.directory == str(file.parent)
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600


def test_a_dry_run_declares_nothing(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with experiment(tmp_path / "ws", "x", run_mode=RunMode.DRY_RUN, settings=settings) as xp:
        assert isinstance(xp.token("a", 3), CounterToken)
    assert not (tmp_path / "tokens").exists()


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("0,1", {0: "0", 1: "1"}),
        ("3", {3: "3"}),
        (" 1 , GPU-bb", {1: "1", 0: "GPU-bb"}),
        ("0,-1,1", {0: "0"}),
        ("0,nonsense,1", {0: "0"}),
        ("", {}),
        (None, {0: "GPU-bbbb", 1: "GPU-cccc"}),
    ],
)
def test_visible_devices_are_those_that_cuda_would_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, expected: dict[int, str]
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, GPU-bbbb'\necho '1, GPU-cccc'\n")
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    if variable is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_devices() == expected


def test_part_of_a_gpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    with (
        experiment(tmp_path / "ws", "x", settings=settings_in(tmp_path)) as xp,
        pytest.raises(TokenError, match="MIG-1"),
    ):
        xp.gpu_token()


def test_a_done_job_can_be_reused_where_it_could_not_run(place: Place) -> None:
    script = place.script(
        """
        with experiment("ws", "tokens") as xp:
            names = ["x", "y"] if (HERE / "release").exists() else ["x"]
            for name in names:
                xp.gpu_token()(1, xp.token("a", int(os.environ["COUNT"]))(2, Use.C(name=name))).submit()
        """.replace("\n        ", "\n"),
        tasks=TASKS,
    )
    variables = tokens_path(place)
    first = run(python(script), place.directory, **variables, CUDA_VISIBLE_DEVICES="0", COUNT="2")
    assert first.returncode == 0, first.stderr
    again = run(python(script), place.directory, **variables, CUDA_VISIBLE_DEVICES="", COUNT="1")
    assert again.returncode == 0, again.stderr
    assert place.ledger() == ["enter x", "leave x"]
    place.release.touch()
    new = run(python(script), place.directory, **variables, CUDA_VISIBLE_DEVICES="", COUNT="2")
    assert new.returncode == 1
    assert "TokenError: it needs a GPU, and none is visible here" in new.stderr


def test_the_default_place_is_the_users_state_directory() -> None:
    assert str(load_settings(environ=environment()).tokens_path).endswith("/tenuto/tokens")


def test_why_and_jobs_say_what_a_job_waits_for(place: Place) -> None:
    script = place.script(
        """
        with experiment("ws", "tokens") as xp:
            token = xp.token("a", 2)
            for n in range(2):
                token(2, Hold.C(name=f"hold-{n}")).submit()
        """.replace("\n        ", "\n")
    )
    variables = tokens_path(place)
    with subprocess.Popen(python(script), cwd=place.directory, env=environment(**variables)) as process:
        try:
            eventually(lambda: len(place.ledger()) == 1, "one to hold the token")
            jobs = run(tenuto("jobs", "--json", "-w", "ws"), place.directory, **variables)
            waiting = next(job for job in json.loads(jobs.stdout) if job["state"] == "waiting")
            why = run(tenuto("why", "-w", "ws", waiting["id"]), place.directory, **variables).stdout
        finally:
            place.release.touch()
        assert process.wait() == 0
    assert waiting["message"] == "waits for 2 of token a (2 of 2 units busy)"
    assert "token a is held by process" in why


@BOTH
def test_a_job_that_is_run_again_by_command_holds_the_same_kind_of_units(place: Place, launcher: str) -> None:
    """What it holds is in a file while it runs, which a job that is done does not keep."""
    tasks = TASKS.replace(
        'note(f"leave',
        'assert (HERE / "release").exists(), "not yet"\n'
        '        (HERE / "held").write_bytes(Path("locks.json").read_bytes())\n'
        '        note(f"leave',
    )
    script = place.script(
        """
        with experiment("ws", "tokens", raise_on_failure=False) as xp:
            xp.gpu_token()(1, xp.token("a", 3)(2, Use.C(name="x"))).submit()
        """.replace("\n        ", "\n"),
        tasks=tasks,
    )
    variables = {**tokens_path(place), "TENUTO_LAUNCHER": launcher, "CUDA_VISIBLE_DEVICES": "3"}
    assert run(python(script), place.directory, **variables).returncode == 0
    place.release.touch()
    again = run(tenuto("retry", "-w", "ws", "Use"), place.directory, **tokens_path(place))
    assert again.returncode == 0, again.stderr
    assert place.ledger()[-1] == "leave x"
    held = json.loads((place.directory / "held").read_text())
    assert held["attempt"] == 2
    assert [(token["name"], len(token["units"])) for token in held["tokens"]] == [
        ("a", 2),
        ("cuda-devices", 1),
    ]
    assert held["tokens"][1]["units"] == [3]


def test_a_token_without_a_number_is_refused(place: Place) -> None:
    script = place.script(
        """
        with experiment("ws", "tokens") as xp:
            Use.C(name="x").add_dependencies(xp.token("a", 3)).submit()
        """.replace("\n        ", "\n"),
        tasks=TASKS,
    )
    result = run(python(script), place.directory, **tokens_path(place))
    assert result.returncode == 1
    assert "TokenError: how much of CounterToken('a', 3)?" in result.stderr


class Written(Task):
    model: Meta[Path] = Output("model.pt")
    ledger: Meta[Path]

    def execute(self) -> None:
        self.model.write_text("m")
        with self.ledger.open("a") as ledger:
            ledger.write("ran\n")


@pytest.mark.parametrize("rerun", [None, "task~Written"])
def test_a_job_with_tokens_is_run_again(tmp_path: Path, rerun: str | None) -> None:
    ledger = tmp_path / "ledger"
    for asked in (None, rerun):
        with experiment(tmp_path / "ws", "x", settings=settings_in(tmp_path), rerun=asked) as xp:
            Written.C(ledger=ledger).needs(xp.token("a", 1)).submit()
        [model] = (tmp_path / "ws").rglob("model.pt")
        if rerun is None:
            model.unlink()
    assert ledger.read_text() == "ran\nran\n"
