"""What tasks do with their process, be it a fresh interpreter or a fork of one that is warm."""

from __future__ import annotations

import dbm.dumb
import gzip
import shelve
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.warm.launcher import WarmLauncher
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.contracts.launchers import finished
from tenuto.testing.jobs import ReadyJob
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import Machine

TaskBuilder = Callable[..., ReadyJob]
Ended = Callable[[ReadyJob], Marker]

GOOD_HABITS = {
    "fork": """
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    """,
    "fork and return": """
        pid = os.fork()
        if pid == 0:
            return 1
        os.waitpid(pid, 0)
        return 7
    """,
    "subprocess": """
        import subprocess
        return subprocess.run([sys.executable, "-c", "raise SystemExit(7)"]).returncode
    """,
    "multiprocessing": """
        import multiprocessing
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return sum(pool.map(abs, [-3, -4]))
    """,
    "executor": """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(abs, [-3, -4]))
    """,
    "asyncio": """
        import asyncio
        async def main():
            process = await asyncio.create_subprocess_exec("sh", "-c", "exit 7")
            return await process.wait()
        return asyncio.run(main())
    """,
    "change of directory": """
        os.chdir("/")
        return 7
    """,
    "closed standard streams": """
        sys.stdout.close(); sys.stderr.close()
        return 7
    """,
    "closed descriptors": """
        os.close(1); os.close(2)
        return 7
    """,
    "daemon thread": """
        import threading
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        return 7
    """,
    "text and bytes in memory": """
        import io
        global kept
        kept = [io.StringIO("a"), io.BytesIO(b"a"), io.TextIOWrapper(io.BytesIO())]
        return 7
    """,
    "sys.argv": "return 7 if len(sys.argv) == 1 else sys.argv",
    "signals": """
        import signal
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
        return 7
    """,
    "child of its runner": """
        import ctypes
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return 7 if not children and os.getpgrp() == os.getpid() else children
    """,
}


@pytest.mark.parametrize("habit", GOOD_HABITS)
def test_a_task_may(task: TaskBuilder, ended: Ended, habit: str) -> None:
    marker = ended(task(GOOD_HABITS[habit]))
    assert (marker.reason, marker.result) == (None, 7), marker.message


BAD_HABITS = {
    "sys.exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(4)", 4),
    "exit in a forked child's name": ("os.fork(); sys.exit(5)", 5),
    "abort": ("os.abort()", None),
}


@pytest.mark.parametrize("habit", BAD_HABITS)
def test_a_task_that_leaves_early_fails(task: TaskBuilder, ended: Ended, habit: str) -> None:
    body, code = BAD_HABITS[habit]
    marker = ended(task(body))
    assert (marker.reason, marker.exit_code) == (JobFailureStatus.FAILED, code)


LAST_WORDS = {
    "a file in a global": "kept.append(open('left', 'w')); kept[0].write('words')",
    "a finalizer in a cycle": """
        class Last:
            def __del__(self):
                Path("left").write_text("words")
        last = Last()
        last.itself = last
    """,
    "a suspended generator of the task's own": """
        def waiting():
            try:
                yield
            finally:
                Path("left").write_text("words")
        generator = waiting()
        next(generator)
    """,
    "atexit": "import atexit; atexit.register(lambda: Path('left').write_text('words'))",
    "a thread": """
        import threading
        def late():
            time.sleep(0.05)
            Path('left').write_text('words')
        threading.Thread(target=late).start()
    """,
    "weakref.finalize": """
        import weakref
        weakref.finalize(self, lambda: Path('left').write_text('words'))
    """,
    "the C library": """
        import ctypes
        libc = ctypes.CDLL(None)
        libc.fopen.restype = ctypes.c_void_p
        file = libc.fopen(b"left", b"w")
        libc.fputs(b"words", ctypes.c_void_p(file))
    """,
}


@pytest.mark.parametrize("kind", LAST_WORDS)
def test_a_function_that_waits_for_the_end_of_the_process_is_called(
    task: TaskBuilder, ended: Ended, kind: str
) -> None:
    job = task(LAST_WORDS[kind], before="kept = []")
    assert ended(job).reason is None
    assert Path(job.paths.directory, "left").read_text() == "words"


@pytest.mark.parametrize("stream", ["sys.stdout", "sys.__stdout__", "open(1, 'w', closefd=False)"])
def test_the_buffer_of_a_stream_is_in_the_log(task: TaskBuilder, ended: Ended, stream: str) -> None:
    body = f"""
        kept.append({stream})
        sys.stdout.reconfigure(line_buffering=False)
        kept[0].write("words")
        sys.stdout = None
    """
    job = task(body, before="kept = []")
    assert ended(job).reason is None
    assert Path(job.paths.out).read_text() == "words"


