"""A server put together: rows, nodes, stages and routes; how it starts, and how it stops.
Parses no arguments; `cli.commands.serve` does.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp, Scope

from tenuto.errors import DatabaseError
from tenuto.lifecycle.service import ServiceState
from tenuto.service.access import Tokens
from tenuto.service.callbacks import CALLBACK_SECRET, CallbackHosts, CallbackSender, Secrets
from tenuto.service.configuration import made_secret, secret_in
from tenuto.service.context import Offered, ServerContext
from tenuto.service.data_owner import DataDirectory, OwnedData, open_data
from tenuto.service.data_paths import DataPaths
from tenuto.service.decisions import CleanerRest, ServerBeats
from tenuto.service.guard import Guard, Proxies
from tenuto.service.http_node import HttpNode, NodeAddress
from tenuto.service.job_follower import JobDispatcher, JobFollower
from tenuto.service.log import log
from tenuto.service.metrics import Metrics
from tenuto.service.nodes import Node, NodeBook
from tenuto.service.openapi import application
from tenuto.service.operations import Operations
from tenuto.service.periodic import Periodic, clean_every_s
from tenuto.service.requests import (
    MOVES_CHANNEL,
    QUEUE_CHANNEL,
    NodePlace,
    Requests,
    busy_nodes,
    note_nodes,
    note_places,
)
from tenuto.service.routes import download, info, jobs, watching
from tenuto.service.routes.common import HANDLERS, Front
from tenuto.service.rows import UserLimits
from tenuto.service.tables import MIGRATIONS
from tenuto.service.threads import Threads
from tenuto.settings.service import ServiceSettings
from tenuto.workspace.ports import Machine

SEEN_EVERY_S = 5.0
FILE_EVERY_S = 0.5
"""How often a server looks at its SQLite file; other writers, such as `tenuto kill`, announce nothing."""
UNSEEN_MS = 15_000
STILL_S = UNSEEN_MS / 1000 - SEEN_EVERY_S
"""A server that was not seen for `UNSEEN_MS` has shown the same beat at least for so long."""
NODES_EVERY_S = 2.0
"""How often nodes that take nothing are asked whether they take jobs again."""
ALL_NODES_EVERY = 5
"""In every so many rounds all nodes are asked for their slots: one that was started anew may have others."""
PATIENCE_S = 10.0
SQL_THREADS = 12
SQLITE_THREADS = 4
"""Its writers take turns, and each thread has a connection with a cache of its own."""
TITLE = "Tenuto job service"


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """How a server is to be."""

    settings: ServiceSettings
    database: str
    services: Mapping[str, Offered]
    version: str


def server_data(plan: ServerPlan, machine: Machine) -> OwnedData:
    """The database and the data directory of a server; `ForeignData` if they do not belong together."""
    data = str(plan.settings.data.absolute())
    directory = DataDirectory(data, DataPaths(data).jobs, "server")
    return open_data(machine, directory, plan.database, MIGRATIONS, PATIENCE_S)


class Server:
    """A server in this process."""

    def __init__(
        self,
        plan: ServerPlan,
        nodes: Mapping[str, Node],
        machine: Machine,
        owned: OwnedData | None = None,
    ) -> None:
        """`nodes`: by name, all that the services name; `owned`: of `server_data`, if that was called."""
        settings = plan.settings
        self._plan = plan
        self._machine = machine
        self.database, database_id, self._lock = owned or server_data(plan, machine)
        self._id = machine.randomness.nonce()
        requests = Requests(self.database, self._id)
        places = DataPaths(str(settings.data))
        places.make()
        self.parts = ServerContext(
            settings,
            dict(plan.services),
            requests,
            database_id,
            places,
            NodeBook(nodes, machine.clock),
            machine.clock,
            machine.randomness,
            Metrics(),
            sql=Threads(SQLITE_THREADS if self.database.is_sqlite else SQL_THREADS),
        )
        self._limit(settings)
        self._calls = CallbackSender(
            self.database,
            self.parts.sql,
            lambda: self.parts.callback_hosts,
            _secrets(settings, machine),
            self.parts.metrics,
        )
        self._job_follower = JobFollower(self.parts, self._wake_dispatcher)
        self._dispatcher = JobDispatcher(self.parts, self._job_follower.follow, self._job_follower.claiming)
        self._cleaner = Cleaner(self.parts)
        self._member = Periodic("member", self._be_seen, SEEN_EVERY_S, self.parts.metrics.stage_failed)
        news_every_s = FILE_EVERY_S if self.database.is_sqlite else SEEN_EVERY_S
        self._news = Periodic("news", self._tell_news, news_every_s, self.parts.metrics.stage_failed)
        self._stamp: object = None
        """Of the SQLite file when its news were read last."""
        self._asking = Periodic("nodes", self._learn_slots, NODES_EVERY_S, self.parts.metrics.stage_failed)
        self._last_move = 0
        self._asked = 0
        """How often nodes were asked for their slots."""
        self._beats = ServerBeats()
        self._named = set(nodes)
        """The nodes of the settings."""
        self._noted: list[NodePlace] = []
        """Where the nodes are, as it was noted last."""
        self.operations = Operations(self.parts, self._dispatcher.stage.wake, self._job_follower.terminate)

    def _wake_dispatcher(self) -> None:
        self._dispatcher.stage.wake()

    def _limit(self, settings: ServiceSettings) -> None:
        """Holds users to these limits from now on, and calls these hosts."""
        of_user = (settings.queued_per_user, settings.stored_bytes_per_user, settings.connections_per_user)
        self.parts.limits = UserLimits(*of_user)
        self.parts.callback_hosts = CallbackHosts(settings.callback_hosts)

    def app(self) -> ASGIApp:
        """The server as an ASGI application."""
        settings = self._plan.settings
        proxies = Proxies(settings.prefix, settings.trusted_proxies)
        api = application(
            TITLE,
            self._plan.version,
            "Upload files; get a ZIP of results.",
            exception_handlers=HANDLERS,
            servers=[{"url": proxies.prefix}] if proxies.prefix else None,
        )
        api.state.routers = (jobs.router, download.router, watching.router, info.router)
        for router in api.state.routers:
            api.include_router(router)
        tokens = Tokens(self.database) if settings.auth == "tokens" else None
        api.state.front = Front(self.parts, self.operations, tokens)
        api.state.wants_token = tokens is not None
        api.state.answers_by_code = settings.compat != "v2"
        return Guard(
            api,
            hosts=(settings.host, *settings.hosts),
            randomness=self._machine.randomness,
            observe=self._observe,
            monotonic=self._machine.clock.monotonic,
            proxies=proxies,
        )

    def _observe(self, scope: Scope, status: int, took_s: float) -> None:
        route = scope.get("route")
        self.parts.metrics.answered(getattr(route, "path", "other"), status, took_s)

    # Starting and stopping

    async def start(self) -> None:
        """Continues the work under way, and begins to claim."""
        parts = self.parts
        raise_open_files(parts.settings.connections)
        await parts.sql(parts.requests.be_seen)
        last = await parts.files(parts.places.last_number)
        if await parts.sql(parts.requests.count_on, last):
            log("restored", 30, numbers_from=last + 1)
        await self._find_left_nodes()
        await self._take_over()
        await self._cleaner.sweep(alone=self.database.is_sqlite)
        self._last_move = await parts.sql(parts.requests.last_move)
        listen = self.database.wakeups.listen
        listen(QUEUE_CHANNEL, self._dispatcher.stage.wake_soon)
        if not self.database.is_sqlite:  # of a file, the own moves are all that would be told
            listen(MOVES_CHANNEL, self._news.wake_soon)
        await self._learn_slots()
        for stage in (self._member, self._news, self._asking, self._dispatcher.stage, self._cleaner.stage):
            stage.start()
        self._calls.stage.start()

    async def rehearse(self) -> None:
        """Prepares what the first job would wait for."""
        await self.parts.sql(self.parts.requests.rehearse)

    def drain(self) -> None:
        """Takes no more uploads, and lets no request wait."""
        log("draining")
        self.operations.is_draining = True
        self.parts.waiters.close()

    def reload(
        self, services: Mapping[str, Offered], nodes: Mapping[str, Node], settings: ServiceSettings
    ) -> None:
        """Offers these services from now on, at these nodes, and holds users to these limits.

        A node that is not named any more gets no job, and is asked for the results of those that it has.
        """
        self._calls.secrets = _secrets(settings, self._machine)  # which may be refused
        self._limit(settings)
        book = self.parts.book
        inside = {name for name, node in book.nodes.items() if not isinstance(node, HttpNode)}
        self._named = {*nodes, *inside}
        for name, node in nodes.items():
            if name not in book.nodes or not _is_same(book.nodes[name], node):
                book.add(name, node)
        self.parts.services.update(services)
        for name in [name for name in self.parts.services if name not in services]:
            del self.parts.services[name]
        self._asked = 0  # all nodes are asked for their slots in the next round
        self._asking.wake()
        self._wake_dispatcher()

    async def close(self) -> None:
        """Stops; jobs continue at their nodes, and the next server finds them."""
        for stage in (self._dispatcher.stage, self._cleaner.stage, self._asking, self._news, self._member):
            await stage.close()
        await self._job_follower.close()
        await self._calls.close()
        for node in self.parts.book.nodes.values():
            await node.close()
        with suppress(DatabaseError):  # another server finds out by itself
            await self.parts.sql(self.parts.requests.leave)
        self.parts.sql.close()
        self.parts.files.close()
        self.parts.uploads.close()
        self.database.close()
        if self._lock is not None:
            self._lock.close()

    async def _learn_slots(self) -> None:
        """Asks nodes all at once: one that is silent delays no other."""
        self._asked += 1
        book = self.parts.book
        is_full_round = self._asked % ALL_NODES_EVERY == 1
        nodes = [(name, node) for name, node in book.nodes.items() if is_full_round or not book.takes(name)]
        await asyncio.gather(*(self._learn_slots_of(name, node) for name, node in nodes))

    async def _learn_slots_of(self, name: str, node: Node) -> None:
        took_nothing = not self.parts.book.takes(name)
        try:
            self.parts.book.answered(name, await node.slots())
            if took_nothing and self.parts.book.takes(name):
                self._wake_dispatcher()
        except Exception as error:  # noqa: BLE001  a node that is down now may be up later
            self.parts.book.failed(name, str(error))

    # Members

    async def _be_seen(self) -> None:
        """Says that this server lives, and takes over what servers that do not had claimed."""
        parts = self.parts
        await parts.sql(parts.requests.be_seen)
        await self._find_left_nodes()
        await self._take_over()
        if answered := parts.book.take_answered():
            await parts.sql(self.database.write, lambda connection: note_nodes(connection, answered))
        await self._job_follower.follow_strays()

    async def _find_left_nodes(self) -> None:
        """Notes where the nodes are; one that left the settings is known as long as it has jobs."""
        parts = self.parts
        book = parts.book
        named = [
            NodePlace(
                name, node.address.url, str(node.address.secret_file) if node.address.secret_file else None
            )
            for name, node in book.nodes.items()
            if isinstance(node, HttpNode)
        ]
        if named != self._noted:
            await parts.sql(self.database.write, lambda connection: note_places(connection, named))
            self._noted = named
        busy = await parts.sql(self.database.read, busy_nodes)
        for left in busy.values():
            if left is not None and left.name not in book.nodes:
                secret_file = Path(left.token_file) if left.token_file else None
                address = NodeAddress(left.url, secret_file=secret_file, poll_s=parts.settings.poll_s)
                book.add(left.name, HttpNode(left.name, address))
                log("node_left", 30, node=left.name, url=left.url)
        for name in book.nodes.keys() - self._named - busy.keys():
            await book.drop(name).close()

    async def _take_over(self) -> None:
        """Dismisses the servers that are gone, then claims the jobs of all that are no members."""
        if gone := await self._gone():
            await self.parts.sql(self.parts.requests.dismiss, gone)
        rows = await self.parts.sql(self.parts.requests.take_over)
        if rows:
            log("claimed", taken_over=len(rows))
        for row in rows:
            self._job_follower.follow(row, taken_over=True)

    async def _gone(self) -> dict[str, int]:
        """The last beats of servers that were not seen for too long: by the database's clock, and by ours."""
        shown, late = await self.parts.sql(self.parts.requests.servers, UNSEEN_MS)
        if self.database.is_sqlite:  # the lock of the data says that no other lives
            return {server: beat for server, beat in shown.items() if server != self._id}
        now = self._machine.clock.monotonic()
        self._beats.look(shown, now)
        return {server: shown[server] for server in late if self._beats.is_still(server, now, STILL_S)}

    async def _tell_news(self) -> None:
        """Wakes what waits for jobs that others moved or asked to end: servers, commands, the monitor.

        The uploads of a job that was ended while it was queued are removed here: it had no follower.
        """
        parts = self.parts
        stamp = self.database.stamp()
        if stamp is not None and stamp == self._stamp:
            return
        self._stamp = stamp
        # Transactions may commit in another order than their moves were numbered: a few are read again.
        news = await parts.sql(parts.requests.moved_since, max(self._last_move - 50, 0))
        for move_id, job_id, unfollowed in news:
            self._last_move = max(self._last_move, move_id)
            parts.waiters.tell(job_id)
            if unfollowed is not None:
                await parts.files(parts.places.job(unfollowed).tidy)
        for job_id in await parts.sql(parts.requests.unwanted):
            self._job_follower.terminate(job_id)


