"""Owns the environments of the peers: one each, installed by the benchmark, kept for the next run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from bench.measure import ENVIRONMENT, reason
from bench.peers.peer import Peer, PeerAbsent
from bench.scratch import ROOT

HOME = ROOT / "peers"
INSTALL_TAKES_S = 600
_absent: dict[str, str] = {}


def interpreter(peer: Peer) -> Path:
    """The Python of the peer's environment, installed at the first call; this one for a plain command."""
    if peer.distribution is None:
        if shutil.which(peer.name) is None:
            raise PeerAbsent(f"this machine has no {peer.name}")
        return Path(sys.executable)
    if peer.name in _absent:
        raise PeerAbsent(_absent[peer.name])
    home = HOME / f"{peer.name}-py{sys.version_info.major}.{sys.version_info.minor}"
    python, ready = home / "bin" / "python", home / ".ready"
    if not ready.exists():
        print(f"installing {peer.distribution} for comparison ...", file=sys.stderr)
        _run(peer, [sys.executable, "-m", "venv", "--clear", str(home)])
        _run(peer, [str(python), "-m", "pip", "install", "--quiet", peer.distribution])
        ready.touch()
    return python


def version(peer: Peer) -> str:
    """What is measured, or why it is not."""
    try:
        python = interpreter(peer)
    except PeerAbsent as absent:
        return f"absent: {absent}"
    if peer.distribution is None:
        said = subprocess.run([peer.name, "--version"], capture_output=True, text=True, check=False).stdout
        return (said.splitlines() or ["?"])[0]
    code = f"import importlib.metadata as m; print(m.version({peer.distribution!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


def surroundings(place: Path) -> dict[str, str]:
    """The environment of a measured peer: nothing of ours on its path, nothing of its in the user's home."""
    home = place / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in ENVIRONMENT.items() if not name.startswith(("PYTHON", "XDG_"))}
    return {**kept, "HOME": str(home)}


def _run(peer: Peer, command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_TAKES_S)
        failed = reason(done.stderr, done.returncode) if done.returncode else ""
    except subprocess.TimeoutExpired:
        failed = f"took more than {INSTALL_TAKES_S} s"
    if failed:
        _absent[peer.name] = f"could not be installed ({failed})"
        raise PeerAbsent(_absent[peer.name])
