"""Callbacks: the address that a user wants told of the end of a job, and the stage that tells it.
The row of a callback is written with the end of its job; only `CallbackSender` calls an address.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from sqlalchemy import Connection, and_, select, update

from tenuto.database import Database, now_ms
from tenuto.errors import DatabaseError, InvalidSetting
from tenuto.service.contract import CallbackBody, ErrorCode
from tenuto.service.log import log
from tenuto.service.metrics import Metrics
from tenuto.service.periodic import Periodic
from tenuto.service.rows import JobRow, instant
from tenuto.service.tables import IS_WAITING, callbacks, tokens
from tenuto.service.threads import Threads
from tenuto.service.uploads import refused

CALLBACK_SECRET = "callback.secret"
"""In the data of the server: the secret of jobs without a token."""
SIGNATURE = "Tenuto-Signature"
DELIVERY = "Tenuto-Delivery"
AGAIN_S = (10, 60, 600, 3600, 21600)
"""How long after each try the next one is due; there is one try more than pauses."""
LAST_S = 60
"""A last try that a server did not live to note is given up after so long."""
ANSWER_S = 9.0
"""Less than the first pause: of two tries the first is over when the second begins."""
AT_ONCE = 64
LOOK_S = 1.0
LONGEST_URL = 2000
_LONGEST_MESSAGE = 200
_SCHEMES = {"http": 80, "https": 443}
_ANY = "*"
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class CallbackHosts:
    """The hosts that may be called: names, `*.example.org`, `*` for all by https, addresses and networks."""

    def __init__(self, entries: Iterable[str]) -> None:
        """`InvalidSetting` for an entry that is none of these."""
        self._names: set[str] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for entry in entries:
            try:
                self._networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
            except ValueError:
                name = entry.lower().rstrip(".")
                plain = name.removeprefix("*.").replace("-", "").replace(".", "").replace("_", "")
                if name != _ANY and not (plain.isascii() and plain.isalnum()):
                    raise InvalidSetting(
                        f"service.callback_hosts: {entry!r} is no host: give names, *.example.org, *, "
                        "addresses or networks, without a scheme or port"
                    ) from None
                self._names.add(name)
        if "localhost" in self._names:  # the only name that says by itself where it leads
            self._networks += [ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128")]

    def __bool__(self) -> bool:
        return bool(self._names or self._networks)

    def refuse(self, url: str) -> None:
        """Refuses a URL that is none, or leads to a host that is not in the list."""
        if not self:
            raise refused(
                ErrorCode.CALLBACKS_OFF,
                "This server calls no address at the end of a job: leave callback out, and wait for it",
            )
        if (problem := self.problem(url)) is not None:
            raise refused(ErrorCode.BAD_CALLBACK, f"Invalid callback {url[:80]!a}: {problem}")

    def problem(self, url: str) -> str | None:
        """Why a URL is not called; None if its host may be."""
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").rstrip("."), parts.port
        except ValueError as error:
            return str(error)
        if len(url) > LONGEST_URL or not (url.isascii() and url.isprintable()) or " " in url or "\\" in url:
            return f"a URL is at most {LONGEST_URL} printable ASCII characters, without spaces"
        if parts.scheme not in _SCHEMES or not host or port == 0:
            return "give https://HOST/..., or http:// to a host that the server lists"
        if "@" in parts.netloc or "#" in url:
            return "a user, a password and a fragment have no place in it"
        address = _address(host)
        if address is not None:
            return None if self._lists(address) else f"the server does not list the address {host}"
        if self._is_named(host) or (_ANY in self._names and parts.scheme == "https"):
            return None
        return f"the server does not list the host {host}" + (" for http" if _ANY in self._names else "")

    def _is_named(self, host: str) -> bool:
        above = [host[at:] for at, character in enumerate(host) if character == "."]
        return host in self._names or any(f"*{end}" in self._names for end in above)

    def _lists(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def may_reach(self, address: Address) -> bool:
        """Whether a name may lead to an address: a public one, or one of the list."""
        if self._lists(address):
            return True
        return all(one.is_global and not one.is_multicast for one in (address, *_inner(address)))


def _inner(address: Address) -> Iterator[Address]:
    """The addresses that one of IPv6 leads to by way of a translator or a tunnel."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if address.sixtofour is not None:
            yield address.sixtofour
        yield from address.teredo or ()


