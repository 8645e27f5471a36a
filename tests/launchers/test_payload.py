"""What a Python task finds in its job, and how its end is told: results, exceptions, exits, output."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tenuto.launchers.outputs import read_outputs
from tenuto.launchers.payload.assignment import Assignment
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.results import readable
from tenuto.launchers.spawn import SpawnLauncher
from tenuto.lifecycle.events import JobProgressEvent
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.contracts.launchers import finished
from tenuto.testing.jobs import TASK_ID, JobBench, ReadyJob
from tenuto.workspace.job_directory import read_result
from tenuto.workspace.journal import EventReader
from tenuto.workspace.markers import Marker

Ended = Callable[[ReadyJob], Marker]
TaskBuilder = Callable[..., ReadyJob]


def out(job: ReadyJob) -> str:
    return Path(job.paths.out).read_text("utf-8")


def err(job: ReadyJob) -> str:
    return Path(job.paths.err).read_text("utf-8")


# What it is told.


def test_an_assignment_survives_the_command_line() -> None:
    told = Assignment("/tmp/a b", "Aufgabe", "/tmp", "модуль.Задача", "0a", 3, 12.5)
    heard = Assignment.from_argument(told.argument())
    names = [name for name in Assignment.__slots__ if name[0] != "_"]
    assert [getattr(heard, name) for name in names] == [getattr(told, name) for name in names]


# Results.


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        ("None", None),
        ("{'loss': 0.5, 'epochs': [1, 2]}", {"loss": 0.5, "epochs": [1, 2]}),
        ("(1, 'two', True)", [1, "two", True]),
        ("Path('a/b')", "a/b"),
        (
            "Score(name='x', parts=[Score(name='y', parts=[])])",
            {"name": "x", "parts": [{"name": "y", "parts": []}]},
        ),
        ("Colour.RED", "RED"),
        ("{1: 'one'}", {"1": "one"}),
        ("Pair(Pair(1, [2]), ('a', 'b'))", {"left": {"left": 1, "right": [2]}, "right": ["a", "b"]}),
        ("'é\\ud800'", "é\ud800"),
    ],
)
def test_a_small_result_is_in_the_marker(
    task: TaskBuilder, ended: Ended, expression: str, kept: object
) -> None:
    before = """
    from dataclasses import dataclass
    from enum import IntEnum

    @dataclass
    class Score:
        name: str
        parts: list

    class Colour(IntEnum):
        RED = 1

    from typing import NamedTuple

    class Pair(NamedTuple):
        left: object
        right: object
    """
    marker = ended(task(f"return {expression}", before=before))
    assert (marker.reason, readable(marker.result), marker.result_stored) == (None, kept, False)


def test_a_large_result_has_its_own_file(task: TaskBuilder, ended: Ended, bench: JobBench) -> None:
    job = task("return list(range(100_000))")
    marker = ended(job)
    assert marker.result_stored
    assert read_result(bench.machine.files, job.paths, marker) == list(range(100_000))


def test_a_task_may_call_its_own_file_result_json(task: TaskBuilder, ended: Ended, bench: JobBench) -> None:
    """Ours had that name: it overwrote the task's, and a restart deleted it."""
    body = """
    own = Path("result.json")
    seen = own.read_text() if own.exists() else "nothing"
    own.write_text("mine")
    return [seen] * 10_000
    """
    job = task(body)
    marker = ended(job)
    assert marker.result_stored
    assert read_result(bench.machine.files, job.paths, marker)[0] == "nothing"
    job.open_attempt()
    marker = ended(job)
    assert read_result(bench.machine.files, job.paths, marker)[0] == "mine"
    assert Path(job.paths.directory, "result.json").read_text() == "mine"


def test_a_result_that_cannot_be_kept_does_not_undo_the_work(task: TaskBuilder, ended: Ended) -> None:
    job = task("return object()")
    marker = ended(job)
    assert (marker.reason, marker.result) == (None, None)
    assert marker.flags == ("result_not_kept",)
    assert "object is of no kind that is kept" in (marker.message or "")
    assert "see docs/experiments.md" in err(job)


