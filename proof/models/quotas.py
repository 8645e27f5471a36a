"""Owns the model of claims within quotas: servers that die, freeze and take over, users who share a service.
Whose job is next is decided by the real `next_jobs`; every move is checked against the real table of states.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from proof.models.checker import Step
from tenuto.lifecycle.service import SERVICE_TRANSITIONS, ServiceState
from tenuto.service.decisions import Quota, UserQueue, next_jobs

PLANTED = {
    "counted before": "active jobs are counted in another transaction than the claim",
    "unknown is free": "a job that is Unknown does not count for the quotas, though its program runs",
    "no fence": "a move is not compared with the claim, so that a frozen server's still counts",
    "same claim": "a job that is taken over keeps its claim, so that both servers move it",
    "never taken over": "the jobs of a server that is gone stay claimed by it",
    "late refusal": "a job that was taken over is queued again, though a frozen server may still send it",
    "oldest first": "the oldest job is next, whoever has the most running",
    "freed too early": "the place of a job is free when its end is near, not when its program has ended",
}
_S = ServiceState
_COUNTED = tuple(state for state in _S if state.is_active)


class Job(NamedTuple):
    """A row, and what its program does."""

    user: int
    state: ServiceState | None = None
    """None: not uploaded yet."""
    claim: int = 0
    owner: int = -1
    runs: bool = False
    is_there: bool = False
    """The node knows its key."""


class Follower(NamedTuple):
    """What a server knows of a job that it claimed."""

    job: int
    pc: str
    """send, sent, find, resend, follow"""
    state: ServiceState
    claim: int


class Server(NamedTuple):
    life: str = "up"
    """up, frozen, dead"""
    followers: tuple[Follower, ...] = ()
    counted: tuple[int, ...] | None = None
    """Active jobs by user, as counted in an earlier transaction; only with a planted bug."""


class State(NamedTuple):
    servers: tuple[Server, ...]
    jobs: tuple[Job, ...]
    turns: tuple[int, ...] = ()
    """Users in the order in which they were served last."""
    overtaken: int = 0
    """How often the first user was served while the second had a job in the queue and none active."""
    faults: int = 0
    wrong: str | None = None


class Quotas:
    """One service with one place a user; the first user has most of the jobs, the second comes later."""

    name = "claims within quotas"

    def __init__(
        self,
        *,
        servers: int = 2,
        jobs: int = 3,
        places: int = 1,
        faults: int = 2,
        planted: str | None = None,
    ) -> None:
        assert planted is None or planted in PLANTED
        self._servers = servers
        self._jobs = jobs
        self._faults = faults
        self._planted = planted
        self._quota = Quota(runs_per_user=1, max_runs=places)

    def initial(self) -> State:
        users = (0,) * (self._jobs - 1) + (1,)
        return State((Server(),) * self._servers, tuple(map(Job, users)))

    def broken(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        running = [job.user for job in state.jobs if job.runs]
        if len(running) > self._quota.max_runs:
            return "more programs run than the service allows"
        if any(running.count(user) > self._quota.runs_per_user for user in set(running)):
            return "more programs of a user run than the quota allows"
        for job in state.jobs:
            if job.runs and (job.state is None or not job.state.is_active):
                return f"a job is {job.state and job.state.value} while its program runs"
        if state.overtaken > 1:
            return "a user with many jobs was served twice while another waited"
        return None

    def at_rest(self, state: State) -> bool:
        return all(job.state is _S.COMPLETED for job in state.jobs)

    def show(self, state: State) -> str:
        jobs = [
            f"J{n}:{job.state.value if job.state else '-'}#{job.claim}S{job.owner}{'*' if job.runs else ''}"
            for n, job in enumerate(state.jobs)
        ]
        servers = [
            f"S{i}:{s.life}[{' '.join(f'J{f.job}{f.pc}#{f.claim}' for f in s.followers)}]"
            for i, s in enumerate(state.servers)
        ]
        return " ".join([*jobs, *servers, f"turns{list(state.turns)}"])

    def steps(self, state: State) -> Iterator[Step[State]]:
        may_fail = state.faults < self._faults
        worse = state._replace(faults=state.faults + 1)
        for n, job in enumerate(state.jobs):
            if job.state is None and all(other.state for other in state.jobs[:n] if other.user == job.user):
                yield Step(f"J{n} is uploaded", _job(state, n, job._replace(state=_S.QUEUED)))
            if job.runs:
                yield Step(f"J{n} ends", _job(state, n, job._replace(runs=False)))
        for i, server in enumerate(state.servers):
            if server.life == "up":
                yield from self._claim(state, i, server)
                yield from self._take_over(state, i)
                for follower in server.followers:
                    yield from self._follow(state, i, follower)
                if may_fail and server.followers:
                    yield Step(f"S{i} dies", _server(worse, i, Server("dead")), True)
                    yield Step(f"S{i} freezes", _server(worse, i, server._replace(life="frozen")), True)
            else:
                yield Step(f"S{i} continues", _server(state, i, server._replace(life="up")))

    # One transaction each

    def _active(self, state: State) -> tuple[int, ...]:
        counted = [
            state for state in _COUNTED if self._planted != "unknown is free" or state is not _S.UNKNOWN
        ]
        return tuple(
            sum(
                job.user == user and job.state in counted and not self._is_nearly_over(job)
                for job in state.jobs
            )
            for user in (0, 1)
        )

    def _is_nearly_over(self, job: Job) -> bool:
        return self._planted == "freed too early" and job.state is _S.RUNNING

    def _claim(self, state: State, i: int, server: Server) -> Iterator[Step[State]]:
        active = self._active(state)
        if self._planted == "counted before":
            if server.counted is None:
                yield Step(f"S{i} counts", _server(state, i, server._replace(counted=active)))
                return
            active = server.counted
        queues = [self._queue(state, user, active[user]) for user in (0, 1)]
        if self._planted == "oldest first":
            chosen = tuple(sorted(job for queue in queues for job in queue.jobs))
            chosen = (
                chosen[: self._quota.max_runs - sum(active)] if sum(active) < self._quota.max_runs else ()
            )
            chosen = tuple(job for job in chosen if active[state.jobs[job].user] < self._quota.runs_per_user)
        else:
            chosen = next_jobs(queues, self._quota, sum(active), 2)
        if not chosen:
            if server.counted is not None:
                yield Step(f"S{i} finds nothing", _server(state, i, server._replace(counted=None)))
            return
        after = _server(state, i, server._replace(counted=None))
        for n in chosen:
            after = self._claimed(after, i, n, active)
        yield Step(f"S{i} claims {' '.join(f'J{n}' for n in chosen)}", after)

    def _queue(self, state: State, user: int, active: int) -> UserQueue:
        waiting = tuple(n for n, job in enumerate(state.jobs) if job.user == user and job.state is _S.QUEUED)
        turn = state.turns.index(user) + 1 if user in state.turns else 0
        return UserQueue(str(user), active, turn, waiting)

    def _claimed(self, state: State, i: int, n: int, active: tuple[int, ...]) -> State:
        job = state.jobs[n]
        if job.state is not _S.QUEUED:  # another server was faster; the transaction sees it
            return state
        second_waits = active[1] == 0 and any(
            other.user == 1 and other.state is _S.QUEUED for other in state.jobs
        )
        overtaken = state.overtaken + 1 if job.user == 0 and second_waits else state.overtaken
        if job.user == 1:
            overtaken = 0
        turns = (*(user for user in state.turns if user != job.user), job.user)
        claimed = job._replace(state=_S.PROCESSING, claim=job.claim + 1, owner=i)
        after = _job(state._replace(turns=turns, overtaken=overtaken), n, claimed)
        return _followed(after, i, Follower(n, "send", _S.PROCESSING, claimed.claim))

    def _take_over(self, state: State, i: int) -> Iterator[Step[State]]:
        if self._planted == "never taken over":
            return
        for j, other in enumerate(state.servers):
            is_gone = other.life != "up" or j == i
            after = state
            for n, job in enumerate(state.jobs):
                known = (n, job.claim) in {(one.job, one.claim) for one in state.servers[i].followers}
                if job.owner != j or job.state not in _COUNTED or not is_gone or known:
                    continue
                claim = job.claim if self._planted == "same claim" or j == i else job.claim + 1
                after = _job(after, n, job._replace(owner=i, claim=claim))
                pc = "find" if job.state is _S.PROCESSING else "follow"
                after = _followed(after, i, Follower(n, pc, job.state, claim))
            if after != state:
                yield Step(f"S{i} takes over from S{j}", after)

    # A follower

    def _follow(self, state: State, i: int, f: Follower) -> Iterator[Step[State]]:
        job = state.jobs[f.job]
        may_fail = state.faults < self._faults
        worse = state._replace(faults=state.faults + 1)
        if f.pc == "find":
            pc = "sent" if job.is_there else "resend"
            yield Step(f"S{i} asks for J{f.job}", _followed(state, i, f._replace(pc=pc)))
        elif f.pc in ("send", "resend"):
            taken = job if job.is_there else job._replace(is_there=True, runs=True)
            yield Step(f"S{i} sends J{f.job}", _followed(_job(state, f.job, taken), i, f._replace(pc="sent")))
            # What was taken over may be on its way from the server that had it: it is not queued again.
            if may_fail and not job.is_there and (f.pc == "send" or self._planted == "late refusal"):
                yield Step(f"J{f.job} was not sent", self._moved(worse, i, f, _S.QUEUED), True)
        elif f.pc == "sent":
            yield Step(f"S{i} moves J{f.job}", self._moved(state, i, f, _S.SUBMITTED))
        elif not job.runs:
            yield Step(f"S{i} has J{f.job}", self._moved(state, i, f, _S.COMPLETED))
        else:
            if f.state is _S.SUBMITTED:
                yield Step(f"S{i} sees J{f.job} run", self._moved(state, i, f, _S.RUNNING))
            if may_fail and f.state is not _S.UNKNOWN:
                yield Step(f"S{i} hears nothing of J{f.job}", self._moved(worse, i, f, _S.UNKNOWN), True)

    def _moved(self, state: State, i: int, f: Follower, to: ServiceState) -> State:
        """The compare-and-set: a row that another server has claimed since is left alone."""
        job = state.jobs[f.job]
        is_same = (job.state, job.claim) == (f.state, f.claim)
        may = job.state is not None and to in SERVICE_TRANSITIONS[job.state]
        if not is_same and not (self._planted == "no fence" and may):
            return _unfollowed(state, i, f.job)
        if not may:
            return state._replace(wrong=f"the table forbids {job.state} -> {to.value}")
        ended = Job(job.user, to, is_there=True)  # what it was before makes no difference any more
        after = _job(state, f.job, ended if to is _S.COMPLETED else job._replace(state=to))
        if to in (_S.QUEUED, _S.COMPLETED):
            return _unfollowed(after, i, f.job)
        return _followed(after, i, Follower(f.job, "follow", to, f.claim))


def _job(state: State, n: int, job: Job) -> State:
    return state._replace(jobs=(*state.jobs[:n], job, *state.jobs[n + 1 :]))


def _server(state: State, i: int, server: Server) -> State:
    return state._replace(servers=(*state.servers[:i], server, *state.servers[i + 1 :]))


def _followed(state: State, i: int, follower: Follower) -> State:
    server = state.servers[i]
    others = tuple(one for one in server.followers if one.job != follower.job)
    return _server(state, i, server._replace(followers=tuple(sorted((*others, follower)))))


def _unfollowed(state: State, i: int, job: int) -> State:
    server = state.servers[i]
    return _server(
        state, i, server._replace(followers=tuple(one for one in server.followers if one.job != job))
    )
