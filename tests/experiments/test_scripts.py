"""Owns that a script in a fork of the tests' server is what it is in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.parts.fork_server import fork_server

from .scripts import environment, run

PROBES = {
    "what it is given": """
        import os, sys
        print(sys.argv, sys.orig_argv, __name__, __file__, __spec__, sys.path)
        print(os.getcwd(), sorted(os.environ.items()))
        print(sys.flags, sys.stdin.read(), sys.modules["__main__"].__dict__ is globals(), sorted(globals()))
        for stream in (sys.stdout, sys.stderr):
            print(stream.encoding, stream.errors, stream.line_buffering, stream.isatty(), stream is not None)
        print(os.get_inheritable(1), sorted(set(os.listdir("/proc/self/fd")) - {"3"}), os.getpgrp())
    """,
    "an exit code": "import sys\nprint('printed')\nsys.exit(7)",
    "a message": "import sys\nsys.exit('no')",
    "an exception": "def broken():\n    return 1 / 0\nbroken()",
    "an exception with a cause": """
        try:
            {}["a"]
        except KeyError as error:
            raise ValueError(3) from error
    """,
    "a mistake of syntax": "print('never')\nif",
    "a signal": "import os, signal\nprint('never flushed')\nos.kill(os.getpid(), signal.SIGKILL)",
    "an interrupt": "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)",
    "what is left to do at the end": """
        import atexit, threading, time
        atexit.register(print, "at the end")
        def work():
            time.sleep(0.1)
            print("after the main program")
        threading.Thread(target=work).start()
        print("main program")
    """,
    "a child that outlives it": """
        import subprocess
        subprocess.Popen("sleep 0.2; echo written late", shell=True)
    """,
}


@pytest.mark.parametrize("probe", PROBES)
def test_a_script_in_a_fork_is_what_it_is_in_an_interpreter_of_its_own(probe: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(dedent(PROBES[probe]))
    command, given = [sys.executable, str(script), "-x", "y"], environment(TZ="UTC")
    assert fork_server().can_run(command, tmp_path, given)
    forked = run(command, tmp_path, TZ="UTC")
    fresh = subprocess.run(
        command,
        cwd=tmp_path,
        env=given,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert forked.stdout == fresh.stdout
    assert forked.stderr == fresh.stderr
    assert forked.returncode == fresh.returncode


@pytest.mark.parametrize(
    ("command", "variables"),
    [
        ([sys.executable, "-c", "pass"], {}),
        ([sys.executable, "no_such_script.py"], {}),
        (["/bin/true", "script.py"], {}),
        ([sys.executable, "script.py"], {"PYTHONHASHSEED": "1"}),
    ],
)
def test_a_command_that_is_no_plain_script_gets_an_interpreter_of_its_own(
    command: list[str], variables: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "script.py").touch()
    assert fork_server().can_run([sys.executable, "script.py"], tmp_path, environment())
    assert not fork_server().can_run(command, tmp_path, environment(**variables))


def test_a_script_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)")
    with pytest.raises(subprocess.TimeoutExpired):
        fork_server().run([sys.executable, str(script)], tmp_path, environment(), 1.0)
    for pid in tmp_path.glob("pid"):  # unless it was so slow that it did not get there
        assert not Path("/proc", pid.read_text()).exists()
