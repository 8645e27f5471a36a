"""A program beside an experiment: its log is kept, and it ends with the experiment, however that ends.
Also the monitor, which is `tenuto ui` as such a program; it cannot harm the run.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, unique
from pathlib import Path
from typing import TYPE_CHECKING

from tenuto.errors import ServiceError, TenutoError
from tenuto.jobs.tcp_ports import LOCALHOST, listen
from tenuto.settings import process_environment
from tenuto.tasks.arguments import guarded
from tenuto.workspace.layout import Layout
from tenuto.workspace.machine import this_machine
from tenuto.workspace.modes import file_mode

if TYPE_CHECKING:
    from tenuto.experiments.run import Run

# Services beside an experiment: started when they are added, stopped when it ends.
# Starts and stops a service, and does no work of it; `web_service` and `process_service` are two kinds.


@unique
class ServiceState(Enum):
    """What a service is doing."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class Service:
    """Something that runs beside the jobs of an experiment, such as a page that shows them.

    Override `start` and `stop`; both are called in the process of the experiment, once.
    """

    id = "service"
    """Names it in events and logs; of several with one name in a run, the later ones get a number."""
    tells_when_running = False
    """True if it is not running yet when `start` returns, and calls `move` when it is."""
    log: Path | None = None
    """The folder for its log; known once it is added."""
    _state = ServiceState.STOPPED
    _message: str | None = None
    _listener: Callable[[Service], None] | None = None

    @property
    def state(self) -> ServiceState:
        """Its state in words."""
        return self._state

    @property
    def message(self) -> str | None:
        """Why it failed, if it did."""
        return self._message

    @property
    def url(self) -> str | None:
        """Where to look at it, if it is something to look at."""
        return None

    def description(self) -> str:
        """What a person reads about it."""
        return type(self).__name__

    def start(self) -> None:
        """Begins; `add_service` raises its errors."""

    def stop(self) -> None:
        """Ends; its errors are reported, and the experiment ends all the same."""

    def move(self, state: ServiceState, message: str | None = None) -> None:
        """Goes to another state, and says so to its run; from any thread."""
        self._state, self._message = state, message
        if self._listener is not None:
            self._listener(self)


GRACE_S = 5.0
_SLACK_S = 5.0
_PORT = "{port}"
_LAST_WORDS = 2000
_LOOK_S = 0.05
_GUARD = "import sys; sys.path.insert(0, {root!r}); from tenuto.experiments.service_guard import main; main()"
Say = Callable[[str], None]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, file_mode(path))