REFUSES = """
from dataclasses import dataclass

@dataclass
class Refuses:
    x: int = 0
    def __getattribute__(self, name):
        return 1 / 0 if name == "__dict__" else object.__getattribute__(self, name)
"""


@pytest.mark.parametrize(
    "value",
    [
        "__import__('numpy').ma.masked_array([1], [True])",
        "Refuses()",
        "{Refuses: 1}",
        "type('A', (dict,), {})()",
    ],
)
def test_a_result_that_cannot_be_kept_never_fails_its_job(
    task: TaskBuilder, ended: Ended, value: str
) -> None:
    marker = ended(task(f"return {value}", before=REFUSES))
    assert (marker.reason, marker.result, marker.flags) == (None, None, ("result_not_kept",))


def test_a_result_that_contains_itself_is_not_kept(task: TaskBuilder, ended: Ended) -> None:
    assert ended(task("x = []; x.append(x); return x")).flags == ("result_not_kept",)


# Ends.


def test_an_exception_is_in_the_log_and_its_gist_in_the_marker(task: TaskBuilder, ended: Ended) -> None:
    job = task("print('before'); raise ValueError('no such thing')")
    marker = ended(job)
    assert (marker.reason, marker.exit_code) == (JobFailureStatus.FAILED, 1)
    assert (marker.message or "").startswith("ValueError: no such thing (")
    assert "Traceback" in err(job)
    assert "tenuto/launchers" not in err(job)
    assert out(job) == "before\n"


@pytest.mark.parametrize(
    ("statement", "reason", "code", "message"),
    [
        ("sys.exit()", None, 0, None),
        ("sys.exit(0)", None, 0, None),
        ("sys.exit(7)", JobFailureStatus.FAILED, 7, "sys.exit(7)"),
        ("sys.exit(256)", JobFailureStatus.FAILED, 0, "sys.exit(256)"),
        ("sys.exit('a reason')", JobFailureStatus.FAILED, 1, "a reason"),
        ("os._exit(0)", JobFailureStatus.FAILED, 0, "before execute() returned"),
        ("os._exit(9)", JobFailureStatus.FAILED, 9, "code 9"),
        ("raise KeyboardInterrupt", JobFailureStatus.FAILED, 1, "KeyboardInterrupt"),
        ("raise MemoryError('all gone')", JobFailureStatus.MEMORY, 1, "all gone"),
        ("raise OSError(28, 'No space left')", JobFailureStatus.FAILED, 1, "DISK_FULL"),
        (
            "from tenuto.errors import GracefulTimeout; raise GracefulTimeout('later')",
            JobFailureStatus.TIMEOUT,
            1,
            "later",
        ),
    ],
)
def test_every_way_to_leave_is_told(
    task: TaskBuilder,
    ended: Ended,
    statement: str,
    reason: JobFailureStatus | None,
    code: int,
    message: str | None,
) -> None:
    marker = ended(task(statement))
    assert (marker.reason, marker.exit_code) == (reason, code)
    assert (message or "") in (marker.message or "")


@pytest.mark.parametrize("number", [9, 11, 6])
def test_a_killed_payload_is_a_failure_with_its_signal(task: TaskBuilder, ended: Ended, number: int) -> None:
    marker = ended(task(f"os.kill(os.getpid(), {number})"))
    assert (marker.reason, marker.signal, marker.exit_code) == (JobFailureStatus.FAILED, number, None)


def test_a_task_that_cannot_be_imported_fails_with_the_reason(
    task: TaskBuilder, ended: Ended, tmp_path: Path
) -> None:
    job = task("pass")
    for file in (tmp_path / "code").glob("*.py"):
        file.write_text("class Other: pass")
    marker = ended(job)
    assert marker.reason is JobFailureStatus.FAILED
    assert "ClassNotFound" in (marker.message or "")


