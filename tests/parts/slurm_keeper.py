"""Runs the daemons of a private Slurm: `python slurm_keeper.py DIRECTORY SHAPE_AS_JSON`, steered by lines.

It ends the cluster and removes the directory at the end of its standard input, which the kernel delivers
whatever ended the test that holds the other end. The daemons die with it, should it be killed itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.parts.ports import free_port
from tests.parts.slurm_configuration import Shape, user, write_configuration

LONGEST_SOCKET = 100  # a Unix socket's path has at most 107 bytes
UP_S = 60.0
STOP_ORDER = ["node", "slurmd", "slurmctld", "slurmdbd", "mariadbd", "munged"]
PR_SET_PDEATHSIG = 1


class Keeper:
    """One cluster; everything it needs lies in `directory`."""

    def __init__(self, directory: Path, shape: Shape) -> None:
        self.directory = directory
        self.shape = shape
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}
        self._sockets = directory / "munge"
        self._dbd_port = free_port()

    def start(self) -> None:
        for name in ("log", "state", "spool", "munge", "pids"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
            (self.directory / name).chmod(0o755)
        if len(str(self._sockets / "s")) > LONGEST_SOCKET:
            self._sockets = Path(tempfile.mkdtemp(prefix="slurm."))
            self._sockets.chmod(0o755)
        write_configuration(self.directory, self._sockets, self.shape, self._dbd_port)
        self._start_munge()
        if self.shape.accounting:
            self._start_accounting()
        self._launch("slurmctld", [program("slurmctld"), "-D", "-i"])
        for node in self.shape.node_names:
            self._start_node(node)
        self._wait_until_up()

    def stop(self) -> None:
        for name in sorted(self._children, key=lambda name: STOP_ORDER.index(name.partition(".")[0])):
            self.crash(name, signal.SIGTERM if name in ("mariadbd", "slurmdbd") else signal.SIGKILL)
        for pid in self._left_over():
            os.kill(pid, signal.SIGKILL)
        if self._sockets.parent != self.directory:
            shutil.rmtree(self._sockets, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def crash(self, name: str, number: int = signal.SIGKILL) -> None:
        """Ends one daemon. `slurmd.n1` leaves its jobs running; `node.n1`, a power failure, does not."""
        child = self._children.pop(name, None)
        if child is not None:
            child.send_signal(number)
            child.wait(timeout=30)

    def end(self, name: str) -> None:
        """Ends one daemon as it is meant to end: it saves its state."""
        self.crash(name, signal.SIGTERM)

    def again(self, name: str) -> None:
        """Starts a daemon that was ended."""
        self._launch(name, self._commands[name])

    def _launch(self, name: str, command: list[str]) -> None:
        environment = {**os.environ, "SLURM_CONF": str(self.directory / "slurm.conf")}
        # Never a pipe: daemons and their jobs inherit it, and what reads it waits for them.
        with open(self.directory / "log" / f"{name}.out", "ab") as log:
            self._children[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  there is one thread
            )
        self._commands[name] = command

    def _start_munge(self) -> None:
        munge = self.directory / "munge"
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o600)
        self._launch(
            "munged",
            [
                *(program("munged"), "--foreground", "--force", f"--socket={self._sockets}/s"),
                *(f"--key-file={munge}/key", f"--pid-file={munge}/pid", f"--log-file={munge}/log"),
                *(f"--seed-file={munge}/seed", "--num-threads=2"),
            ],
        )
        until((self._sockets / "s").exists, "munged")

    def _start_node(self, node: str) -> None:
        slurmd = [program("slurmd"), "-D", "-N", node]
        if not self.shape.apart:
            self._launch(f"slurmd.{node}", slurmd)
            return
        share = [self.shape.share or "", str(self.shape.share_delay_s), str(self.directory / "spool")]
        init = [sys.executable, os.path.abspath(__file__), "--node", node, *share, *slurmd]
        namespaces = ["unshare", "--uts", "--pid", "--mount", "--fork", "--kill-child"]
        self._launch(f"node.{node}", [*namespaces, *init])

    def _start_accounting(self) -> None:
        data, sockets = self.directory / "mysql", self._sockets
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", f"--user={user()}"]
        install += ["--skip-test-db", "--auth-root-authentication-method=normal"]
        subprocess.run(install, check=True, capture_output=True)
        port = free_port()
        self._launch(
            "mariadbd",
            [
                *(
                    "mariadbd",
                    "--no-defaults",
                    f"--datadir={data}",
                    f"--socket={sockets}/m",
                    f"--port={port}",
                ),
                *(
                    "--bind-address=127.0.0.1",
                    f"--user={user()}",
                    f"--pid-file={self.directory}/pids/mariadbd",
                ),
                *("--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900"),
            ],
        )
        until((sockets / "m").exists, "mariadbd")
        grant = "CREATE USER IF NOT EXISTS slurm@'%' IDENTIFIED BY 'slurm'; GRANT ALL ON *.* TO slurm@'%';"
        grant += grant.replace("'%'", "localhost")
        client = ["mariadb", "--no-defaults", f"--socket={sockets}/m", "-u", user(), "-e", grant]
        subprocess.run(client, check=True)
        conf = self.directory / "slurmdbd.conf"
        conf.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={sockets}/s\nDbdHost=localhost\nDbdAddr=127.0.0.1\n"
            f"DbdPort={self._dbd_port}\nSlurmUser={user()}\nStorageType=accounting_storage/mysql\n"
            f"StorageHost=127.0.0.1\nStoragePort={port}\nStorageUser=slurm\nStoragePass=slurm\n"
            f"StorageLoc=slurm_acct\nLogFile={self.directory}/log/slurmdbd.log\n"
            f"PidFile={self.directory}/pids/slurmdbd\n"
        )
        conf.chmod(0o600)
        self._launch("slurmdbd", [program("slurmdbd"), "-D"])
        until(lambda: _listens(self._dbd_port), "slurmdbd")
        for add in (["cluster", "private"], ["account", "all"], ["user", user(), "Account=all"]):
            self._run("sacctmgr", "-i", "add", *add)

    def _wait_until_up(self) -> None:
        def is_up() -> bool:
            answer = self._run("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T")
            return sum(line.endswith(" idle") for line in answer.splitlines()) >= self.shape.nodes

        until(is_up, "the nodes to be idle")

    def _run(self, *command: str) -> str:
        environment = {**os.environ, "SLURM_CONF": str(self.directory / "slurm.conf")}
        try:
            return subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=30, check=False
            ).stdout
        except subprocess.TimeoutExpired:
            return ""

    def _left_over(self) -> list[int]:
        """Processes that know of this cluster: slurmstepd outlives slurmd, and jobs outlive both."""
        mark = f"SLURM_CONF={self.directory}/slurm.conf".encode()
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                environment = Path("/proc", entry, "environ").read_bytes().split(b"\0")
                parents = Path("/proc", entry, "cmdline").read_bytes()
            except OSError:
                continue
            is_job = b"SLURM_JOB_ID" in b"\0".join(environment) or b"slurmstepd" in parents
            if mark in environment and is_job and int(entry) != os.getpid():
                found.append(int(entry))
        return found


def be_node(name: str, share: str, delay: str, behind: str, command: list[str]) -> None:
    """The first process of a node apart: a host name, a /proc, a view of the shared disk, then slurmd."""
    socket.sethostname(name)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
    if share:
        hidden = tempfile.mkdtemp(prefix=f"{name}.", dir=behind)  # the mount hides what it shows
        subprocess.run(["mount", "--bind", share, hidden], check=True)
        times = f"nonempty,attr_timeout={delay},entry_timeout={delay},negative_timeout={delay}"
        subprocess.run(["bindfs", "-o", times, hidden, share], check=True)
    subprocess.Popen(command)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.2)


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        raise FileNotFoundError(
            f"{name} is not installed: apt-get install slurmctld slurmd slurm-client munge"
        )
    return found


def until(condition: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + UP_S
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(f"waited {UP_S:g} s for {what}")
        time.sleep(0.02)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    if sys.argv[1] == "--node":
        be_node(*sys.argv[2:6], sys.argv[6:])
        return
    directory, given = Path(sys.argv[1]), json.loads(sys.argv[2])
    keeper = Keeper(directory, Shape(**{**given, "extra": tuple(given["extra"])}))
    answer = "up"
    try:
        keeper.start()
    except Exception as error:  # noqa: BLE001  it is told to the test
        answer = f"{type(error).__name__}: {error}"
    print(answer, flush=True)
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        try:
            {"crash": keeper.crash, "stop": keeper.end, "again": keeper.again}[word](name)
            print("ok", flush=True)
        except Exception as error:  # noqa: BLE001
            print(f"{type(error).__name__}: {error}", flush=True)
    keeper.stop()


if __name__ == "__main__":
    main()
