"""Owns the checks of bench/profile.py that need no `perf`: what it makes of the text that `perf` prints."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.profile import FEW, HERTZ, KINDS, MANY, kind_of, samples, table

SCRIPT = """\
perf-exec 0/0 PERF_RECORD_COMM: perf-exec:10/10
 10/10 cpu-clock:
\tffffffff81 do_mmap
\tffffffff82 ksys_mmap_pgoff
\tffffffff83 do_syscall_64

 10/10 PERF_RECORD_FORK(10:11):(10:10)
 10/11 PERF_RECORD_FORK(20:20):(10:11)
 20/20 PERF_RECORD_FORK(30:30):(20:20)
 30/30 cpu-clock:
\tffffffff81 do_wp_page
\tffffffff82 asm_exc_page_fault
\t     1462a _PyEval_EvalFrameDefault

 20/20 cpu-clock:
\tffffffff81 copy_page_range
\tffffffff82 __do_sys_clone
\tffffffff83 do_syscall_64

 10/11 cpu-clock:
\t     1462a _PyEval_EvalFrameDefault

 30/30 page-faults:
"""


def test_each_sample_is_put_where_its_process_stands_in_the_tree() -> None:
    assert list(samples(SCRIPT.splitlines())) == [
        (0, "files, sockets, waits"),
        (2, "page faults"),
        (1, "fork"),
        (0, "Python and C"),
        (2, "count"),
    ]


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        (["do_wp_page", "asm_exc_page_fault", "__x64_sys_read", "do_syscall_64"], "page faults"),
        (["exit_mmap", "do_exit", "__x64_sys_exit_group"], "exit"),
        (["__x64_sys_execve"], "exec"),
        (["vfs_write", "__x64_sys_write"], "files, sockets, waits"),
        (["_PyObject_Malloc"], "Python and C"),
        ([], "Python and C"),
    ],
)
def test_a_stack_says_what_a_process_was_at(frames: list[str], kind: str) -> None:
    assert kind_of(frames) == kind
    assert kind in KINDS


def test_what_the_start_took_is_left_out() -> None:
    jobs = MANY - FEW
    few = {depth: Counter({"fork": 7}) for depth in range(4)}
    many = {depth: Counter({"fork": 7 + jobs * HERTZ // 1000, "count": jobs * 3}) for depth in range(4)}
    rows = table(few, many).splitlines()
    assert rows[2] == "| scheduler | 0.00 | 1.00 | 0.00 | 0.00 | 0.00 | 0.00 | 1.00 | 3 |"
    assert rows[-1] == "| all | 0.00 | 4.00 | 0.00 | 0.00 | 0.00 | 0.00 | 4.00 | 12 |"