def test_functions_registered_at_exit_are_called_and_buffers_are_flushed(
    task: TaskBuilder, ended: Ended
) -> None:
    before = """
    import atexit, threading
    kept = []
    def late():
        time.sleep(0.05)
        Path("thread").write_text("joined")
    """
    body = """
    stream = open("buffered", "w"); stream.write("everything"); kept.append(stream)
    atexit.register(lambda: Path("atexit").write_text("called"))
    threading.Thread(target=late).start()
    sys.stdout.write("no newline")
    """
    job = task(body, before=before)
    assert ended(job).reason is None
    directory = Path(job.paths.directory)
    assert (directory / "buffered").read_text() == "everything"
    assert (directory / "atexit").read_text() == "called"
    assert (directory / "thread").read_text() == "joined"
    assert out(job) == "no newline"


# Output.


def test_nothing_printed_is_lost_when_the_payload_is_killed(task: TaskBuilder, ended: Ended) -> None:
    job = task("print('a line'); print('an error', file=sys.stderr); os.kill(os.getpid(), 9)")
    ended(job)
    assert out(job) == "a line\n"
    assert err(job) == "an error\n"


@pytest.mark.parametrize("statement", ["sys.stdout.close()", "os.close(1); os.close(2)", "sys.stdout = None"])
def test_a_task_may_close_its_output(task: TaskBuilder, ended: Ended, statement: str) -> None:
    marker = ended(task(f"{statement}\nreturn 1"))
    assert (marker.reason, marker.result) == (None, 1)


def test_output_need_not_be_text(task: TaskBuilder, ended: Ended) -> None:
    job = task("os.write(1, bytes(range(256))); print('\\udc80 é')")
    assert ended(job).reason is None
    assert Path(job.paths.out).read_bytes().startswith(bytes(range(256)))


def test_output_of_a_c_library_and_of_children_is_in_the_log(task: TaskBuilder, ended: Ended) -> None:
    job = task("print('first'); os.system('echo second'); print('third')")
    ended(job)
    assert out(job) == "first\nsecond\nthird\n"


# Surroundings.


def test_the_environment_is_added_to_the_inherited_one(
    task: TaskBuilder, ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "from the scheduler")
    monkeypatch.setenv("CHANGED", "before")
    body = "return [os.environ[name] for name in ('INHERITED', 'ADDED', 'CHANGED')]"
    marker = ended(task(body, environment={"ADDED": "by the job", "CHANGED": "after"}))
    assert marker.result == ["from the scheduler", "by the job", "after"]


def test_a_task_runs_in_its_directory_with_the_submitters_import_path(
    task: TaskBuilder, ended: Ended, tmp_path: Path
) -> None:
    job = task("import sys as s; return [os.getcwd(), s.path, s.argv[1:], __name__]")
    directory, path, arguments, name = ended(job).result
    assert directory == job.paths.directory
    assert path == [str(tmp_path / "code"), *sys.path]
    assert arguments == []
    assert name.startswith("code_")


def test_a_payload_inherits_no_descriptor_but_the_second_byte(task: TaskBuilder, ended: Ended) -> None:
    body = """
    import fcntl
    inheritable = [fd for fd in map(int, os.listdir('/proc/self/fd'))
                   if fd > 2 and os.path.exists(f'/proc/self/fd/{fd}')
                   and not fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC]
    return [os.readlink(f'/proc/self/fd/{fd}') for fd in inheritable]
    """
    job = task(body)
    assert ended(job).result == [job.paths.lock]


def test_a_task_knows_its_attempt_and_its_remaining_time(
    task: TaskBuilder, ended: Ended, run: Callable[..., object], launcher: Launcher
) -> None:
    from tenuto.launchers.instructions import Limits

    job = task("return [self.job_attempt, self.remaining_time()]", limits=Limits(walltime_s=1000))
    ended(job)
    job.open_attempt()
    attempt, remaining = ended(job).result
    assert attempt == 2
    assert 900 < remaining < 1000
    assert ended(task("return self.remaining_time()")).result is None


