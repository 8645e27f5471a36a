"""Owns the trace of one process of a walk: calls of Tenuto's functions, and changes of the file system.

An interpreter that finds this folder on its path and BENCH_WALK in its environment loads it before all else;
a bare one is made to run it before its script. Each line opens the file, appends and closes: a runner closes
descriptors, and a forked payload ends without a word.
"""

import os
import sys
import threading
import time
from _thread import get_native_id

PLACE = os.environ.get("BENCH_WALK")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
_open, _write, _close, _clock = os.open, os.write, os.close, time.monotonic_ns
_starts = {}
"""(code, position) -> whether a call begins there; a generator that goes on is no call."""


def note(kind, what):
    descriptor = _open(f"{PLACE}/{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        _write(descriptor, f"{_clock()} {get_native_id()} {kind} {what}\n".encode())
    finally:
        _close(descriptor)


def mark(name):
    """Note an instant of the walk, for the one that reads the trace."""
    if PLACE:
        note("mark", name)


def _source(code):
    """The path of a function inside `src/tenuto`; None for what is no function of Tenuto's."""
    _, found, path = code.co_filename.rpartition("/src/tenuto/")
    return path if found and not code.co_name.startswith("<") else None


def _profile(frame, event, _argument):
    if event != "call":
        return
    code = frame.f_code
    key = (code, frame.f_lasti)
    if key not in _starts:
        is_function = code.co_flags & 0x3 == 0x3  # optimised, with locals of its own: no body of a class
        begins = code.co_code[frame.f_lasti + 1] == 0
        _starts[key] = _source(code) if is_function and begins else None
    if _starts[key] is not None:
        note("call", f"{_starts[key]} {code.co_qualname}")


def _audit(event, arguments):
    if event == "open":
        path, _mode, flags = arguments
        if not isinstance(path, str | bytes) or not isinstance(flags, int) or not flags & WRITING:
            return
    elif event in CHANGES:
        path = arguments[0]
    else:
        return
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)
    if not text.startswith((PLACE, "/dev/", "/proc/")) and "__pycache__" not in text:
        note("change", f"{event} {text}")


def _spawn(path, argv, env, **options):
    """`os.posix_spawn`, but a bare interpreter is traced, too."""
    if "-S" in argv:
        behind = argv.index("-S") + 1
        argv = [*argv[:behind], __file__, *argv[behind:]]
        env = {**env, "BENCH_WALK": PLACE}
    return _posix_spawn(path, argv, env, **options)


if PLACE:
    _posix_spawn, os.posix_spawn = os.posix_spawn, _spawn
    sys.addaudithook(_audit)
    threading.setprofile(_profile)
    sys.setprofile(_profile)
    if __name__ == "__main__":
        del sys.argv[0]
        with open(sys.argv[0], "rb") as _script:
            _code = compile(_script.read(), sys.argv[0], "exec")
        exec(_code, {"__name__": "__main__", "__file__": sys.argv[0], "__builtins__": __builtins__})
