"""The rules of the warm launcher: what is forked, what is not, and that no death of a parent harms a job."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.spawn import SpawnLauncher
from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.launchers.warm.parent import WarmParent
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.contracts.launchers import ENDLESS, finished, locked, started, stopped
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import DESCENDANTS_BYTE, Machine

TaskBuilder = Callable[..., ReadyJob]
Run = Callable[..., Any]
Until = Callable[..., Any]
Alive = Callable[[int], bool]
Ended = Callable[[ReadyJob], Marker]
Printed = Callable[[ReadyJob], Coroutine[Any, Any, str]]

MOST_FAULTS = 1_500
"""Pages that the payload of a no-op touches; to take an interpreter apart touches thousands more."""
WAS_FORKED = 'return "--warm" in Path("/proc/self/cmdline").read_text()'


@pytest.fixture
def launcher(machine: Machine) -> Iterator[WarmLauncher]:
    launcher = WarmLauncher(machine)
    yield launcher
    launcher.close()


def parents(launcher: WarmLauncher) -> list[WarmParent]:
    """Those that have imported something."""
    return [parent for needs, parent in launcher._parents.items() if needs.classes]


# What is forked.


def test_a_task_is_forked_from_a_parent_that_imported_it(
    task: TaskBuilder, ended: Ended, launcher: WarmLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    job = task(WAS_FORKED)
    assert ended(job).result is True
    job.open_attempt()
    assert ended(job).result is True
    assert len(parents(launcher)) == 1
    assert not caplog.records


def test_a_server_has_its_parent_before_the_first_job(bench: JobBench, run: Run) -> None:
    launcher = WarmLauncher()
    launcher.warm_up()
    try:
        (parent,) = launcher._parents.values()
        run(finished(launcher, bench.command("true")))
        assert list(launcher._parents.values()) == [parent]
        assert parent.loaded
    finally:
        launcher.close()
    launcher.warm_up()
    assert not launcher._parents


def test_a_command_is_forked_too(bench: JobBench, ended: Ended, launcher: WarmLauncher) -> None:
    job = bench.command("sh", "-c", "cat /proc/$PPID/cmdline > parent")
    ended(job)
    assert "--warm" in Path(job.paths.directory, "parent").read_text()


def test_a_module_is_imported_once(task: TaskBuilder, ended: Ended, tmp_path: Path) -> None:
    note = f"with open({str(tmp_path / 'imports')!r}, 'a') as stream: stream.write('x')"
    job = task("pass", before=note)
    (tmp_path / "imports").unlink()  # this process has imported it too
    for _ in range(3):
        ended(job)
        job.open_attempt()
    job.release()
    assert (tmp_path / "imports").read_text() == "x"


def test_jobs_of_different_modules_do_not_share_a_parent(
    task: TaskBuilder, ended: Ended, launcher: WarmLauncher
) -> None:
    first = task("pass", before="import decimal\ndecimal.setcontext(decimal.Context(prec=3))")
    second = task("import decimal; return decimal.getcontext().prec")
    ended(first)
    assert ended(second).result == 28
    assert len(parents(launcher)) == 2


def test_parents_are_few(task: TaskBuilder, ended: Ended, launcher: WarmLauncher) -> None:
    for _ in range(10):
        assert ended(task(WAS_FORKED)).result is True
    assert len(parents(launcher)) == 8


AUDITED = """
imported = []
def note(event, arguments):
    if event == "import":
        imported.append((os.getpid(), arguments[0]))
sys.addaudithook(note)
class Counted:
    def __del__(self):
        imported.append((os.getpid(), "taken apart"))
kept = Counted()
def say():
    import resource as known
    mine = [name for pid, name in imported if pid == os.getpid()]
    Path("said").write_text(f"{known.getrusage(known.RUSAGE_SELF).ru_minflt} {mine}")