def _secrets(settings: ServiceSettings, machine: Machine) -> Secrets:
    """What callbacks are signed with; the secret of jobs without a token is made at the first start."""
    given, own = settings.callback_secret_file, settings.data / CALLBACK_SECRET
    if not settings.callback_hosts:
        return Secrets("")
    if given is not None:
        return Secrets("", secret_in(given))
    return Secrets(made_secret(own, "tnc_", machine.randomness))


def _is_same(known: Node, named: Node) -> bool:
    """True if two nodes over HTTP are the same one."""
    address = getattr(known, "address", None)
    return address is not None and address == getattr(named, "address", None)


def raise_open_files(connections: int) -> None:
    """Raises the soft limit of open files, so that as many connections can be served."""
    wanted = connections + 1024
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


async def closed(server: Server) -> None:
    """Closes a server within a bounded time."""
    try:
        async with asyncio.timeout(30.0):
            await server.close()
    except TimeoutError:
        log("stage_failed", 40, stage="close", why="it took too long")


# The cleaner: removes the files of jobs that ended long ago, forgets their rows later, and sweeps.
# Trusts the database's clock, and rests when that jumped.


ORPHAN_AGE_S = 86400.0
"""Age at which a directory without a row is removed, where another server may be about to add the row."""
AT_ONCE = 100
FORGOTTEN = 1000
SWEEP_EVERY_S = 86400.0


