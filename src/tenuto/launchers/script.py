"""`{scriptname}.py`: the script in a job's directory by which a person runs the job by hand.
No launcher uses it.
"""

from __future__ import annotations

_SCRIPT = """\
# Runs this job by hand, in the foreground: python %s.py
# It takes the job's lock and writes no marker; to run the job for good, submit it again.
import sys

sys.path[0] = %r
from tenuto.launchers.runner.by_hand import main

main(__file__)
"""


def job_script(name: str) -> bytes:
    """The content of the script, which has this name without its ending."""
    root = __file__.rpartition("/tenuto/launchers/")[0]
    return (_SCRIPT % (name, root)).encode()
