"""Runs one sweep in five systems, and counts what each computes anew: `python -m bench.why [SYSTEM]...`.
Draws the table of docs/why.md from what it measured. Peers are installed into an environment of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from docs.generate import refreshed

HERE = Path(__file__).parent
SWEEPS = HERE / "sweeps"
MEASURED = SWEEPS / "measured.json"
PAGE = HERE.parent / "docs" / "why.md"
ENVIRONMENT = HERE.parent / ".bench" / "why"
PACKAGES = "snakemake hydra-core submitit hydra-submitit-launcher optuna wandb".split()
PATIENCE_S = 300.0
LRS, SEEDS = "0.01,0.02,0.03,0.05,0.1,0.2,0.3,0.5,0.7,0.9", "0,1,2"


class System(NamedTuple):
    """How a sweep is run in a system, two trainings at a time where it can."""

    title: str
    packages: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    later: tuple[tuple[str, str], ...]
    """What is replaced in its files when the parameter is added."""
    unlock: tuple[str, ...] = ()
    """What a person must run after a kill, before the sweep runs again."""


_HYDRA = (
    "python",
    "sweep.py",
    "--multirun",
    "hydra/launcher=submitit_local",
    "hydra.launcher.cpus_per_task=1",
)
SYSTEMS = {
    "tenuto": System(
        "Tenuto",
        ("tenuto",),
        (("python", "sweep.py"),),
        (("# later: ", ""), ("self.seed)", "self.seed, self.momentum)")),
    ),
    "snakemake": System(
        "Snakemake",
        ("snakemake",),
        (("snakemake", "--cores", "2", "--keep-going", "--rerun-incomplete"),),
        (("# later: ", ""), ("{wildcards.seed} >", "{wildcards.seed} {params.momentum} >")),
        ("snakemake", "--unlock"),
    ),
    "hydra": System(
        "Hydra + submitit",
        ("hydra-core", "submitit"),
        ((*_HYDRA, f"lr={LRS}", f"seed={SEEDS}"), ("python", "best.py")),
        (("# later: ", ""), ("config.seed)", "config.seed, config.momentum)")),
    ),
    "optuna": System("Optuna", ("optuna",), (("python", "sweep.py"),), (("# later: ", ""),)),
    "plain": System(
        "a loop + W&B",
        ("wandb",),
        (("python", "sweep.py"),),
        (('"seed": seed}', '"seed": seed, "momentum": 0.0}'),),
    ),
}


class Figures(NamedTuple):
    """What a system did. Counts are of trainings that began."""

    versions: str
    lines: int
    failed_code: int
    failed_scores: int
    """Of 29 that can be made."""
    mended: int
    again: int
    killed: int
    """By the killed run and the next together, for 30."""
    added: int


class Place:
    """A sweep in a folder of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._system = SYSTEMS[name]
        shutil.copytree(SWEEPS / name, folder, dirs_exist_ok=True)
        shutil.copy(SWEEPS / "work.py", folder)
        self._bin = Path(sys.executable).parent if name == "tenuto" else ENVIRONMENT / "bin"

    def count(self, word: str = "train") -> int:
        log = self.folder / "log"
        return sum(line.startswith(word) for line in log.read_text().splitlines()) if log.exists() else 0

    def start(self, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "HOME": str(self.folder),
            "WANDB_SILENT": "true",
        }
        environment["PATH"] = f"{self._bin}:{environment['PATH']}"
        with (self.folder / "said").open("ab") as said:
            return subprocess.Popen(
                [str(self._bin / command[0]), *command[1:]],
                cwd=self.folder,
                env=environment,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def run(self) -> tuple[int, int]:
        """The first exit code that is not 0, and how many trainings began."""
        before = self.count()
        codes = [self.start(command).wait(PATIENCE_S) for command in self._system.commands]
        return next((code for code in codes if code), 0), self.count() - before

    def run_and_kill(self, trainings: int) -> None:
        """Kill the run, and what is in its session, once so many trainings began."""
        process = self.start(self._system.commands[0])
        until(lambda: self.count() >= trainings)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if self._system.unlock:
            self.start(self._system.unlock).wait(PATIENCE_S)

    def add_the_parameter(self) -> None:
        for path in self.folder.iterdir():
            if (path.is_file() and path.suffix == ".py") or path.name == "Snakefile":
                text = path.read_text()
                if path.name != "work.py":
                    for old, new in self._system.later:
                        text = text.replace(old, new)
                    path.write_text(text)

    def is_best_known(self) -> bool:
        return b"best 1.02" in (self.folder / "said").read_bytes()


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("the sweep did not come so far")
        time.sleep(0.02)


def lines_of(name: str) -> int:
    """Lines that a person writes: neither empty nor a comment."""
    texts = [path.read_text().splitlines() for path in sorted((SWEEPS / name).iterdir()) if path.is_file()]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for text in texts for line in text)


