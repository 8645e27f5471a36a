"""Runs scripts in forks of a process that has imported Tenuto: in an interpreter of its own a script spends
most of its time with imports. Run as a program it is that process; imports nothing of `tests`.

A forked script is a process of its own with the arguments, environment, directory and streams that it is
given, in a `__main__` of its own, and it ends as an interpreter ends. Its launchers start real interpreters.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import io
import json
import os
import pkgutil
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import tenuto

PRELOADED = """
    asyncio tenuto.cli.commands.run tenuto.cli.session tenuto.cli.session tenuto.experiments.environment
    tenuto.experiments.environment tenuto.experiments.reporter tenuto.experiments.run
    tenuto.experiments.run_info tenuto.experiments.yaml_file tenuto.launchers.spawn tenuto.launchers.manifest
    tenuto.launchers.observation tenuto.launchers.warm.launcher
    tenuto.scheduler.scheduler tenuto.scheduler.shell
""".split()
"""Beside all public names."""
PROGRAMS = (
    "tenuto.cli",
    "tenuto.database",
    "tenuto.service",
    "tenuto.search",
    "tenuto.web",
    "tenuto.monitor.web",
)
"""The rooms that servers and commands need: importing them takes a server most of its start."""
LOCALE = {"LANG": "C.UTF-8"}
REQUEST_SIZE = 1 << 20


class Forked:
    """A process that the server forked: the part of `subprocess.Popen` that tests of programs use."""

    def __init__(self, told: int, out: int) -> None:
        self.stdout = os.fdopen(out, encoding="utf-8")
        self.returncode: int | None = None
        self._told = told
        pid, _, status = os.read(told, 100).partition(b" ")
        self.pid = int(pid)
        self._hear(status)

    def _hear(self, status: bytes) -> None:
        """Takes what the server tells of the end, which may be nothing."""
        if status:
            self.returncode = os.waitstatus_to_exitcode(int(status))
            os.close(self._told)

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._hear(os.read(self._told, 100))
        return self.returncode

    def wait(self, timeout_s: float) -> int:
        """The exit code; raises `TimeoutExpired` if it has not ended by then."""
        if self.returncode is None:
            select.select([self._told], [], [], timeout_s)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout_s)
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The side of the tests: one process that forks, started when it is first needed.

    `rooms`: the packages whose modules are all imported, beside what scripts need.
    """

    def __init__(self, rooms: Sequence[str]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *rooms],
                pass_fds=[theirs.fileno()],
                env={
                    **_settings(os.environ),
                    **LOCALE,
                    **_certificates(os.environ),
                    "PATH": os.environ.get("PATH", os.defpath),
                },
                stdin=subprocess.DEVNULL,
            )

    def can_run(self, command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> bool:
        """Whether a command is a script or a module for this interpreter, with the settings that it has."""
        python, what, *_ = command
        is_plain = what == "-m" or (cwd / what).is_file()
        has_settings = _settings(environment) == _settings(os.environ) and _locale(environment) == LOCALE
        has_settings = has_settings and _certificates(environment).items() <= os.environ.items()
        return python == sys.executable and is_plain and has_settings

    def run(
        self, command: Sequence[str], cwd: Path, environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, and until what it started has closed its output too."""
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        told = self._send(command, cwd, environment, out_end, err_end)
        os.close(err_end)
        try:
            pid, _, status = os.read(told, 100).partition(b" ")  # once the server has started
            found = _read_all([out, err], time.monotonic() + timeout_s)
            if found is None:
                self._channel.send(pid)
            status = status or os.read(told, 100)
        finally:
            for read in (out, err, told):
                os.close(read)
        if found is None:
            raise subprocess.TimeoutExpired(list(command), timeout_s)
        return subprocess.CompletedProcess(list(command), os.waitstatus_to_exitcode(int(status)), *found)

    def start(self, command: Sequence[str], cwd: Path, environment: Mapping[str, str], err: int) -> Forked:
        """Starts a command in a session of its own; `err`: the descriptor of its standard error."""
        out, out_end = os.pipe()
        return Forked(self._send(command, cwd, environment, out_end, err, session=True), out)

    def _send(
        self,
        command: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        out: int,
        err: int,
        *,
        session: bool = False,
    ) -> int:
        """Asks for a process, and closes its standard output here; what the server tells can be read then."""
        told, told_end = os.pipe()
        asked = {"command": list(command), "cwd": str(cwd), "environment": dict(environment)}
        request = json.dumps({**asked, "session": session})
        socket.send_fds(self._channel, [request.encode()], [out, err, told_end])
        for descriptor in (out, told_end):
            os.close(descriptor)
        return told

    def end(self) -> None:
        """Ends the server."""
        self._channel.close()
        self._process.wait()


@functools.cache
def fork_server(*rooms: str) -> ForkServer:
    """The server of this process for scripts, or for programs that need these rooms."""
    made = ForkServer(rooms)
    atexit.register(made.end)
    return made


def ran(
    command: Sequence[str], cwd: Path, environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """What came of a command, which was forked if it is one of this interpreter."""
    server = fork_server(*PROGRAMS)
    if server.can_run(command, cwd, environment):
        return server.run(command, cwd, environment, timeout_s)
    return subprocess.run(
        list(command), cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=timeout_s, check=False,
    )  # fmt: skip


def _read_all(descriptors: list[int], deadline: float) -> list[str] | None:
    """All that comes by these descriptors, or None when it is not over at a time of the monotonic clock."""
    found = {descriptor: bytearray() for descriptor in descriptors}
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                found[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
    return [data.decode() for data in found.values()]


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that are read by starts and imports, but for those that `become` follows."""
    kept = {name: value for name, value in environment.items() if name.startswith("PYTHON")}
    for followed in ("PYTHONUNBUFFERED", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        kept.pop(followed, None)
    return kept


def _certificates(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("SSL_")}


def _locale(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name == "LANG" or name.startswith("LC_")}


# -- the side of the server ---------------------------------------------------------------------------


def serve(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Forks for each request. Returns in the forked process, with the request; None when all is over."""
    children: dict[int, tuple[int, int]] = {}
    selector = selectors.DefaultSelector()
    selector.register(channel, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fd in children:
                pid, told = children.pop(key.fd)
                selector.unregister(key.fd)
                os.close(key.fd)
                _tell(told, os.waitpid(pid, 0)[1])
                os.close(told)
                continue
            message, descriptors, _, _ = socket.recv_fds(channel, REQUEST_SIZE, 3)
            if not message:
                return None
            if not descriptors:
                _kill(int(message), children.values())
                continue
            pid = os.fork()
            if pid == 0:
                selector.close()
                return json.loads(message), descriptors[:2]
            for descriptor in descriptors[:2]:
                os.close(descriptor)
            _tell(descriptors[2], pid)
            watched = os.pidfd_open(pid)
            children[watched] = (pid, descriptors[2])
            selector.register(watched, selectors.EVENT_READ)


def _kill(late: int, children: Iterable[tuple[int, int]]) -> None:
    if any(pid == late for pid, _ in children):  # otherwise it has ended, and only what it started is late
        os.kill(late, signal.SIGKILL)


def _tell(descriptor: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the test has given up
        os.write(descriptor, f"{number} ".encode())


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Makes this process what an interpreter would be that was started with the command."""
    for number, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if request["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    time.tzset()
    sys.stdout = sys.__stdout__ = _stream(1, "surrogateescape")  # type: ignore[misc]  # as in C
    sys.stderr = sys.__stderr__ = _stream(2, "backslashreplace", line_buffering=True)  # type: ignore[misc]
    sys.orig_argv = list(request["command"])
    sys.modules["__main__"] = ModuleType("__main__")
    sys.path[1:1] = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))


def _stream(descriptor: int, errors: str, *, line_buffering: bool = False) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=line_buffering)


def execute(command: list[str]) -> None:
    """Runs a script or module as the main program."""
    if command[1] == "-m":
        sys.argv, sys.path[0] = ["-m", *command[3:]], os.getcwd()
        runpy._run_module_as_main(command[2])  # type: ignore[attr-defined]  # what an interpreter calls
        return
    script = command[1]
    sys.argv, sys.path[0] = command[1:], os.path.dirname(os.path.realpath(script))
    main = sys.modules["__main__"]
    main.__dict__.update(__file__=script, __loader__=SourceFileLoader("__main__", script), __cached__=None)
    main.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={})
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def report(error: BaseException) -> None:
    """Tells of an exception as an interpreter does, from where the main program begins."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def modules_of(rooms: Iterable[str]) -> Iterable[str]:
    """All modules of packages but those of migrations, which Alembic loads."""
    for room in rooms:
        path = import_module(room).__path__
        names = (one.name for one in pkgutil.walk_packages(path, f"{room}.", onerror=lambda _: None))
        yield from (name for name in names if ".migrations" not in name)


def end_interrupted(interrupts: list[KeyboardInterrupt]) -> None:
    """Ends a process that was interrupted as an interpreter does: by the signal, when all is done."""
    if not interrupts:
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    interrupts: list[KeyboardInterrupt] = []
    atexit.register(end_interrupted, interrupts)  # registered first, called last
    for name in (*PRELOADED, *modules_of(sys.argv[2:])):
        with contextlib.suppress(ModuleNotFoundError):  # of an extra that is not installed
            import_module(name)
    for name in tenuto.__all__:
        getattr(tenuto, name)
    gc.freeze()  # a fork copies what its collector looks at
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is None:
        return
    become(*asked)
    try:
        execute(asked[0]["command"])
    except KeyboardInterrupt as error:
        report(error)
        interrupts.append(error)
    except Exception as error:  # noqa: BLE001  of the script
        report(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