class Cleaner:
    """The stage that cleans."""

    def __init__(self, parts: ServerContext) -> None:
        self._parts = parts
        # At the start the machine's own clock is what the database's is compared with.
        self._rest = CleanerRest(parts.clock.now().timestamp(), parts.clock.monotonic())
        self._sweep_at = 0.0
        """On the monotonic clock."""
        every_s = clean_every_s(parts.settings.max_age_s)
        self.stage = Periodic("cleaner", self.round, every_s, parts.metrics.stage_failed)

    async def round(self) -> None:
        """Removes old data, unless the clock cannot be trusted."""
        settings, clock = self._parts.settings, self._parts.clock
        # The database's clock says how old a job is, and may be another machine's.
        wall, now = await self._parts.sql(self._parts.requests.now) / 1000, clock.monotonic()
        self._rest, ahead = self._rest.round(wall, now, settings.max_age_s)
        await self._parts.sql(self._parts.requests.note_queues)
        if ahead:
            log("clock_jumped", 30, ahead_s=round(ahead))
        if self._rest.is_resting(now):
            return
        while await self._clean() == AT_ONCE:
            pass
        forget, age_ms = self._parts.requests.forget, int(settings.forget_after_s * 1000)
        while await self._parts.sql(forget, age_ms, FORGOTTEN) == FORGOTTEN:
            pass
        if now >= self._sweep_at:
            await self.sweep(alone=False)

    async def _clean(self) -> int:
        parts = self._parts
        max_age_ms = int(parts.settings.max_age_s * 1000)
        rows = await parts.sql(parts.requests.old, max_age_ms, AT_ONCE)
        cleaned = 0
        for row in rows:
            # The disk has a clock of its own: the database's may have been wrong when the job ended.
            if await parts.files(self._is_young, row.directory):
                continue
            if await parts.move(row, ServiceState.CLEANED) is not None:
                await parts.files(parts.places.discard, row.directory)
                cleaned += 1
        if cleaned:
            log("cleaned", jobs=cleaned)
        return cleaned

    def _is_young(self, directory: str) -> bool:
        age_s = self._parts.places.age_s(directory, self._parts.clock.now().timestamp())
        return age_s is not None and age_s < self._parts.settings.max_age_s

    async def sweep(self, *, alone: bool) -> None:
        """Removes what killed servers left: directories without a job or of a cleaned one, parts of results.

        ``alone``: no upload is under way, so that no directory can be about to get its row. A directory that
        has had a row is kept like a result: the database was restored, and may be once more.
        """
        parts, kept = self._parts, 0
        self._sweep_at = parts.clock.monotonic() + SWEEP_EVERY_S
        names = await parts.files(parts.places.names)
        for start in range(0, len(names), AT_ONCE):
            some = names[start : start + AT_ONCE]
            states = await parts.sql(parts.requests.states_of, some)
            now = parts.clock.now().timestamp()
            for name in some:
                state = states.get(name)
                if state is None and (age_s := parts.places.age_s(name, now)) is not None:
                    was_accepted = parts.places.was_accepted(name)
                    least_s = parts.settings.max_age_s if was_accepted else 0.0 if alone else ORPHAN_AGE_S
                    if age_s < least_s:
                        kept += was_accepted
                        continue
                if state is None or state is ServiceState.CLEANED:
                    log("swept", 30, directory=name, why="cleaned before" if state else "of no job")
                    await parts.files(parts.places.discard, name)
                elif state.is_final:
                    await parts.files(parts.places.job(name).tidy)
        if kept:
            log("kept", 30, directories=kept, for_s=round(parts.settings.max_age_s))