def versions(name: str) -> str:
    """The versions of what is measured."""
    python = sys.executable if name == "tenuto" else ENVIRONMENT / "bin" / "python"
    code = (
        "import sys, importlib.metadata as m; print(*[f'{p} {m.version(p)}' for p in sys.argv[1:]], sep=', ')"
    )
    command = [str(python), "-c", code, *SYSTEMS[name].packages]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def measured(name: str) -> Figures:
    """Run the sweep with a failure, fixed, again, with a new parameter, and killed."""
    with tempfile.TemporaryDirectory(prefix="tenuto-why-") as scratch:
        place = Place(Path(scratch, "first"), name)
        (place.folder / "fail").touch()
        code, _ = place.run()
        scores = place.count("evaluate")
        (place.folder / "fail").unlink()
        _, mended = place.run()
        _, again = place.run()
        if not place.is_best_known():
            raise RuntimeError(f"{name} found no best: {(place.folder / 'said').read_text()[-3000:]}")
        place.add_the_parameter()
        _, added = place.run()
        robbed = Place(Path(scratch, "killed"), name)
        robbed.run_and_kill(10)
        robbed.run()
        killed = robbed.count()
    return Figures(versions(name), lines_of(name), code, scores, mended, again, killed, added)


def table(found: dict[str, Figures]) -> str:
    """The table of the page."""
    systems = [name for name in SYSTEMS if name in found]
    rows: list[tuple[str, Callable[[Figures], str]]] = [
        ("version", lambda one: one.versions),
        ("lines that a person writes", lambda one: str(one.lines)),
        ("one training fails: scores of the other 29", lambda one: f"{one.failed_scores}"),
        ("... exit code", lambda one: str(one.failed_code)),
        ("the failure fixed, run again: trainings", lambda one: str(one.mended)),
        ("nothing changed, run again: trainings", lambda one: str(one.again)),
        ("killed in the middle, run again: trainings of both runs, for 30", lambda one: str(one.killed)),
        ("`momentum` added, at its default: trainings", lambda one: str(one.added)),
    ]
    head = "| | " + " | ".join(SYSTEMS[name].title for name in systems) + " |"
    body = [
        f"| {title} | " + " | ".join(draw(found[name]) for name in systems) + " |" for title, draw in rows
    ]
    return "\n".join([head, "|---|" + "--:|" * len(systems), *body])


def kept() -> dict[str, Figures]:
    """What was measured last."""
    return (
        {name: Figures(**one) for name, one in json.loads(MEASURED.read_text()).items()}
        if MEASURED.exists()
        else {}
    )


def fresh(text: str) -> str:
    """The page with the table of what is kept."""
    return refreshed(text, {"why": table(kept())})


def main(names: list[str]) -> None:
    if not (ENVIRONMENT / "bin" / "snakemake").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        subprocess.run([str(ENVIRONMENT / "bin" / "pip"), "install", "--quiet", *PACKAGES], check=True)
    found = kept()
    for name in names or list(SYSTEMS):
        found[name] = measured(name)
        print(name, found[name], flush=True)
        MEASURED.write_text(json.dumps({key: one._asdict() for key, one in found.items()}, indent=1) + "\n")
    PAGE.write_text(fresh(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
