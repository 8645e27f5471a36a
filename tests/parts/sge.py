"""A private Grid Engine for the tests: real daemons on loopback, in a directory of their own, up in 3 s.

Run as a program, `python sge.py DIRECTORY`, this file keeps the daemons: it ends them and removes the
directory at the end of its standard input, which the kernel delivers whatever ended the test.
"""

from __future__ import annotations

import ctypes
import getpass
import os
import re
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

BIN, SHARE = "/usr/lib/gridengine", "/usr/share/gridengine"
UP_S = END_S = 60.0
PR_SET_PDEATHSIG = 1
DAEMONS = ("qmaster", "execd")
_CONFIGURATION = {
    "execd_spool_dir": "{spool}/execd",
    "min_uid": "0",
    "min_gid": "0",
    "load_report_time": "00:00:01",
    "max_unheard": "00:00:20",
    "mailer": "/bin/true",
    "shell_start_mode": "unix_behavior",
    "execd_params": "ENABLE_ADDGRP_KILL=true",
}
_QUEUE = {
    "qname": "main.q",
    "hostlist": "{host}",
    "slots": "4",
    "pe_list": "smp",
    "shell ": "/bin/sh",
    "rerun": "FALSE",
    "load_thresholds": "NONE",
    "shell_start_mode": "unix_behavior",
}
_PE = """pe_name smp
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $pe_slots
control_slaves FALSE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""


def is_installed() -> bool:
    return Path(BIN, "sge_qmaster").exists() and Path(BIN, "sge_execd").exists()


class PrivateGridEngine:
    """One cluster of one host with four slots, which ends with `close`, or with this process."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tn-sge-", dir="/tmp"))
        self.directory.chmod(0o755)
        with open(self.directory / "keeper.log", "wb") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, __file__, str(self.directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        answer = self._answer()
        if not answer.startswith("up "):
            self.close()
            raise RuntimeError(f"the cluster did not start: {answer}")
        qmaster, execd = answer.split()[1:]
        self.environment = {
            "SGE_ROOT": str(self.directory / "root"),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": qmaster,
            "SGE_EXECD_PORT": execd,
            "LD_LIBRARY_PATH": BIN,
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }

    def run(self, *command: str, check: bool = True) -> str:
        """Runs a command of Grid Engine's; its output."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def crash(self, name: str) -> None:
        """Kills a daemon: `qmaster`, or `execd`, whose jobs go on."""
        self._tell(f"crash {name}")

    def again(self, name: str) -> None:
        """Starts a daemon that was killed."""
        self._tell(f"again {name}")

    def cancel_all(self) -> None:
        """Ends every job, and waits until none is listed."""
        give_up = time.monotonic() + END_S
        while self.run("qstat", check=False).strip() and time.monotonic() < give_up:
            self.run("qdel", "-f", "-u", getpass.getuser(), check=False)
            time.sleep(0.1)

    def close(self) -> None:
        """Ends the cluster; nothing of it is left."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.wait(60)
        self._keeper.stdout.close()

    def _tell(self, line: str) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{line}\n")
        self._keeper.stdin.flush()
        answer = self._answer()
        if answer != "ok":
            raise RuntimeError(f"{line}: {answer}")

    def _answer(self) -> str:
        assert self._keeper.stdout is not None
        return self._keeper.stdout.readline().strip()


class Keeper:
    """The daemons of one cluster."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._root = directory / "root"
        self._common = self._root / "default" / "common"
        self._spool = self._root / "default" / "spool"
        self._host = socket.gethostname()
        self.ports = free_port(), free_port()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = {
            **os.environ,
            "SGE_ROOT": str(self._root),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(self.ports[0]),
            "SGE_EXECD_PORT": str(self.ports[1]),
            "SGE_ND": "1",  # daemons stay children of this process
            "LD_LIBRARY_PATH": BIN,
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }

    def start(self) -> None:
        self._write_files()
        self._spooled("spoolinit", "classic", "libspoolc", f"{self._common};{self._spool}/qmaster", "init")
        defaults = "spooldefaults.bin"
        self._spooled(defaults, "configuration", str(self._directory / "configuration"))
        self._spooled(defaults, "complexes", f"{SHARE}/util/resources/centry")
        self._spooled(defaults, "usersets", f"{SHARE}/util/resources/usersets")
        self._spooled(defaults, "managers", getpass.getuser(), "root")
        self.again("qmaster")
        until(lambda: self._run("qconf", "-sh").returncode == 0, "the master")
        self._run("qconf", "-ah", self._host)
        self._run("qconf", "-as", self._host)
        quick = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
        self._configure("-Msconf", "schedule", changed(self._run("qconf", "-ssconf").stdout, quick))
        self._configure("-Ap", "pe", _PE)
        queue = {name: value.format(host=self._host) for name, value in _QUEUE.items()}
        self._configure("-Aq", "queue", changed(self._run("qconf", "-sq").stdout, queue))
        self.again("execd")
        until(lambda: " -  " not in self._run("qhost").stdout.splitlines()[-1], "the host")

    def crash(self, name: str) -> None:
        child = self._children.pop(name, None)
        if child is not None:
            child.send_signal(signal.SIGKILL)
            child.wait(30)

    def again(self, name: str) -> None:
        with open(self._directory / f"{name}.out", "ab") as log:
            self._children[name] = subprocess.Popen(
                [f"{BIN}/sge_{name}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  there is one thread
            )

    def stop(self) -> None:
        for name in reversed(DAEMONS):
            self.crash(name)
        mark = f"SGE_ROOT={self._root}".encode()
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if mark in Path("/proc", entry, "environ").read_bytes() and int(entry) != os.getpid():
                    os.kill(int(entry), signal.SIGKILL)
            except OSError:
                continue
        shutil.rmtree(self._directory, ignore_errors=True)

    def _write_files(self) -> None:
        for path in (self._common, self._spool / "qmaster" / "job_scripts", self._spool / "execd"):
            path.mkdir(parents=True)
        (self._root / "util").symlink_to(f"{SHARE}/util")
        (self._common / "bootstrap").write_text(
            f"admin_user {getpass.getuser()}\ndefault_domain none\nignore_fqdn true\n"
            "spooling_method classic\nspooling_lib libspoolc\n"
            f"spooling_params {self._common};{self._spool}/qmaster\nbinary_path {BIN}\n"
            f"qmaster_spool_dir {self._spool}/qmaster\nsecurity_mode none\n"
            "listener_threads 2\nworker_threads 2\nscheduler_threads 1\n"
        )
        (self._common / "act_qmaster").write_text(f"{self._host}\n")
        (self._common / "host_aliases").write_text(f"{self._host} localhost\n")
        values = {name: value.format(spool=self._spool) for name, value in _CONFIGURATION.items()}
        text = changed(Path(SHARE, "default-configuration").read_text(), values)
        text = text.replace("flush_time=00:00:15", "flush_time=00:00:01")
        (self._directory / "configuration").write_text(text)

    def _configure(self, option: str, name: str, text: str) -> None:
        path = self._directory / name
        path.write_text(text)
        self._run("qconf", option, str(path))

    def _spooled(self, *command: str) -> None:
        done = self._run(*command)
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stdout}{done.stderr}")

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=60, check=False
        )


def changed(text: str, values: dict[str, str]) -> str:
    """A file of names and values, with other values."""
    for name, value in values.items():
        text = re.sub(rf"(?m)^{name}\b.*$", f"{name} {value}", text)
    return text


def until(condition: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + UP_S
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(f"waited {UP_S:g} s for {what}")
        time.sleep(0.05)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    keeper = Keeper(Path(sys.argv[1]))
    try:
        keeper.start()
        answer = f"up {keeper.ports[0]} {keeper.ports[1]}"
    except Exception as error:  # noqa: BLE001  it is told to the test
        answer = f"{type(error).__name__}: {error}"
    print(answer, flush=True)
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        {"crash": keeper.crash, "again": keeper.again}[word](name)
        print("ok", flush=True)
    keeper.stop()


if __name__ == "__main__":
    main()