@guarded
class ProcessService(Service):
    """Runs a program, such as TensorBoard.

    `command`: the program and its arguments, as a list or as a shell would split it. `id`: its name in the
    run; by default the program's. `environment`: variables over those of this process. `directory`: where it
    is started; by default here.

    With a `port` (0 for a free one), ``{port}`` in the command stands for it, and the service is running once
    a server listens there. When it is stopped it is asked to end, and killed after `grace_s`; so is all that
    it has started. It also ends when the process of the experiment is killed.
    """

    tells_when_running = True

    def __init__(
        self,
        command: Sequence[str] | str,
        *,
        id: str | None = None,
        port: int | None = None,
        environment: Mapping[str, str] | None = None,
        directory: Path | str | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        if isinstance(command, str):
            command = shlex.split(command)
        if not command:
            raise ServiceError("a ProcessService needs a command: the program and its arguments")
        self.command = tuple(map(str, command))
        self.id = id or Path(self.command[0]).name
        self.port = port
        self.environment = dict(environment or {})
        self.directory = directory
        self.grace_s = grace_s
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: threading.Thread | None = None
        self._settled = threading.Event()
        self._is_stopping = False

    @property
    def url(self) -> str | None:
        """Where its port is, if it has one."""
        return f"http://{LOCALHOST}:{self.port}/" if self.port else None

    def description(self) -> str:
        return " ".join(self.command)

    def start(self) -> None:
        environment = {**process_environment(), **self.environment}
        if shutil.which(self.command[0], path=environment.get("PATH")) is None:
            raise ServiceError(
                f"{self.command[0]!r} cannot be found: install it, or give the path of the program"
            )
        if self.port is not None:
            # Whether it is free is known by taking it. It is given back at once, for the program to take.
            with listen(LOCALHOST, self.port) as listening:
                self.port = int(listening.getsockname()[1])
            self.command = tuple(word.replace(_PORT, str(self.port)) for word in self.command)
        root = __file__.rpartition("/tenuto/")[0]
        guard = [sys.executable, "-P", "-c", _GUARD.format(root=root), str(os.getpid()), str(self.grace_s)]
        with contextlib.ExitStack() as opened:
            output = subprocess.DEVNULL
            if self.log is not None:
                this_machine().files.make_directory(str(self.log.parent))
                output = opened.enter_context(open(self.log, "ab", opener=_private)).fileno()
            self._process = subprocess.Popen(
                [*guard, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C at the terminal is for the experiment
            )
        self._watcher = threading.Thread(
            target=self._watch, args=(self._process,), name=f"tenuto-{self.id}", daemon=True
        )
        self._watcher.start()

    def stop(self) -> None:
        if self._process is None or self._watcher is None:
            return
        self._is_stopping = True
        self._process.terminate()
        try:
            self._process.wait(self.grace_s + _SLACK_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the program goes with its guard
            self._process.wait()
        self._watcher.join()

    def wait_until_running(self, timeout_s: float = 30.0) -> None:
        """Blocks until it runs; `ServiceError`, with the end of its log, if it failed or takes too long."""
        if not self._settled.wait(timeout_s):
            raise ServiceError(f"{self.id} does not listen after {timeout_s:g} s; its log: {self.log}")
        if self.state is ServiceState.FAILED:
            raise ServiceError(f"{self.id} failed: {self.message}")

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """In a thread: tells when it runs, and if it ends by itself."""
        if self.port is None:
            self._settle(ServiceState.RUNNING)
        while not self._settled.is_set() and not self._is_stopping:
            try:
                process.wait(_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if self._is_listening():
                    self._settle(ServiceState.RUNNING)
        code = process.wait()
        if not self._is_stopping:
            self._settle(ServiceState.FAILED, f"it ended with exit code {code}{self._last_words()}")

    def _settle(self, state: ServiceState, message: str | None = None) -> None:
        if not self._is_stopping:
            self.move(state, message)
        self._settled.set()

    def _is_listening(self) -> bool:
        assert self.port is not None
        try:
            socket.create_connection((LOCALHOST, self.port), timeout=_LOOK_S).close()
        except OSError:
            return False
        return True

    def _last_words(self) -> str:
        if self.log is None:
            return ""
        try:
            with self.log.open("rb") as file:
                file.seek(max(self.log.stat().st_size - _LAST_WORDS, 0))
                words = file.read().decode(errors="replace").strip()
        except OSError:
            return ""
        return f": {words.splitlines()[-1]}; its log: {self.log}" if words else f"; its log: {self.log}"


MONITOR = "monitor"


class MonitorService(ProcessService):
    """Runs `tenuto ui` for one workspace, and says where to watch."""

    def __init__(self, layout: Layout, port: int, say: Say) -> None:
        command = [sys.executable, "-m", "tenuto", "ui", "-w", layout.root, "--port", "{port}"]
        super().__init__(command, id=MONITOR, port=port)
        self._workspace = layout.root
        self._say = say
        self._code = this_machine().randomness.nonce()
        self._code_file: Path | None = None
        self._has_failed = False

    def description(self) -> str:
        return "tenuto ui"

    def start(self) -> None:
        assert self.log is not None
        self._code_file = self.log.with_suffix(".code")
        this_machine().files.make_directory(str(self.log.parent))
        descriptor = os.open(self._code_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(self._code)
        self.command = (*self.command, "--code-file", str(self._code_file))
        super().start()

    def stop(self) -> None:
        super().stop()
        self._forget_code()
        if not self._has_failed:
            self._say(f"to look at it again: tenuto ui -w {self._workspace}")

    def move(self, state: ServiceState, message: str | None = None) -> None:
        super().move(state, message)
        if state is ServiceState.RUNNING:
            self._say(f"watch it at {self.url}#code={self._code}")
        elif state is ServiceState.FAILED:
            self.fail(message or "it ended")

    def fail(self, why: str) -> None:
        """Say once that there is no monitor."""
        self._forget_code()
        if not self._has_failed:
            self._has_failed = True
            self._say(f"there is no monitor, and the run continues: {why}")

    def _forget_code(self) -> None:
        if self._code_file is not None:
            with contextlib.suppress(OSError):
                self._code_file.unlink(missing_ok=True)


def start_monitor(run: Run, port: int, say: Say) -> None:
    """Add the monitor to a run; whatever happens to the monitor, the run continues."""
    service = MonitorService(run.layout, port, say)
    try:
        this_machine().files.make_directory(run.layout.jobs)
        run.add_service(service)
    except (OSError, TenutoError) as error:
        service.fail(str(error))