import atexit, resource
atexit.register(say)
"""


def test_a_task_that_does_nothing_imports_nothing_after_the_fork_and_is_not_taken_apart(
    task: TaskBuilder, ended: Ended
) -> None:
    job = task("pass", before=f"if 'pytest' not in sys.modules:\n{textwrap.indent(AUDITED, '    ')}")
    ended(job)
    faults, _, imported = Path(job.paths.directory, "said").read_text().partition(" ")
    assert imported == "[]"
    assert int(faults) < MOST_FAULTS


# Locks.


def test_a_sibling_keeps_no_lock(bench: JobBench, launcher: WarmLauncher, run: Run, machine: Machine) -> None:
    bench.machine.files.make_directory(bench.layout.root)
    token = f"{bench.layout.root}/gpu.lock"
    units = [machine.locks.try_lock(token, unit) for unit in range(8)]
    jobs = [bench.command(*ENDLESS, tokens=(unit,)) for unit in units]

    async def scenario() -> None:
        processes = await asyncio.gather(*(started(launcher, job) for job in jobs))
        runners = [process.describe()["pid"] for process in processes]
        for job, runner in zip(jobs, runners, strict=True):
            assert machine.locks.holders(job.paths.lock) == (runner,)
            assert len(machine.locks.holders(job.paths.lock, DESCENDANTS_BYTE)) == 1
        for number, (job, process) in enumerate(zip(jobs, processes, strict=True)):
            await stopped(job, process)
            assert not locked(job)
            assert not machine.locks.is_locked(token, number)

    run(scenario())


# Random numbers.


def test_random_numbers_differ_between_jobs(task: TaskBuilder, ended: Ended) -> None:
    job = task("return random.random()", before="import random; random.random()")
    drawn = set()
    for _ in range(3):
        drawn.add(ended(job).result)
        job.open_attempt()
    job.release()
    assert len(drawn) == 3


LIKE_TORCH = """
import os
from types import SimpleNamespace as A
def manual_seed(seed):
    global now
    now = seed
def rand():
    global now
    now = now * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
    return now / (1 << 64)
manual_seed(int.from_bytes(os.urandom(8), "big") | 1 << 60)
default_generator = A(initial_seed=lambda: now)
"""
"""A library that has one generator for the whole process, seeds it on import, and knows nothing of forks."""
GENERATORS = {
    "numpy": ("import numpy; numpy.random.random()", "numpy.random.random()"),
    "numpy's new": ("import numpy", "numpy.random.default_rng().random()"),
    "a library like torch": ("import torch; torch.rand()", "torch.rand()"),
    "torch": ("import torch; torch.rand(1)", "torch.rand(1)"),
    "the functions of torch": ("import torch", "torch.nn.Linear(3, 1).weight[0, 0]"),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_random_numbers_of_libraries_differ_between_jobs(
    task: TaskBuilder, ended: Ended, name: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    imports, drawn = GENERATORS[name]
    if name == "a library like torch":
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / "torch.py").write_text(LIKE_TORCH)
        imports = f"if 'pytest' not in sys.modules:\n    {imports}"
    elif "torch" in name:
        pytest.importorskip("torch", reason="PyTorch is not installed; a library like it stands in for it")
    body = f'return [float({drawn}), "--warm" in Path(f"/proc/{{os.getppid()}}/cmdline").read_text()]'
    job = task(body, before=imports)
    found = set()
    for _ in range(3):
        number, forked = ended(job).result
        assert forked, caplog.text
        found.add(number)
        job.open_attempt()
    job.release()
    assert len(found) == 3


def test_numpy_computes_in_a_fork(
    task: TaskBuilder, ended: Ended, require: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Its pool of threads was made on import, ended before the fork, and is made again."""
    require("numpy")
    body = """
    many = numpy.ones((600, 600))
    assert "--warm" in Path(f"/proc/{os.getppid()}/cmdline").read_text()
    return float((many @ many).sum())
    """
    job = task(body, before="import numpy")
    for _ in range(3):
        assert ended(job).result == 600.0**3, caplog.text
        job.open_attempt()
    job.release()


# Changes.