def test_progress_is_in_the_journal_of_the_job(task: TaskBuilder, ended: Ended, bench: JobBench) -> None:
    body = """
    from tenuto.tasks.ports import job_context
    for step in range(1000):
        job_context().progress(step / 1000, 0, 'training')
    job_context().progress(0.5, 1, None)
    """
    job = task(body)
    ended(job)
    reader = EventReader(bench.machine.files, bench.layout.job_journal(TASK_ID, job.job_id))
    events = [entry.event for entry in reader.read() if isinstance(entry.event, JobProgressEvent)]
    outer = [event for event in events if event.level == 0]
    assert outer[0].progress == 0.0
    assert outer[-1].progress == 0.999  # what was held back comes at the end
    assert len(outer) < 50
    assert [(event.progress, event.attempt) for event in events if event.level == 1] == [(0.5, 1)]


def test_task_outputs_name_the_config_and_the_method(
    module: Callable[[str], ModuleType], ended: Ended, bench: JobBench, tmp_path: Path
) -> None:
    source = """
    class Validation(Config):
        def compute(self, step):
            self.register_task_output(self.compute, step)

    class Train(Task):
        validations: Param[list[Validation]]
        def execute(self):
            for step in range(3):
                self.validations[step % 2].compute(step)
    """
    made = module(source)
    config = made.Train.C(validations=[made.Validation.C(), made.Validation.C()])
    job = bench.task(config, import_path=[str(tmp_path / "code"), *sys.path])
    assert ended(job).reason is None
    job.open_attempt()
    assert ended(job).reason is None
    outputs, offset = read_outputs(bench.machine.files, job.paths)
    assert [(o.attempt, o.sequence, o.config, o.method, o.arguments) for o in outputs][:3] == [
        (1, 1, ("validations", 0), "compute", (0,)),
        (1, 2, ("validations", 1), "compute", (1,)),
        (1, 3, ("validations", 0), "compute", (2,)),
    ]
    assert [output.attempt for output in outputs] == [1, 1, 1, 2, 2, 2]
    assert read_outputs(bench.machine.files, job.paths, offset) == ([], offset)


def test_init_tasks_run_before_the_task(
    module: Callable[[str], ModuleType], ended: Ended, bench: JobBench, tmp_path: Path
) -> None:
    source = """
    class First(LightweightTask):
        def execute(self):
            print("first")

    class Work(Task):
        def execute(self):
            print("then")
    """
    made = module(source)
    from tenuto.tasks.task import _set_init_tasks

    config = made.Work.C()
    _set_init_tasks(config, [made.First.C()])
    job = bench.task(config, import_path=[str(tmp_path / "code"), *sys.path])
    assert ended(job).reason is None
    assert out(job) == "first\nthen\n"


def test_the_digest_of_the_tasks_file_is_recorded(task: TaskBuilder, ended: Ended, tmp_path: Path) -> None:
    import hashlib

    record = ended(task("return 1")).record
    ((file, digest),) = record["files"].items()
    assert digest == hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def test_usage_is_recorded(task: TaskBuilder, ended: Ended) -> None:
    usage = ended(
        task("x = bytearray(60_000_000); t = time.process_time()\nwhile time.process_time() < t + 0.1: pass")
    ).usage
    assert usage["user_s"] + usage["system_s"] >= 0.1
    assert usage["max_rss_bytes"] >= 60_000_000
    assert usage["wall_s"] > 0


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_task_may_use_multiprocessing(task: TaskBuilder, ended: Ended, method: str) -> None:
    before = """
    def double(x):
        return 2 * x
    """
    body = f"""
    import multiprocessing
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        return pool.map(double, [1, 2, 3])
    """
    job = task(body, before=before)
    marker = ended(job)
    assert marker.reason is None, err(job)
    assert marker.result == [2, 4, 6]
    assert marker.flags == ()


# By hand.


def by_hand(job: ReadyJob) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, job.paths.script], capture_output=True, text=True, timeout=60, check=False, cwd="/"
    )


def test_a_person_can_run_a_job_by_hand(task: TaskBuilder) -> None:
    job = task("print('hello'); print(os.getcwd()); return [1, 2]", environment={"X": "1"})
    job.release()
    done = by_hand(job)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"hello\n{job.paths.directory}\n[1, 2]\n"
    assert not job.has_marker()


