"""What the tests of tokens build: tokens in a directory of their own, and schedulers that share them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.launchers.spawn import SpawnLauncher
from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.scheduler.tokens import CounterToken, declare
from tenuto.workspace.machine import this_machine
from tenuto.workspace.token_files import TokenFiles, TokenPlace

HERE = Path(__file__).parent
LAUNCHERS: dict[str, Any] = {"spawn": SpawnLauncher, "warm": WarmLauncher}
Needs = Mapping[str, int]


def tokens_in(root: Path, counts: Mapping[str, int]) -> dict[str, CounterToken]:
    """Tokens of a test, declared."""
    tokens = {name: CounterToken(name, count, f"{root}/tokens") for name, count in counts.items()}
    for token in tokens.values():
        declare(this_machine(), token)
    return tokens


def token_files(root: Path) -> TokenFiles:
    return TokenFiles(this_machine(), TokenPlace(f"{root}/tokens"))


def held(root: Path, name: str) -> int:
    """How many units are in use, according to the kernel."""
    return len(token_files(root).state(name).held)


def work_of(root: Path, name: str, seconds: float, needs: Mapping[str, tuple[int, int]]) -> list[str]:
    """The command of a job that checks that it has its units to itself: token -> (capacity, amount)."""
    wanted = [str(word) for token, numbers in needs.items() for word in (token, *numbers)]
    return [
        *(sys.executable, "-I", "-S", str(HERE / "token_oracle.py")),
        *(str(root), str(seconds), name),
        *wanted,
    ]


def ledger(root: Path, *what: str) -> list[str]:
    """The lines of the ledger of these kinds, all if none is named."""
    file = root / "ledger"
    entries = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [f"{kind} {name}" for kind, name, _ in entries if not what or kind in what]


def payload_pids(root: Path) -> dict[str, int]:
    """job -> pid, of those that entered and have not left."""
    pids: dict[str, int] = {}
    for line in (root / "ledger").read_text().splitlines() if (root / "ledger").exists() else []:
        kind, name, pid = line.split()
        if kind == "enter":
            pids[name] = int(pid)
        elif kind == "leave":
            pids.pop(name, None)
    return pids


class TokenScheduler:
    """`token_scheduler.py` in a process of its own, killed at the end if it still runs."""

    def __init__(
        self,
        root: Path,
        tokens: Mapping[str, int],
        jobs: Mapping[str, tuple[float, Needs]],
        *,
        launcher: str = "spawn",
        slots: int = 8,
    ) -> None:
        spec = {"root": str(root), "tokens": tokens, "jobs": jobs, "launcher": launcher, "slots": slots}
        command = [sys.executable, str(HERE / "token_scheduler.py")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(spec))
        self.process.stdin.close()

    def __enter__(self) -> TokenScheduler:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def submitted(self) -> TokenScheduler:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "submitted\n"
        return self

    def states(self) -> dict[str, str]:
        """job -> state, once all ended."""
        assert self.process.stdout is not None
        states: dict[str, str] = json.loads(self.process.stdout.read().removeprefix("submitted\n"))
        assert self.process.wait() == 0
        return states

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