def _address(text: str) -> Address | None:
    """The address that a text is, in any form that the system would take for one."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        try:  # 127.1, 0x7f000001 and 017700000001 are addresses, too
            return ipaddress.IPv4Address(socket.inet_aton(text))
        except OSError:
            return None
    return getattr(found, "ipv4_mapped", None) or found


# Rows


class DueCallback(NamedTuple):
    """A callback that is to be tried now."""

    job_id: int
    url: str
    body: str
    token_id: int | None
    tries: int
    digest: bytes | None
    """Of the token that the job was uploaded with."""


def take_due(connection: Connection, most: int) -> list[DueCallback]:
    """The callbacks whose time has come, each counted as tried, and due again if nothing is heard of it.

    A server that dies after this leaves them to the next one; of two servers one takes each.
    """
    now = int(connection.execute(select(now_ms())).scalar_one())
    waiting = and_(IS_WAITING, callbacks.c.due_at <= now)
    columns = (callbacks.c.job_id, callbacks.c.url, callbacks.c.body, callbacks.c.token_id, callbacks.c.tries)
    query = select(*columns, tokens.c.digest).join(tokens, tokens.c.id == callbacks.c.token_id, isouter=True)
    found = connection.execute(query.where(waiting).order_by(callbacks.c.due_at).limit(most)).all()
    taken = []
    for due in (DueCallback(*row) for row in found):
        if due.tries > len(AGAIN_S):  # no server noted its last try
            _note(connection, due.job_id, "given_up", "no server noted how its last try ended")
            continue
        pause_s = AGAIN_S[due.tries] if due.tries < len(AGAIN_S) else LAST_S
        values = {"tries": due.tries + 1, "due_at": now + pause_s * 1000}
        same = and_(waiting, callbacks.c.job_id == due.job_id, callbacks.c.tries == due.tries)
        if connection.execute(update(callbacks).where(same).values(values)).rowcount:
            taken.append(due._replace(tries=due.tries + 1))
    return taken


def _note(connection: Connection, job_id: int, status: str, message: str) -> None:
    change = update(callbacks).where(callbacks.c.job_id == job_id, IS_WAITING)
    connection.execute(change.values(status=status, message=message))


def callback_of(database: Database, row: JobRow) -> CallbackBody | None:
    """What became of the callback of a job; None if it has none."""
    if row.callback is None:
        return None
    query = select(callbacks).where(callbacks.c.job_id == row.id)
    found = database.read(lambda connection: connection.execute(query).one_or_none())
    if found is None:
        return CallbackBody(url=row.callback, status="waiting", tries=0, message="", next_try=None)
    due = instant(found.due_at) if found.status == "waiting" else None
    return CallbackBody(
        url=row.callback, status=found.status, tries=found.tries, message=found.message, next_try=due
    )


# Calls


class _Refused(OSError):
    """A name leads to an address that is not called."""


class _Resolver(AbstractResolver):
    """Asks for the addresses of a name once, and gives those alone that may be called.

    The connection is made to the checked address: a name that leads elsewhere the next moment is no way in.
    """

    def __init__(self, hosts: Callable[[], CallbackHosts]) -> None:
        self._hosts = hosts

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        given: list[ResolveResult] = [
            ResolveResult(hostname=host, host=str(to[0]), port=port, family=kind, proto=proto, flags=0)
            for kind, _, proto, _, to in found
            if (address := _address(str(to[0]))) is not None and self._hosts().may_reach(address)
        ]
        if not given:
            raise _Refused(f"{host} leads to an address inside, which service.callback_hosts does not list")
        return given

    async def close(self) -> None:
        """Keeps nothing."""


class Secrets(NamedTuple):
    """What callbacks are signed with."""

    of_others: str
    """Of jobs that were uploaded without a token; the key of a token is its SHA-256, in hex."""
    of_all: str | None = None
    """In place of both, where the settings name a file."""


class CallbackSender:
    """The stage that tells addresses of ended jobs."""

    def __init__(
        self,
        database: Database,
        sql: Threads,
        hosts: Callable[[], CallbackHosts],
        secrets: Secrets,
        metrics: Metrics,
    ) -> None:
        """`hosts` says which hosts are called now."""
        self._metrics = metrics
        self._database = database
        self._sql = sql
        self._hosts = hosts
        self.secrets = secrets
        self._session: aiohttp.ClientSession | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self.stage = Periodic("callbacks", self.round, LOOK_S, metrics.stage_failed)

    async def round(self) -> None:
        """Begins the calls that are due."""
        most = AT_ONCE - len(self._calls) if self._hosts() else 0
        due = await self._sql(self._database.read, _is_due) if most > 0 else False
        for one in await self._sql(self._database.write, lambda c: take_due(c, most)) if due else ():
            task = asyncio.get_running_loop().create_task(self._call(one))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def close(self) -> None:
        """Ends the calls that run: they are made again by the next server."""
        await self.stage.close()
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _call(self, due: DueCallback) -> None:
        problem = await self._problem(due)
        is_last = due.tries > len(AGAIN_S)
        status = "delivered" if problem is None else "given_up" if is_last else "waiting"
        message = "" if problem is None else problem[:_LONGEST_MESSAGE]
        self._metrics.called(status)
        log(f"callback_{status}", 20 if problem is None else 30, job=due.job_id, tries=due.tries, why=message)
        try:
            await self._sql(self._database.write, lambda c: _note(c, due.job_id, status, message))
        except DatabaseError as error:  # it is made again when it is due
            log("stage_failed", 40, stage="callbacks", job=due.job_id, why=str(error))

    async def _problem(self, due: DueCallback) -> str | None:
        """Why a call did not arrive; None if it was answered with 2xx."""
        if (problem := self._hosts().problem(due.url)) is not None:
            return problem  # the settings may be others than when the job was uploaded
        body = due.body.encode()
        key = self.secrets.of_all or (due.digest.hex() if due.digest else self.secrets.of_others)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "tenuto",
            SIGNATURE: f"sha256={hmac.new(key.encode(), body, hashlib.sha256).hexdigest()}",
            DELIVERY: hashlib.sha256(f"{due.job_id} {due.url} ".encode() + body).hexdigest()[:32],
        }
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=_Resolver(self._hosts), use_dns_cache=False, force_close=True
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=ANSWER_S),
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        try:
            asked = self._session.post(due.url, data=body, headers=headers, allow_redirects=False)
            async with asked as answer:
                return None if 200 <= answer.status < 300 else f"HTTP {answer.status}"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            cause = error.__cause__ if isinstance(error.__cause__, _Refused) else error
            return str(cause) or type(cause).__name__


def _is_due(connection: Connection) -> bool:
    waiting = and_(IS_WAITING, callbacks.c.due_at <= now_ms())
    return connection.execute(select(callbacks.c.job_id).where(waiting).limit(1)).first() is not None