def test_changed_source_is_picked_up(
    task: TaskBuilder, ended: Ended, tmp_path: Path, launcher: WarmLauncher
) -> None:
    (tmp_path / "code").mkdir(exist_ok=True)
    helper = tmp_path / "code" / f"helper_of_{tmp_path.name.replace('-', '_')}.py"
    helper.write_text("answer = 1\n")
    sys.path.insert(0, str(tmp_path / "code"))
    try:
        job = task(f"return {helper.stem}.answer", before=f"import {helper.stem}")
    finally:
        sys.path.remove(str(tmp_path / "code"))
        sys.modules.pop(helper.stem)
    time.sleep(0.02)  # a file that is younger than its import counts as changed
    assert ended(job).result == 1
    (first,) = parents(launcher)
    helper.write_text("answer = 22\n")
    time.sleep(0.12)
    job.open_attempt()
    assert ended(job).result == 22
    (second,) = parents(launcher)
    assert second.pid != first.pid


def test_the_environment_is_that_of_the_launcher_at_the_start_of_each_job(
    task: TaskBuilder, ended: Ended, monkeypatch: pytest.MonkeyPatch, launcher: WarmLauncher
) -> None:
    job = task("return [os.environ.get('COLOUR'), os.environ.get('SIZE')]")
    monkeypatch.setenv("COLOUR", "red")
    assert ended(job).result == ["red", None]
    monkeypatch.setenv("COLOUR", "blue")
    monkeypatch.setenv("SIZE", "small")
    job.open_attempt()
    assert ended(job).result == ["blue", "small"]
    monkeypatch.delenv("COLOUR")
    job.open_attempt()
    assert ended(job).result == [None, "small"]
    assert len(parents(launcher)) == 1


def test_the_environment_of_a_job_is_there_when_its_modules_are_imported(
    task: TaskBuilder, ended: Ended
) -> None:
    for colour in ("red", "blue"):
        job = task(
            "return COLOUR", before="COLOUR = os.environ.get('COLOUR')", environment={"COLOUR": colour}
        )
        assert ended(job).result == colour


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LD_ANYTHING", "PYTHONUTF8"])
def test_a_variable_that_libraries_read_has_a_parent_of_its_own(
    task: TaskBuilder, ended: Ended, monkeypatch: pytest.MonkeyPatch, launcher: WarmLauncher, variable: str
) -> None:
    job = task(f"return os.environ[{variable!r}]")
    for count, value in enumerate("01", start=1):
        monkeypatch.setenv(variable, value)
        assert ended(job).result == value
        assert len(parents(launcher)) == count
        job.open_attempt()
    job.release()


