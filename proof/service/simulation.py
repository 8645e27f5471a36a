"""Owns the simulation of the service: real stages of two servers on a virtual loop, fake nodes, a fake clock.
A seed decides all: kills, frozen servers, lost calls and answers, clocks that jump, ends that users ask for.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection

from proof.service.surroundings import DAY_S, Calls, DatabaseClock, SharedDatabase, SkewedClock
from tenuto.database import Database, Member, MemberKind, join, leave
from tenuto.errors import RequestRefused
from tenuto.lifecycle.service import ServiceState
from tenuto.service import fair_share
from tenuto.service.access import EVERYBODY
from tenuto.service.context import Offered
from tenuto.service.data_owner import DataDirectory, OwnedData, claim_data
from tenuto.service.decisions import CleanerRest, Quota, plan_nodes
from tenuto.service.nodes import Outgoing
from tenuto.service.rows import JobRow, NewJob, Page
from tenuto.service.server import Server, ServerPlan
from tenuto.settings.service import ServiceSettings
from tenuto.testing.clock import FakeClock, FakeRandomness
from tenuto.workspace.machine import this_machine
from tests.parts.simulation import run_virtually
from tests.service.fake_node import FakeNode, Trouble

PLANTED = {
    "no find": "a job that was taken over is given to any node anew",
    "no beats": "servers are taken for dead when the clock of the database jumps",
    "no rest": "what looks old by the clock of the database is cleaned, though that jumped",
    "no return": "what was queued before the clock was set back waits for the old time",
    "left holding": "a server that left in good order still holds its claims",
}
QUOTA = Quota(runs_per_user=2, max_runs=3)
JOBS = 10
MAX_AGE_S = 7200.0
LONGEST_S = 6 * 3600.0
FAULTS_UNTIL_S = 600.0
"""When the last fault happens; from then on all must come to a good end."""
_S = ServiceState


class Verdict(NamedTuple):
    """What a seed came to."""

    seed: int
    problems: tuple[str, ...]
    ends: dict[str, int]
    faults: dict[str, int]


class World:
    """Two servers, two nodes and their users, from a seed."""

    def __init__(self, root: Path, seed: int, clock: FakeClock, plant: str | None) -> None:
        self._root = root
        self._chance = random.Random(seed)
        self._clock = clock
        self._plant = plant
        self._database_clock = DatabaseClock(clock)
        self.faults: Counter[str] = Counter()
        self.problems: list[str] = []
        self._asked_to_end: dict[int, float] = {}
        """Jobs that their users end, and when."""
        self._ended_at: dict[int, float] = {}
        self.nodes = {
            name: FakeNode(name, slots=2, run_s=self._run_s, trouble=self._trouble) for name in ("a", "b")
        }
        self.servers: list[tuple[Server, Calls]] = []
        self._left: set[str] = set()
        """Servers that were asked to stop."""
        self._numbers = iter(range(10**6))

    def _run_s(self, job: Outgoing) -> float:
        return self._chance.choice([0.05, 1.0, 30.0, 200.0])

    def _trouble(self, call: str) -> Trouble | None:
        if self._clock.monotonic() > FAULTS_UNTIL_S or self._chance.random() > 0.15:
            return None
        trouble = self._chance.choice(list(Trouble))
        self.faults[trouble.name] += 1
        return trouble

    # Servers

    async def start_server(self) -> None:
        number = next(self._numbers)
        skewed = SkewedClock(self._clock, self._chance.choice([-600.0, 0.0, 600.0]))
        machine = this_machine()._replace(
            clock=skewed, randomness=FakeRandomness(self._chance.getrandbits(32))
        )
        settings = ServiceSettings(
            data=self._root / "data",
            max_age_s=MAX_AGE_S,
            terminate_wait_s=1.0,
            poll_s=5.0,
        )
        services = {"s": Offered("s", QUOTA, tuple(self.nodes))}
        plan = ServerPlan(settings, "", services, "0")
        database = SharedDatabase(self._root / "db.sqlite", self._database_clock)
        data = DataDirectory(str(settings.data), f"{settings.data}/jobs", "server")
        owned = OwnedData(database, claim_data(machine, data, database), None)
        server = Server(plan, self.nodes, machine, owned)
        calls = Calls(random.Random(self._chance.getrandbits(32)), self._stamp)
        object.__setattr__(server.parts, "sql", calls)
        object.__setattr__(server.parts, "files", calls)
        self._watch(server)
        if self._plant == "no find":
            _without_find(server)
        elif self._plant == "no beats":
            server._beats.is_still = lambda server, monotonic, for_s: True  # type: ignore[method-assign]
        elif self._plant == "no rest":
            server._cleaner._rest = _Restless(0.0, 0.0)
            server._cleaner._is_young = lambda directory: False  # type: ignore[method-assign]
        elif self._plant == "no return":
            fair_share.LONGEST_WAIT_MS = 10**12
        self.servers.append((server, calls))
        await server.start()
        self.faults[f"server {number} started"] += 0

    def _watch(self, server: Server) -> None:
        """Notes when each job ended, and that none is cleaned before its time."""
        move = server.parts.requests.move

        def watched(row: JobRow, to: ServiceState, message: str = "", **values: Any) -> JobRow | None:
            moved = move(row, to, message, **values)
            now = self._clock.monotonic()
            age_s = now - self._ended_at.get(row.id, 0.0)
            if moved is not None and to is _S.CLEANED and age_s < MAX_AGE_S:
                self.problems.append(f"job {row.id} was cleaned {age_s:.0f} s after its end")
            if moved is not None and to.is_final:
                self._ended_at.setdefault(row.id, now)
                self._stamp(server.parts.place(row).directory)
            return moved

        server.parts.requests.move = watched  # type: ignore[method-assign]
        take_over = server.parts.requests.take_over

        def taken_over() -> list[JobRow]:
            alive = {
                other._id
                for other, calls in self.servers
                if self._clock.monotonic() > calls.last_frozen + 20.0
            }
            holders = {row.id: row.server_id for row in server.parts.requests.listed(Page(limit=1000))}
            with _members(server.database, self._left if self._plant == "left holding" else set()):
                rows = take_over()
            if early := alive.intersection(holders[row.id] for row in rows):
                self.problems.append(f"{len(early)} servers were taken for dead that are well")
            return rows

        server.parts.requests.take_over = taken_over  # type: ignore[method-assign]

    def _stamp(self, directory: str) -> None:
        """The disk has a clock of its own, which is right."""
        moment = self._clock.now().timestamp()
        if os.path.isdir(directory):
            os.utime(directory, (moment, moment))

    async def kill_server(self, place: int) -> None:
        """As SIGKILL: nothing of it goes on, and nothing is tidied."""
        server, calls = self.servers.pop(place)
        calls.is_dead = True
        calls.thawed.set()
        self.faults["killed"] += 1
        for stage in (
            server._dispatcher.stage,
            server._cleaner.stage,
            server._asking,
            server._news,
            server._member,
        ):
            await stage.close()
        await server._job_follower.close()
        server.database.close()

    async def stop_server(self, place: int) -> None:
        """As SIGTERM: it leaves in good order."""
        server, calls = self.servers.pop(place)
        calls.thawed.set()
        self.faults["stopped"] += 1
        self._left.add(server._id)
        await server.close()

    # Users

    async def upload(self, script: str) -> None:
        server, _ = self._chance.choice(self.servers)
        name = f"job{next(self._numbers)}"
        place = server.parts.places.open_job(name)
        _write(place.files, script)
        self._stamp(place.directory)
        user = self._chance.choice(["ada", "ada", "bob", "eve"])
        row, _ = server.parts.requests.add(NewJob(user, "s", name))
        server._dispatcher.stage.wake()
        if "exec sleep" in script or self._chance.random() < 0.2:
            self._asked_to_end[row.id] = self._clock.monotonic() + self._chance.uniform(0.0, 120.0)

    async def end_jobs(self) -> None:
        """Users end the jobs that they do not want any more."""
        for id, when in self._asked_to_end.items():
            server, calls = self._chance.choice(self.servers)
            if when > self._clock.monotonic() or not calls.thawed.is_set():
                continue
            try:
                async with asyncio.timeout(5.0):
                    await server.operations.terminate(id, EVERYBODY)
            except (RequestRefused, TimeoutError):
                continue

    # Faults

    async def strike(self) -> None:
        fault = self._chance.choice(["kill", "stop", "freeze", "jump", "nothing"])
        if fault in ("kill", "stop"):
            end = self.kill_server if fault == "kill" else self.stop_server
            await end(self._chance.randrange(len(self.servers)))
            if self._chance.random() < 0.7 or not self.servers:
                await self.start_server()
        elif fault == "freeze":
            self._chance.choice(self.servers)[1].freeze(self._chance.uniform(5.0, 60.0))
            self.faults["frozen"] += 1
        elif fault == "jump":
            self._database_clock.ahead_s += self._chance.choice([-DAY_S, DAY_S, 30.0, -30.0])
            self.faults["clock jumped"] += 1
        while len(self.servers) < 2 and self._chance.random() < 0.5:
            await self.start_server()

    # The verdict

    def rows(self) -> list[JobRow]:
        return self.servers[0][0].parts.requests.listed(Page(limit=1000))

    def judge(self) -> None:
        rows = self.rows()
        for row in rows:
            if not row.state.is_final:
                self.problems.append(f"job {row.id} is still {row.state.value}: {row.message}")
        if len(rows) != JOBS:
            self.problems.append(f"{JOBS} uploads are {len(rows)} jobs")
        ledger = [line for node in self.nodes.values() for line in node.ledger]
        starts = Counter(job for word, job, _ in ledger if word == "start")
        self.problems += [f"job {job} was started {n} times" for job, n in starts.items() if n > 1]
        ends = {job: word for word, job, _ in ledger if word != "start"}
        for row in rows:
            self.problems += [p for p in [self._wrong_end(row, ends.get(row.id))] if p]
        self._judge_quotas(ledger, {row.id: row.user_id for row in rows})

    def _wrong_end(self, row: JobRow, end: str | None) -> str | None:
        allowed: dict[str | None, tuple[ServiceState, ...]] = {
            "completed": (_S.COMPLETED,),
            "failed": (_S.FAILED,),
            "killed": (_S.KILLED,),
            None: (_S.KILLED,) if row.id in self._asked_to_end else (),
        }
        if row.state in (*allowed[end], _S.CLEANED):
            return None
        if end is None and row.state is _S.FAILED and "no node took the job" in row.message:
            return None
        return f"job {row.id} is {row.state.value} ({row.message}), its program: {end}"

    def _judge_quotas(self, ledger: list[tuple[str, int, float]], users: dict[int, str]) -> None:
        running: set[int] = set()
        for word, job, at in sorted(ledger, key=lambda line: (line[2], line[0] == "start")):
            if word == "start":
                running.add(job)
            else:
                running.discard(job)
            by_user = Counter(users[one] for one in running)
            if len(running) > QUOTA.max_runs or max(by_user.values(), default=0) > QUOTA.runs_per_user:
                self.problems.append(f"at {at:.0f} s {len(running)} programs run: {dict(by_user)}")
                return


@contextmanager
def _members(database: Database, servers: set[str]) -> Iterator[None]:
    """Has servers listed as members for a while."""
    for server in servers:
        member = Member(server, MemberKind.SERVER, "", "")
        database.write(partial(_join, member))
    yield
    for server in servers:
        database.write(partial(_leave, server))


def _join(member: Member, connection: Connection) -> None:
    join(connection, member)


def _leave(server: str, connection: Connection) -> None:
    leave(connection, server)


def _write(directory: str, script: str) -> None:
    Path(directory, "run.sh").write_text(script)


async def _play(world: World) -> None:
    chance, clock = world._chance, world._clock
    for _ in range(2):
        await world.start_server()
    scripts = ["true\n"] * (JOBS - 4) + ["exit 7\n"] * 2 + ["exec sleep 1000\n"] * 2
    chance.shuffle(scripts)
    while clock.monotonic() < FAULTS_UNTIL_S:
        await asyncio.sleep(chance.uniform(1.0, 40.0))
        for _ in range(min(chance.randrange(4), len(scripts))):
            await world.upload(scripts.pop())
        await world.strike()
        await world.end_jobs()
    while scripts:
        await world.upload(scripts.pop())
    for _, calls in world.servers:
        calls.thawed.set()
    until = clock.monotonic() + LONGEST_S
    while clock.monotonic() < until and not all(row.state.is_final for row in world.rows()):
        await world.end_jobs()
        await asyncio.sleep(20.0)
    world.judge()
    while world.servers:
        await world.kill_server(0)
    for node in world.nodes.values():
        await node.end()


def played(seed: int, plant: str | None = None) -> Verdict:
    """The whole life of a world."""
    memory = "/dev/shm"
    place = memory if os.access(memory, os.W_OK) else None
    clock, patience_ms = FakeClock(), fair_share.LONGEST_WAIT_MS
    with tempfile.TemporaryDirectory(prefix="tn-world-", dir=place) as root:
        world = World(Path(root), seed, clock, plant)
        run_virtually(clock, _play(world))
        fair_share.LONGEST_WAIT_MS = patience_ms
        counted = Counter(world.faults)
    ends = Counter(word for node in world.nodes.values() for word, _, _ in node.ledger)
    return Verdict(seed, tuple(world.problems), dict(ends), {k: n for k, n in counted.items() if n})


class _Restless(CleanerRest):
    """A cleaner that never rests."""

    def round(self, wall: float, monotonic: float, max_age_s: float) -> tuple[CleanerRest, float]:
        return self, 0.0


def _without_find(server: Server) -> None:
    """A job that was taken over is given to any node anew."""
    handover = server._job_follower._handover
    send = handover.send

    async def anew(row: JobRow, *, may_be_there: bool, is_unwanted: bool) -> JobRow | None:
        other = plan_nodes(server.parts.book.well(server.parts.book.nodes), {}, 1)[0]
        return await send(row._replace(node=other), may_be_there=False, is_unwanted=is_unwanted)

    handover.send = anew  # type: ignore[method-assign]
