"""Owns the peers: other systems, each installed in its own cached environment and measured as a black box."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tenuto-bench"


class PeerAbsent(Exception):
    """The peer cannot be measured here; the table names it with this reason."""


def interpreter(name: str, *, enabled: bool = True) -> Path:
    """The Python of an environment that holds the peer; installed at the first call."""
    if not enabled:
        raise PeerAbsent("left out by --no-peers")
    home = CACHE / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    python, ready = home / "bin" / "python", home / ".ready"
    if not ready.exists():
        print(f"installing {name} for comparison ...", file=sys.stderr)
        _run(name, [sys.executable, "-m", "venv", "--clear", str(home)])
        _run(name, [str(python), "-m", "pip", "install", "--quiet", name])
        ready.touch()
    return python


def version(name: str, python: Path) -> str:
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def _run(name: str, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PeerAbsent(f"could not be installed ({done.stderr.strip().splitlines()[-1][:120]})")
