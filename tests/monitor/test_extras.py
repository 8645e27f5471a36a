"""Line 27: the monitor is loaded only where it is asked for, and its extras are needed nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.cli.main import COMMANDS, EXTRAS

SCRIPT = """
import json, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from click.testing import CliRunner
from tenuto.cli.main import commands
said = {}
for line in json.loads(sys.argv[2]):
    done = CliRunner().invoke(commands, line)
    said[" ".join(line)] = [done.exit_code, done.output, repr(done.exception)]
loaded = sorted({name.partition(".")[0] for name in sys.modules})
ours = sorted(name for name in sys.modules if name.startswith("tenuto.monitor"))
print(json.dumps({"said": said, "loaded": loaded, "monitor": ours}))
"""
MISSING = "textual rich fastapi starlette uvicorn pydantic sqlalchemy alembic aiohttp loguru".split()


def called(*lines: list[str], missing: list[str] | None = None) -> dict[str, object]:
    """What commands say, one after the other, in a process in which some packages are not installed."""
    command = [sys.executable, "-c", SCRIPT, ",".join(missing or []), json.dumps(lines)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_line_27_the_help_loads_nothing_of_the_monitor() -> None:
    found = called(["--help"], ["--version"])
    assert found["monitor"] == []
    assert not set(MISSING) & set(found["loaded"])  # type: ignore[call-overload]


@pytest.mark.slow
def test_line_27_without_the_extras_every_other_command_works(tmp_path: Path) -> None:
    for room in ("jobs", "experiments"):
        (tmp_path / room).mkdir()
    names = [name for name in COMMANDS if name not in EXTRAS]
    real = [[name, "-w", str(tmp_path)] for name in ("status", "jobs", "runs", "results")]
    found = called(*[[name, "--help"] for name in names], *real, missing=MISSING)
    said = found["said"]
    assert isinstance(said, dict)
    assert {line: told for line, told in said.items() if told[0] != 0} == {}
