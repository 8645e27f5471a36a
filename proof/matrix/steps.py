"""Owns the tables of steps: every operation of one job that another process could notice, in order.
Strikes nobody; a test compares each table with what the processes do, and is red when that changes.

They are numbered as in "Starting a job" of the lifecycle, and named as `killing` names them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

SCHEDULER = [
    # 2 submit finds out whether the directory can be used
    *"mkdir .tenuto, mkdir job, mkdir oracle, mkdir jobs, mkdir ws".split(", "),
    *"mkdir jobs #2, mkdir oracle #2, mkdir job #2, mkdir .tenuto #2".split(", "),
    *"open oracle.lock, lock0 oracle.lock, close oracle.lock".split(", "),
    # 2, 3 the lock, for good
    *"mkdir .tenuto #3, open oracle.lock #2, lock0 oracle.lock #2".split(", "),
    # 4 the intent; what older attempts left goes
    *"open oracle.reserve, posix_fallocate oracle.reserve, close oracle.reserve".split(", "),
    *"open launch.json.tmp, write launch.json.tmp".split(", "),
    *"close launch.json.tmp, rename launch.json".split(", "),
    *"open oracle.lock #3, lock1 oracle.lock".split(", "),
    # 5 what the runner reads
    *"open params.json, write params.json, close params.json".split(", "),
    *"open oracle.py, write oracle.py, close oracle.py".split(", "),
    *"open status.json, write status.json, close status.json".split(", "),
    # 6, 8, 11
    *"posix_spawn, pidfd_open, close oracle.lock #2, close oracle.lock #3, waitid, _exit".split(", "),
]
SCHEDULER_AGAIN = [
    # 2, 3
    *"mkdir .tenuto, open oracle.lock, lock0 oracle.lock, close oracle.lock".split(", "),
    *"mkdir .tenuto #2, open oracle.lock #2, lock0 oracle.lock #2".split(", "),
    # 4
    *"rename oracle.out.1, rename oracle.err.1".split(", "),
    *"open oracle.reserve, posix_fallocate oracle.reserve, close oracle.reserve".split(", "),
    *"open launch.json.tmp, write launch.json.tmp".split(", "),
    *"close launch.json.tmp, rename launch.json".split(", "),
    *"unlink oracle.done, unlink oracle.failed, unlink oracle.pid".split(", "),
    *"unlink stop.json, unlink locks.json, unlink result.json".split(", "),
    *"open oracle.lock #3, lock1 oracle.lock".split(", "),
    # 5
    *"open params.json, open params.json.tmp, write params.json.tmp".split(", "),
    *"close params.json.tmp, rename params.json".split(", "),
    *"open oracle.py, open oracle.py.tmp, write oracle.py.tmp".split(", "),
    *"close oracle.py.tmp, rename oracle.py".split(", "),
    *"open status.json, open status.json.tmp, write status.json.tmp".split(", "),
    *"close status.json.tmp, rename status.json".split(", "),
    # 6, 8, 11
    *"posix_spawn, pidfd_open, close oracle.lock #2, close oracle.lock #3, waitid, _exit".split(", "),
]
"""The same where an attempt before has failed."""
_CLEARING = [
    # The good marker is durable: what says nothing more of the job goes; the logs, as they are empty.
    *"unlink oracle.py, unlink status.json, unlink locks.json".split(", "),
    *"unlink oracle.out, unlink oracle.err".split(", "),
]
RUNNER = [
    "begin",
    *"lock0 lock, lock1 descendants, setsid".split(", "),
    # 7 the pid record, once all is ready for the payload
    *"open oracle.out, open oracle.err, open oracle.pid, write oracle.pid, close oracle.pid".split(", "),
    *"write ready, close ready".split(", "),
    # the turn of the job, which outlives its directory
    *"open .turns, lock245 .turns".split(", "),
    # 9 the payload
    *"fork, close descendants, setpgid".split(", "),
    # 10 the marker, then the files that it outdoes; here it has the launch record, too
    *"open oracle.reserve, write oracle.reserve, ftruncate oracle.reserve".split(", "),
    *"fsync oracle.reserve, close oracle.reserve, rename oracle.done".split(", "),
    *_CLEARING,
    *"unlink oracle.pid, unlink launch.json, unlink stop.json, rmdir .tenuto".split(", "),
    "_exit",
]
PAYLOAD = [
    *"begin, close lock, setpgid, dup2, dup2 #2, close oracle.out, close oracle.err".split(", "),
    *"close .turns, chdir job, execvp".split(", "),
]
# The same under the warm launcher: what differs, and the parent.
WARM_SCHEDULER = [step for step in SCHEDULER if step not in ("pidfd_open", "waitid")]
WARM_RUNNER = [
    *"begin, open oracle.err, dup2, dup2 #2, close oracle.err".split(", "),
    *("open oracle.err #2" if step == "open oracle.err" else step for step in RUNNER[1:]),
]
PARENT = [
    *"begin, pidfd_open, recvmsg, sendmsg, recvmsg #2, fork".split(", "),
    *"close ready, close descendants, close lock, pidfd_open #2, sendmsg #2, recvmsg #3, _exit".split(", "),
]
# The same for a Python task in a fresh interpreter.
FRESH_RUNNER = ["posix_spawn" if step == "fork" else step for step in WARM_RUNNER]
FRESH_PAYLOAD = "begin, chdir job, execvp".split(", ")
# The same for one that waited for its job, beside an interpreter that imported meanwhile.
SPARE_RUNNER = [
    *"begin, pidfd_open, recvmsg, posix_spawn, sendmsg, sendmsg #2, recvmsg #2".split(", "),
    *(step for step in WARM_RUNNER[1:] if step != "fork"),
]
SPARE_PAYLOAD = [
    *"begin, recvmsg, sendmsg, chdir , sendmsg #2, recvmsg #2".split(", "),
    *"dup2, close oracle.out, dup2 #2, close oracle.err, chdir job, write report, execvp".split(", "),
]
# The same for a job that needs a token.
TOKEN = [
    # 2 the lock of the queue, the number of the scheduler, then all or none
    *"open queue.lock, lock0 queue.lock, open schedulers.lock, lock0 schedulers.lock".split(", "),
    *"mkdir .tenuto #3, open oracle.lock #2, lock0 oracle.lock #2".split(", "),
    *"open pair.units, lock0 pair.units, close queue.lock".split(", "),
]
LOCKS_FILE = "open locks.json, write locks.json, close locks.json".split(", ")


def with_token(scheduler: list[str]) -> list[str]:
    """The steps of a scheduler, and those for the token among them."""
    taken = scheduler.index("lock0 oracle.lock #2") + 1
    spawned = scheduler.index("posix_spawn")
    closed = scheduler.index("close oracle.lock #2") + 1
    return [
        *(*scheduler[: taken - 3], *TOKEN, *scheduler[taken:spawned], *LOCKS_FILE),
        *(*scheduler[spawned:closed], "close pair.units", *scheduler[closed:]),
    ]


TOKEN_SCHEDULER = with_token(SCHEDULER)
TOKEN_WARM_SCHEDULER = with_token(WARM_SCHEDULER)
TOKEN_PAYLOAD = [*PAYLOAD[:-2], "close units", *PAYLOAD[-2:]]
TOKEN_PARENT = [*PARENT[:6], "close units", *PARENT[6:]]
QUEUEING = [
    # It writes down that it waits,
    *"open queue.json.tmp, write queue.json.tmp".split(", "),
    *"close queue.json.tmp, rename queue.json, close queue.lock".split(", "),
    # looks once more, as the units could have fallen free meanwhile,
    *"open queue.lock #2, lock0 queue.lock #2, close queue.lock #2".split(", "),
    # and is told that they did.
    *"open queue.lock #3, lock0 queue.lock #3".split(", "),
]
LEAVING = [
    *"open queue.json.tmp #2, write queue.json.tmp #2".split(", "),
    *"close queue.json.tmp #2, rename queue.json #2, close queue.lock #3".split(", "),
]
"""What a scheduler does besides if the token is in use when it comes."""


def queued(scheduler: list[str]) -> list[str]:
    """The steps of a scheduler that needs a token, and those to queue for it among them."""
    came = scheduler.index("lock0 schedulers.lock") + 1
    taken = scheduler.index("close queue.lock")
    return [*scheduler[:came], *QUEUEING, *scheduler[came:taken], *LEAVING, *scheduler[taken + 1 :]]


QUEUED_SCHEDULER = queued(TOKEN_SCHEDULER)

# The second scheduler, by what it finds.
TAKING_OVER = [step for step in SCHEDULER_AGAIN if step not in ("rename oracle.out.1", "rename oracle.err.1")]
"""A start that was begun and not made: what there is of it is replaced."""
OVERTAKING = [*SCHEDULER_AGAIN[:7], *SCHEDULER[SCHEDULER.index("open oracle.reserve") :]]
"""Another scheduler that has made the directory, and no more."""
_LOOK = "read launch.json, read oracle.done, read oracle.failed".split(", ")
_EVIDENCE = [
    *"read launch.json, read oracle.lock, look0, read oracle.pid, read oracle.lock, look1".split(", "),
    # A cluster is asked before the markers are read: what it says of an end, they must be able to outdo.
    *"read oracle.done, read oracle.failed".split(", "),
]

_EVIDENCE_ELSEWHERE = [
    # Whether an attempt that had begun was heard of of late, before the lock is looked at.
    *"read launch.json, read claim, read oracle.pid, read oracle.pid, read oracle.lock, look0".split(", "),
    *"read oracle.lock, look0, read oracle.pid, read oracle.lock, look1".split(", "),
    *"read claim, read oracle.done, read oracle.failed".split(", "),
]
_LOCAL = ("open oracle.lock #3", "lock1 oracle.lock")
"""The lock that only a runner on this machine inherits."""


def numbered(steps: Iterable[str]) -> list[str]:
    """With the number behind the second of a name, and the third."""
    seen: Counter[str] = Counter()
    names = []
    for step in steps:
        seen[step] += 1
        names.append(step if seen[step] == 1 else f"{step} #{seen[step]}")
    return names


ADOPTING = numbered(
    [
        "read oracle.done",  # by the index of markers: a job that is done is found so at once
        # Each look is made until two in a row show the same; after the first it asks whether a stop is
        # wished already, and when the runner began.
        *(*_LOOK, *_EVIDENCE),
        *("read stop.json", "read oracle.pid"),
        *(*_LOOK, *_EVIDENCE),
        # Then it watches, sees whether a stop is wished, and in the end the marker: with one
        # of the two there, the other is not opened.
        *("pidfd_open", "read stop.json"),
        # Then it sees whether the runner could write the status, too.
        *(*_LOOK[:2], "read status.json", "_exit"),
    ]
)
"""A job at work. Hardly anything of this can be seen by others; so here the looks count as well."""
RECOVERING = [
    "pidfd_open",
    *("pidfd_open #2" if step == "pidfd_open" else step for step in SCHEDULER_AGAIN),
]
"""A job at work, whose runner is then killed: it is started again. Without the looks."""

# A job that a cluster starts.
SUBMITTING = [
    *"mkdir orders, mkdir cluster, mkdir .launchers, mkdir cluster #2, mkdir orders #2".split(", "),
    *"open manifest, write manifest, close manifest".split(", "),
    *"open submission.tmp, write submission.tmp, close submission.tmp, rename submission".split(", "),
]
"""The launcher of the matrix: the manifest, then the order, which the cluster has or has not."""
_OPENING = [
    *SCHEDULER[: SCHEDULER.index("open oracle.lock #3")],
    *SCHEDULER[SCHEDULER.index("open params.json") : SCHEDULER.index("posix_spawn")],
    "close oracle.lock #2",
]
EXTERNAL_SCHEDULER = [*_OPENING, *SUBMITTING, "_exit"]
STOPPING = [
    # A wish to stop, for the runner; the claim, in case that none has begun; then the cluster is asked.
    *"open stop.json, write stop.json, close stop.json, open claim".split(", "),
    *"open cancelled_0.tmp, write cancelled_0.tmp, close cancelled_0.tmp, rename cancelled_0".split(", "),
]
"""What a scheduler does to a job that runs in the cluster and is cancelled."""
STOPPING_SCHEDULER = [*_OPENING, *SUBMITTING, *STOPPING, "_exit"]
_ASKING_AGAIN = [f"{step} #2" for step in STOPPING[4:]]
REVOKING = [
    *STOPPING[:4],
    *"write claim, close claim".split(", "),
    *STOPPING[4:],
    *_ASKING_AGAIN,
    # Then the marker, under the lock.
    *"mkdir .tenuto #4, open oracle.lock #3, lock0 oracle.lock #3".split(", "),
    *"open oracle.reserve #2, write oracle.reserve, ftruncate oracle.reserve".split(", "),
    *"fsync oracle.reserve, close oracle.reserve #2, rename oracle.failed".split(", "),
    *"open status.json.tmp, write status.json.tmp, close status.json.tmp".split(", "),
    *"rename status.json, close oracle.lock #3".split(", "),
]
"""What a scheduler does to a job that is pending in the cluster and is cancelled."""
REVOKING_SCHEDULER = [*_OPENING, *SUBMITTING, *REVOKING, "_exit"]
_CLAIMING = [
    *"read manifest, read manifest, read launch.json".split(", "),
    *"open claim, write claim, close claim, read launch.json".split(", "),
    *"open oracle.lock, lock0 oracle.lock, open oracle.lock, lock1 oracle.lock".split(", "),
    *"read launch.json, lock0 oracle.lock, lock1 oracle.lock".split(", "),
    *"read oracle.done, read oracle.failed, setsid".split(", "),
]
_RUNNING = [
    *"open oracle.out, open oracle.err, open oracle.pid, write oracle.pid, close oracle.pid".split(", "),
    *"open signals, write signals, close signals, fork, close oracle.lock, setpgid".split(", "),
    # was it asked to end before that?
    *"read stop.json, read launch.json".split(", "),
    *"open oracle.reserve, write oracle.reserve, ftruncate oracle.reserve".split(", "),
    *"fsync oracle.reserve, close oracle.reserve, rename oracle.done".split(", "),
]
_SIGNALLING = "open signals, write signals, close signals".split(", ")
_TELLING = [*_CLEARING, *_SIGNALLING]
EXTERNAL_RUNNER = numbered(["begin", *_CLAIMING, *_RUNNING, "read job", *_TELLING, "_exit"])
"""Here the looks count as well: at the manifest, and whether the attempt is still the current one."""
FAILING_RUNNER = numbered(
    [
        *("begin", *_CLAIMING, *_RUNNING[:-1], "rename oracle.failed", "read job"),
        *"open status.json.tmp, write status.json.tmp, close status.json.tmp, rename status.json".split(", "),
        *(*_SIGNALLING, "_exit"),
    ]
)
"""One that did not end well keeps its files, and has a status."""
STOPPED_RUNNER = [
    step
    for ended in FAILING_RUNNER
    for step in ([ended, "read stop.json #2"] if ended == "read stop.json" else [ended])
]
"""A runner whose cluster sends it TERM."""
LATE_RUNNER = numbered(["begin", *_CLAIMING[:4], "read claim", "_exit"])
"""A runner of an attempt whose claim another has made, which it reads to know whose."""
_LEAVING_JOB = "close oracle.lock, close oracle.out, close oracle.err, open taken, write taken".split(", ")
_TAKING = [*_CLAIMING[:6], "close taken", *_CLAIMING[6:]]
FURTHER_RUNNER = numbered(
    [
        *("begin", *_CLAIMING, *_RUNNING, "read job", *_TELLING),
        *(*_LEAVING_JOB, *_TAKING, *_RUNNING, "read next", *_TELLING),
        *(*_LEAVING_JOB, "close taken", "_exit"),
    ]
)
"""A runner whose job was done at once, and that runs the next one of its manifest."""
EXTERNAL_PAYLOAD = ["close oracle.lock" if step == "close lock" else step for step in PAYLOAD]
EXTERNAL_PAYLOAD.remove("close .turns")
TAKING_OVER_ELSEWHERE = [
    # An attempt that no cluster has: it is revoked, under the lock, and another follows.
    *"mkdir .tenuto, open oracle.lock, lock0 oracle.lock".split(", "),
    *"open claim, write claim, close claim, close oracle.lock".split(", "),
    *(step for step in TAKING_OVER[4 : TAKING_OVER.index("posix_spawn")] if step not in _LOCAL),
    *"close oracle.lock #2, mkdir orders".split(", "),
    *SUBMITTING[5:],
    "_exit",
]
_TAKEN = TAKING_OVER_ELSEWHERE.index("open oracle.reserve")
RECOVERING_ELSEWHERE = [
    # A runner that was lost after its claim: nothing is left to revoke, and its logs are kept.
    *(step for step in TAKING_OVER_ELSEWHERE[:_TAKEN] if not step.endswith(" claim")),
    *"rename oracle.out.1, rename oracle.err.1".split(", "),
    *TAKING_OVER_ELSEWHERE[_TAKEN:],
]
ADOPTING_ELSEWHERE = numbered(
    [
        "read oracle.done",
        *(*_LOOK, *_EVIDENCE_ELSEWHERE),
        *("read stop.json", "read oracle.pid"),
        *(*_LOOK, *_EVIDENCE_ELSEWHERE),
        *("read stop.json", "read claim"),
    ]
)
"""A job at work in the cluster, with the looks, until the scheduler waits for its end."""