def test_a_job_run_by_hand_shows_its_exception(task: TaskBuilder) -> None:
    job = task("raise ValueError('oh')")
    job.release()
    done = by_hand(job)
    assert done.returncode == 1
    assert "ValueError: oh" in done.stderr


def test_a_command_can_be_run_by_hand(bench: JobBench) -> None:
    job = bench.command("sh", "-c", "echo $X; exit 4", environment={"X": "added"})
    job.release()
    done = by_hand(job)
    assert (done.returncode, done.stdout) == (4, "added\n")


def test_a_running_job_is_not_run_by_hand(task: TaskBuilder) -> None:
    job = task("pass")
    done = by_hand(job)
    assert done.returncode == 75
    assert "is running" in done.stderr
    job.release()


# Commands.


def test_a_command_finds_its_files_in_its_directory(bench: JobBench, ended: Ended, tmp_path: Path) -> None:
    script = tmp_path / "original"
    script.write_text("#!/bin/sh\ncat data/in.txt; echo $0 $1 $EXTRA\n")
    script.chmod(0o755)
    data = tmp_path / "data"
    data.write_text("input\n")
    files = {"run.sh": str(script), "data/in.txt": str(data)}
    job = bench.command("./run.sh", "argument", files=files, environment={"EXTRA": "more"})
    assert ended(job).reason is None
    assert out(job) == "input\n./run.sh argument more\n"


def test_a_command_task_runs_as_submitted(bench: JobBench, ended: Ended, tmp_path: Path) -> None:
    from tenuto import CommandTask, input_file

    (tmp_path / "x").write_text("content")
    config = CommandTask.C(
        command=["sh", "-c", "cat x; echo $NAME"],
        files={"x": input_file(tmp_path / "x")},
        environment={"NAME": "n"},
    )
    job = bench.task(config)
    assert ended(job).reason is None
    assert out(job) == "contentn\n"


def test_a_very_long_command_is_read_from_the_parameters(bench: JobBench, ended: Ended) -> None:
    from tenuto import CommandTask

    config = CommandTask.C(command=["sh", "-c", "printf %s $#", *["x" * 50] * 2000])
    job = bench.task(config)
    assert ended(job).reason is None
    assert out(job) == "1999"


def test_a_command_that_cannot_be_executed_says_so(bench: JobBench, ended: Ended, tmp_path: Path) -> None:
    (tmp_path / "not-executable").write_text("x")
    for arguments, code in [
        (("no-such-program",), 127),
        (("./missing",), 127),
        ((str(tmp_path / "not-executable"),), 126),
        ((str(tmp_path),), 126),
        (("a\0b",), 126),
        (("sh", "-c", "x" * 40_000, "y" * 200_000), 126),
    ]:
        if sum(map(len, arguments)) > 30_000:
            from tenuto import CommandTask

            job = bench.task(CommandTask.C(command=list(arguments)))
        else:
            job = bench.command(*arguments)
        marker = ended(job)
        assert (marker.reason, marker.exit_code) == (JobFailureStatus.FAILED, code), arguments
        assert (marker.message or "").startswith("EXEC: ")
        assert "EXEC" in err(job)


def test_a_missing_input_file_is_named(bench: JobBench, ended: Ended) -> None:
    marker = ended(bench.command("true", files={"x": "/no/such/file"}))
    assert "/no/such/file" in (marker.message or "")


def test_programs_started_by_a_command_meet_usual_signals(bench: JobBench, ended: Ended) -> None:
    job = bench.command("sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status")
    ended(job)
    blocked, ignored = (int(line.split()[1], 16) for line in out(job).splitlines())
    assert blocked == 0
    assert ignored & ~0x180000000 == 0  # two that glibc keeps for itself


def test_the_runner_is_refused_without_an_interpreter(bench: JobBench, run: Callable[..., object]) -> None:
    from tenuto.errors import LaunchRefused

    job = bench.command("true")
    with pytest.raises(LaunchRefused, match="EXEC"):
        run(finished(SpawnLauncher(bench.machine, python="/no/such/python"), job))
    job.release()