def test_a_database_that_was_left_open_is_closed(task: TaskBuilder, ended: Ended) -> None:
    body = """
        import sqlite3
        kept.append(sqlite3.connect("left"))
        kept[0].executescript("pragma journal_mode = wal; create table words (word text)")
    """
    job = task(body, before="kept = []")
    assert ended(job).reason is None
    assert sorted(path.name for path in Path(job.paths.directory).glob("left*")) == ["left"]


def _inside(opener: Callable[[str], Any], file: str) -> Any:
    """The only value of a database, which is closed: since Python 3.13 that of a shelf is an SQLite one."""
    with closing(opener(file)) as database:
        return database["inside"]


LEFT_OPEN: dict[str, tuple[str, Callable[[str], str]]] = {
    "gzip": (
        "gzip.open('left', 'wt')); kept[0].write('words'",
        lambda file: gzip.decompress(Path(file).read_bytes()).decode(),
    ),
    "zipfile": (
        "zipfile.ZipFile('left', 'w')); kept[0].writestr('inside', 'words'",
        lambda file: zipfile.ZipFile(file).read("inside").decode(),
    ),
    "shelve": (  # through the database that it keeps its values in
        "shelve.open('left')); kept[0].update(inside='words'",
        lambda file: _inside(shelve.open, file),
    ),
    "dbm.dumb": (
        "dbm.dumb.open('left')); kept[0].update(inside='words'",
        lambda file: _inside(dbm.dumb.open, file).decode(),
    ),
    "io": (
        "io.TextIOWrapper(open('left', 'wb', 65536))); kept[0].write('words'",
        lambda file: Path(file).read_text(),
    ),
}


@pytest.mark.parametrize("kind", LEFT_OPEN)
def test_every_byte_of_what_was_left_open_is_in_the_file(task: TaskBuilder, ended: Ended, kind: str) -> None:
    write, read = LEFT_OPEN[kind]
    job = task(f"kept.append({write})", before=f"import {kind}\nkept = []")
    assert ended(job).reason is None
    assert read(f"{job.paths.directory}/left") == "words"


def test_a_file_that_was_left_open_and_cannot_be_written_out_fails_a_forked_job(
    task: TaskBuilder, run: Callable[..., Any], machine: Machine
) -> None:
    launcher = WarmLauncher(machine)
    job = task("kept.append(open('/dev/full', 'w')); kept[0].write('words')", before="kept = []")
    run(finished(launcher, job))
    launcher.close()
    assert job.marker().reason is JobFailureStatus.FAILED
    assert "/dev/full was left open" in Path(job.paths.err).read_text()


FULL_END = {
    "a finalizer of an object in a global": """
        class Last:
            def __del__(self, write=os.write, fd=os.open("left", os.O_CREAT | os.O_WRONLY, 0o600)):
                write(fd, b"words")
        kept.append(Last())
    """,
    "a suspended generator in a global": """
        def waiting(write=os.write, fd=os.open("left", os.O_CREAT | os.O_WRONLY, 0o600)):
            try:
                yield
            finally:
                write(fd, b"words")
        kept.append(waiting()); next(kept[0])
    """,
    "a finalizer of an object made on import": "made.fd = os.open('left', os.O_CREAT | os.O_WRONLY, 0o600)",
}


@pytest.mark.parametrize("kind", FULL_END)
def test_a_task_with_a_full_end_has_the_interpreter_taken_apart(
    task: TaskBuilder, ended: Ended, kind: str
) -> None:
    before = """
    class Last:
        def __del__(self, write=os.write):
            write(self.fd, b"words")
    class Full(Task):
        __full_end__ = True
    made, kept = Last(), []
    made.fd = os.open(os.devnull, os.O_WRONLY) if "pytest" in sys.modules else -1
    """
    job = task(FULL_END[kind], before=before, base="Full")
    assert ended(job).reason is None
    assert Path(job.paths.directory, "left").read_text() == "words"


def test_what_a_module_prints_on_import_is_in_the_log_of_each_job(task: TaskBuilder, ended: Ended) -> None:
    before = "print('imported'); print('warned', file=sys.stderr)"
    job = task("print('run')", before=before)
    for _ in range(2):
        assert ended(job).reason is None
        assert Path(job.paths.out).read_text() == "imported\nrun\n"
        assert Path(job.paths.err).read_text() == "warned\n"
        Path(job.paths.out).unlink()
        Path(job.paths.err).unlink()
        job.open_attempt()
    job.release()


def test_what_a_module_does_to_the_import_path_stays(task: TaskBuilder, ended: Ended) -> None:
    assert ended(task("return sys.path[0]", before="sys.path.insert(0, '/mine')")).result == "/mine"


def test_variables_that_a_module_sets_stay(task: TaskBuilder, ended: Ended) -> None:
    assert ended(task("return os.environ['MINE']", before="os.environ['MINE'] = '1'")).result == "1"