def test_a_variable_that_was_read_on_import_and_changed_since_makes_a_fresh_interpreter(
    task: TaskBuilder, ended: Ended, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("COLOUR", "red")
    job = task("return COLOUR", before="COLOUR = os.environ.get('COLOUR')")
    assert ended(job).result == "red"
    assert not caplog.records
    for _ in range(2):
        monkeypatch.setenv("COLOUR", "blue")
        job.open_attempt()
        assert ended(job).result == "blue"
    assert [record.getMessage().count("reads COLOUR") for record in caplog.records] == [1]


# What looks odd and does no harm.


def test_a_module_whose_file_never_was_is_no_changed_file(
    task: TaskBuilder, ended: Ended, launcher: WarmLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    source = "odd = type(sys)('odd')\nodd.__file__ = '_ops.py'\nsys.modules['odd'] = odd"
    job = task(WAS_FORKED, before=source)
    sys.modules.pop("odd")
    assert ended(job).result is True
    assert len(parents(launcher)) == 1
    assert not caplog.records


def test_a_generator_of_random_numbers_that_belongs_to_an_installed_package_is_its_own_affair(
    task: TaskBuilder, ended: Ended, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    installed = tmp_path / "lib" / "site-packages"
    installed.mkdir(parents=True)
    name = f"installed_{tmp_path.name.replace('-', '_')}"
    (installed / f"{name}.py").write_text(
        "import random\nkept = random.Random(3)\ndef draw(): return kept.random()"
    )
    job = task(WAS_FORKED, before=f"sys.path.append({str(installed)!r})\nimport {name}\ndraw = {name}.draw")
    sys.path.remove(str(installed))
    assert ended(job).result is True
    assert not caplog.records


def test_a_file_that_changes_at_every_import_is_given_up_and_said_once(
    task: TaskBuilder, ended: Ended, launcher: WarmLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    job = task(WAS_FORKED, before="if 'pytest' not in sys.modules:\n    os.utime(__file__)")
    for _ in range(3):
        marker = ended(job)
        assert marker.result is False
        assert "changes while it is imported" in marker.provenance["fresh"]
        job.open_attempt()
    job.release()
    (record,) = caplog.records
    assert launcher.remarks() == [record.getMessage()]


# What is not forked.

UNFIT = {
    "threads": (
        "import threading\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        "threads",
    ),
    "a process": ("import subprocess\nkept = subprocess.Popen(['sleep', '0.2'])", "processes"),
    "an open file": ("kept = open(__file__)", "open"),
    "a socket": ("import socket\nkept = socket.socket()", "open"),
    "a signal handler": ("import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)", "signals"),
    "a seed": ("import random\nrandom.seed(3)", "seeds"),
    "a generator": ("import random\nkept = random.Random(3)", "random numbers"),
    "the directory": ("kept = Path.cwd()", "directory"),
    "a relative path": ("kept = os.path.abspath('data')", "directory"),
    "torch's CUDA": (
        "from types import SimpleNamespace as A\nsys.modules['torch'] = A(cuda=A(is_initialized=lambda: 1))",
        "CUDA",
    ),
    "a seed of numpy": ("import numpy\nnumpy.random.seed(3)", "seeds `numpy.random`"),
    "a seed of torch": (
        "class torch:\n class default_generator:\n  initial_seed = lambda: 42\nsys.modules['torch'] = torch",
        "seeds `torch`",
    ),
    "a generator of numpy": ("import numpy\nkept = numpy.random.default_rng()", "random numbers"),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_what_a_fork_would_share_goes_to_a_fresh_interpreter_and_is_said_once(
    task: TaskBuilder,
    ended: Ended,
    kind: str,
    require: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
    launcher: WarmLauncher,
) -> None:
    source, said = UNFIT[kind]
    if "numpy" in kind:
        require("numpy")
    job = task(WAS_FORKED, before=f"if 'pytest' not in sys.modules:\n{textwrap.indent(source, '    ')}")
    for _ in range(2):
        marker = ended(job)
        assert marker.result is False
        assert said in marker.provenance["fresh"]
        job.open_attempt()
    job.release()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert said in record.getMessage()
    assert "execute()" in record.getMessage()  # the remedy
    assert launcher.remarks() == [record.getMessage()]
    assert job.paths.directory not in record.getMessage()
    assert not parents(launcher)


def test_a_fallback_starts_as_few_interpreters_as_spawn(
    task: TaskBuilder, machine: Machine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is known that a job cannot be forked, no parent is made for it again."""
    started: list[str] = []
    spawn = os.posix_spawn

    def counted(path: str, *arguments: Any, **named: Any) -> int:
        started.append(path)
        return spawn(path, *arguments, **named)

    job = task("pass", before="if 'pytest' not in sys.modules:\n    kept = open(__file__)")
    counts = []
    for kind in (WarmLauncher, SpawnLauncher):
        with contextlib.closing(kind(machine)) as launcher:
            run(finished(launcher, job)).close()
            with monkeypatch.context() as patched:
                patched.setattr(os, "posix_spawn", counted)
                for _ in range(3):
                    job.open_attempt()
                    run(finished(launcher, job)).close()
        job.open_attempt()
        counts.append(len(started))
        started.clear()
    job.release()
    assert counts[0] <= counts[1]


def test_a_gpu_that_is_open_is_noticed(
    task: TaskBuilder, ended: Ended, caplog: pytest.LogCaptureFixture
) -> None:
    device = Path("/dev/nvidia-of-a-test")
    try:
        device.touch()
    except OSError:
        pytest.skip("this user cannot make a file in /dev")
    try:
        assert ended(task(WAS_FORKED, before=f"kept = os.open({str(device)!r}, os.O_RDONLY)")).result is False
    finally:
        device.unlink()
    assert "opens a GPU" in caplog.text


def test_a_repaired_module_is_forked_again(
    task: TaskBuilder, ended: Ended, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    job = task(WAS_FORKED, before="import random; random.seed(3)")
    assert ended(job).result is False
    (file,) = (tmp_path / "code").glob("code_*.py")
    file.write_text(file.read_text().replace("random.seed(3)", ""))
    job.open_attempt()
    assert ended(job).result is True


def test_a_large_parent_forks_nothing(
    task: TaskBuilder, machine: Machine, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    launcher = WarmLauncher(machine, memory_limit=1 << 20)
    job = task(WAS_FORKED)
    run(finished(launcher, job))
    launcher.close()
    assert job.marker().result is False
    assert "memory" in caplog.text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('no such luck')", "no such luck"),
        ("os._exit(9)", "exited with code 9"),
        ("sys.exit(9)", "sys.exit(9)"),
        ("os.kill(os.getpid(), 11)", "SIGSEGV"),
    ],
)
def test_a_module_that_cannot_be_imported_shows_in_its_job(
    task: TaskBuilder, ended: Ended, source: str, message: str
) -> None:
    job = task("pass", before=f"if 'pytest' not in sys.modules: {source}")
    for _ in range(2):
        marker = ended(job)
        assert marker.reason is JobFailureStatus.FAILED
        assert message in (marker.message or "")
        job.open_attempt()
    job.release()


def test_a_module_that_hangs_shows_in_its_job(
    task: TaskBuilder, machine: Machine, run: Run, printed: Printed, alive: Alive
) -> None:
    launcher = WarmLauncher(machine, import_takes_s=0.5)
    job = task("pass", before="if 'pytest' not in sys.modules: print('here', flush=True); time.sleep(1000)")

    async def scenario() -> None:
        process = await started(launcher, job)
        assert await printed(job) == "here\n"
        await stopped(job, process)

    run(scenario())
    launcher.close()
    assert job.marker().reason is JobFailureStatus.CANCELLED


def test_a_job_that_is_started_after_the_end_is_not_forked(
    task: TaskBuilder, ended: Ended, launcher: WarmLauncher
) -> None:
    """Nobody would end its parent."""
    launcher.close()
    assert ended(task(WAS_FORKED)).result is False
    assert not parents(launcher)


def test_a_parent_that_is_slow_to_end_is_buried_by_the_next_launcher(
    task: TaskBuilder, ended: Ended, launcher: WarmLauncher, machine: Machine, until: Until
) -> None:
    ended(task("pass"))
    (parent,) = parents(launcher)
    os.kill(parent.pid, signal.SIGSTOP)
    launcher.close()
    os.kill(parent.pid, signal.SIGCONT)
    until(lambda: (WarmLauncher(machine).close(), not Path(f"/proc/{parent.pid}").exists())[1])
    assert not parents(launcher)


# The death of a parent.


def test_a_parent_that_is_killed_before_it_was_told_anything_fails_no_job(
    task: TaskBuilder, ended: Ended, launcher: WarmLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the soak: the job failed with BrokenPipeError."""
    spawn = WarmParent._spawn

    def killed(self: WarmParent, *arguments: Any) -> int:
        pid = spawn(self, *arguments)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return pid

    monkeypatch.setattr(WarmParent, "_spawn", killed)
    assert ended(task(WAS_FORKED)).result is False
    assert not parents(launcher)


def test_a_killed_parent_harms_no_job_that_runs(
    task: TaskBuilder, run: Run, launcher: WarmLauncher, printed: Printed
) -> None:
    job = task("print('here'); Path('go').exists() or time.sleep(0.3); return 5")

    async def scenario() -> None:
        process = await started(launcher, job)
        await printed(job)
        (parent,) = parents(launcher)
        os.kill(parent.pid, signal.SIGKILL)
        await process.wait()
        process.close()

    run(scenario())
    assert job.marker().result == 5


def test_a_parent_that_died_meanwhile_is_replaced(
    task: TaskBuilder, ended: Ended, launcher: WarmLauncher, until: Until, alive: Alive
) -> None:
    job = task(WAS_FORKED)
    ended(job)
    (parent,) = parents(launcher)
    os.kill(parent.pid, signal.SIGKILL)
    until(lambda: not alive(parent.pid), "its death")
    job.open_attempt()
    assert ended(job).result is True


def test_a_parent_that_dies_with_an_order_in_its_hands_has_started_nothing(
    task: TaskBuilder, ended: Ended, run: Run, launcher: WarmLauncher
) -> None:
    job = task(WAS_FORKED)
    ended(job)
    job.open_attempt()
    (parent,) = parents(launcher)

    async def scenario() -> None:
        os.kill(parent.pid, signal.SIGSTOP)
        starting = asyncio.ensure_future(launcher.start(job.order))
        await asyncio.sleep(0.05)
        assert not starting.done()
        os.kill(parent.pid, signal.SIGKILL)
        with pytest.raises(OSError, match="died") as raised:
            await starting
        assert raised.value.errno == errno.EAGAIN

    run(scenario())
    job.release()
    assert not locked(job)
    job.open_attempt()
    assert ended(job).result is True


def test_a_parent_that_does_not_answer_is_given_up(
    task: TaskBuilder, machine: Machine, run: Run, until: Until, alive: Alive
) -> None:
    launcher = WarmLauncher(machine, answer_takes_s=0.3)
    job = task(WAS_FORKED)
    run(finished(launcher, job))
    job.open_attempt()
    (parent,) = parents(launcher)
    os.kill(parent.pid, signal.SIGSTOP)

    async def scenario() -> None:
        with pytest.raises(BlockingIOError, match="died"):
            await launcher.start(job.order)
        await finished(launcher, job)

    run(scenario())
    launcher.close()
    assert job.marker().result is True
    assert not alive(parent.pid)


def test_a_runner_whose_parent_died_before_it_answered_is_found(
    task: TaskBuilder, ended: Ended, run: Run, launcher: WarmLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost: the runner says by itself, through its pipe, that it is up."""
    for seconds in (0.3, 0):  # it runs on; it has ended by then
        job = task(f"time.sleep({seconds}); return 5")
        ended(job)
        job.open_attempt()
        taking = WarmParent._take
        monkeypatch.setattr(WarmParent, "_take", lambda self: None)

        async def scenario(job: ReadyJob = job, taking: Any = taking) -> None:
            parent = parents(launcher)[-1]
            starting = asyncio.ensure_future(launcher.start(job.order))
            await asyncio.sleep(0.15)  # it was forked, and the answer lies in the socket
            os.kill(parent.pid, signal.SIGKILL)
            parent._settle_all(parent_gone())
            process = await starting
            assert await process.confirmed()
            job.release()
            await process.wait()
            process.signal_stop()
            process.close()

        run(scenario())
        monkeypatch.undo()
        assert job.marker().result == 5
        assert job.marker().attempt == 2


def parent_gone() -> Exception:
    from tenuto.launchers.warm.parent import ParentGone

    return ParentGone()


def test_a_parent_without_descriptors_is_an_error_that_may_pass(
    task: TaskBuilder, ended: Ended, run: Run, launcher: WarmLauncher
) -> None:
    job = task(WAS_FORKED)
    ended(job)
    job.open_attempt()
    (parent,) = parents(launcher)
    before = resource.prlimit(parent.pid, resource.RLIMIT_NOFILE)

    async def scenario() -> None:
        for room in (0, 1, 2):
            used = set(map(int, os.listdir(f"/proc/{parent.pid}/fd")))
            limit = [fd for fd in range(1000) if fd not in used][room]
            resource.prlimit(parent.pid, resource.RLIMIT_NOFILE, (limit, before[1]))
            with pytest.raises(OSError, match="descriptor") as raised:
                await launcher.start(job.order)
            assert raised.value.errno == errno.EMFILE
        resource.prlimit(parent.pid, resource.RLIMIT_NOFILE, before)

    run(scenario())
    assert ended(job).result is True
    assert parents(launcher) == [parent]


def test_a_parent_that_cannot_fork_is_an_error_that_may_pass(
    task: TaskBuilder, ended: Ended, run: Run, launcher: WarmLauncher, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    refusing = f"""
    serving = sys.modules.get("tenuto.launchers.warm.parent_process")
    if serving is not None and "pytest" not in sys.modules:
        def fork(fork=serving.fork_quietly):
            if os.path.exists({str(full)!r}):
                raise BlockingIOError(11, "Resource temporarily unavailable")
            return fork()
        serving.fork_quietly = fork
    """
    job = task(WAS_FORKED, before=refusing)
    assert ended(job).result is True
    job.open_attempt()
    full.touch()

    async def scenario() -> None:
        with pytest.raises(BlockingIOError, match="fork"):
            await launcher.start(job.order)

    run(scenario())
    full.unlink()
    assert ended(job).result is True


def test_a_launcher_without_descriptors_leaves_no_runner_that_nobody_watches(
    task: TaskBuilder, ended: Ended, run: Run, launcher: WarmLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenuto.launchers.warm import parent as parent_module

    job = task("time.sleep(1000)")
    ended_quickly = task("pass")
    ended(ended_quickly)

    def none_left(pid: int, flags: int = 0) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    receive = parent_module.receive

    def cut(at: Any) -> Any:
        received = receive(at)
        if received is not None and received.descriptors:
            parent_module.close_all(received.descriptors)
            return received._replace(descriptors=[], cut=True)
        return received

    monkeypatch.setattr(parent_module, "receive", cut)
    monkeypatch.setattr(os, "pidfd_open", none_left)

    async def scenario() -> None:
        with pytest.raises(OSError, match="Too many"):
            await launcher.start(job.order)

    run(scenario())
    monkeypatch.undo()
    job.release()
    deadline = time.monotonic() + 60
    while locked(job):
        assert time.monotonic() < deadline, "its runner continues"
        time.sleep(0.01)


# The end of a parent.


def test_a_parent_ends_with_its_launcher(
    task: TaskBuilder, ended: Ended, launcher: WarmLauncher, until: Until, alive: Alive
) -> None:
    ended(task("pass"))
    (parent,) = parents(launcher)
    assert alive(parent.pid)
    launcher.close()
    assert not Path(f"/proc/{parent.pid}").exists()


@pytest.mark.parametrize("forked", [False, True])
def test_a_parent_ends_with_the_process_of_its_launcher(
    bench: JobBench, until: Until, alive: Alive, forked: bool
) -> None:
    """Also if a process that the launcher's process forked keeps the socket open."""
    code = f"""
import asyncio, os, signal, time
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.testing.contracts.launchers import started
from tenuto.testing.jobs import JobBench
from tenuto.workspace.machine import this_machine
bench = JobBench({bench.layout.root!r}, this_machine())
launcher = WarmLauncher(bench.machine)
asyncio.run(started(launcher, bench.command("sleep", "0.2")))
print(launcher._parents.popitem()[1].pid, flush=True)
if {forked} and os.fork() == 0:
    os.close(1)
    time.sleep(5)
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    pid = int(done.stdout)
    until(lambda: not alive(pid), "the end of the parent")
    paths = bench.layout.job("bench.work", "job-1")
    assert until(lambda: Path(paths.done).exists(), "the marker of the job that went on")


def test_zombies_are_buried(bench: JobBench, ended: Ended, launcher: WarmLauncher, until: Until) -> None:
    for _ in range(3):
        assert ended(bench.command("true")).reason is None
    (parent,) = launcher._parents.values()
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    until(lambda: not children.read_text(), "the burial")
