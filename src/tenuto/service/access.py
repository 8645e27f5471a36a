"""The person behind a request and what they may: tokens, their scopes, and the principal of a request.
The only SQL on tokens; a token itself is never stored, only its SHA-256.
"""

from __future__ import annotations

import hashlib
import secrets
from enum import Enum, unique
from typing import NamedTuple

from sqlalchemy import Connection, insert, select, update

from tenuto.database import Database, now_ms
from tenuto.errors import InvalidValue, NotFound
from tenuto.service.log import log
from tenuto.service.names import is_service, is_user
from tenuto.service.rows import NO_LIMITS, UserLimits
from tenuto.service.tables import tokens

PREFIX = "tnt_"
_SECRET_BYTES = 32


@unique
class Scope(Enum):
    """What a token allows."""

    SUBMIT = "submit"
    READ = "read"
    FRONT = "front"
    """Acts for any user: `user_id` is required and believed, and all jobs are seen."""
    ADMIN = "admin"
    METRICS = "metrics"
    """Reads the figures for Prometheus, and nothing else."""


class Principal(NamedTuple):
    """The user or program that sent a request."""

    user: str | None
    """The token's user; None where no tokens are used, and every client is believed."""
    scopes: frozenset[Scope]
    services: frozenset[str] | None = None
    """The services that its token may ask for; None: all."""
    token: int | None = None
    """The id of its token."""
    address: str = ""
    limits: UserLimits = NO_LIMITS
    """The limits of its token, in place of the server's."""

    def acted(self, action: str, job: int, **fields: object) -> None:
        """Logs an action on a job, and its person."""
        who = {"user": self.user, "token": self.token, "address": self.address}
        log(action, job=job, **fields, **{name: value for name, value in who.items() if value})

    def may_ask_for(self, service: str) -> bool:
        """Whether uploads for a service are allowed."""
        return self.services is None or service in self.services

    def may(self, scope: Scope) -> bool:
        """Whether this is allowed."""
        if Scope.ADMIN in self.scopes:
            return True
        if Scope.FRONT in self.scopes and scope in (Scope.SUBMIT, Scope.READ):
            return True
        return scope in self.scopes

    @property
    def acts_for_all(self) -> bool:
        """True if the user that a request names is believed, and all jobs are seen."""
        return self.user is None or bool(self.scopes & {Scope.FRONT, Scope.ADMIN})

    def sees(self, user: str) -> bool:
        """Whether the jobs of a user are seen."""
        return self.acts_for_all or user == self.user


EVERYBODY = Principal(None, frozenset(Scope))
"""The principal of all requests where no tokens are used."""


class TokenRow(NamedTuple):
    """A token as it is listed. Instants are milliseconds of the database's clock."""

    id: int
    user_id: str
    scopes: str
    note: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    services: str | None
    """Separated by commas; None: all."""
    queued: int | None
    stored_bytes: int | None
    connections: int | None


def digest_of(token: str) -> bytes:
    """The stored fields of a token, and their lookup."""
    return hashlib.sha256(token.encode()).digest()


def services_of(text: str) -> frozenset[str]:
    """The services that a text names, separated by commas; `InvalidValue` for anything else."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if not is_service(name):
            raise InvalidValue(f"{name!r:.80} cannot name a service: letters, digits, _ . and - only")
    if not names:
        raise InvalidValue("name some services, separated by commas; without any, a token is for all")
    return frozenset(names)


def scopes_of(text: str) -> frozenset[Scope]:
    """The scopes that a text names, separated by commas; `InvalidValue` for anything else."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = {scope.value: scope for scope in Scope}
    for name in names:
        if name not in known:
            raise InvalidValue(f"{name!r} is no scope: give some of {', '.join(known)}, separated by commas")
    if not names:
        raise InvalidValue(f"a token needs a scope: give some of {', '.join(known)}")
    return frozenset(known[name] for name in names)


class Tokens:
    """The tokens of one database. Every method blocks: call it in a thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        user: str,
        scopes: frozenset[Scope],
        expires_in_ms: int | None,
        note: str = "",
        services: frozenset[str] | None = None,
        limits: UserLimits = NO_LIMITS,
    ) -> tuple[int, str]:
        """A new token: its id, and the token itself, which the server cannot show again.

        ``services``: those that it may ask for; None: all. ``limits``: in place of the server's.
        """
        if not is_user(user):
            raise InvalidValue(
                f"{user!r:.80} cannot name a user: letters, digits and _.@+-, at most 64, no sign first"
            )
        token = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        digest = digest_of(token)

        def once(connection: Connection) -> int:
            known = connection.execute(select(tokens.c.id).where(tokens.c.digest == digest)).scalar()
            if known is not None:  # a commit whose answer was lost
                return int(known)
            now = int(connection.execute(select(now_ms())).scalar_one())
            values = {
                "digest": digest,
                "user_id": user,
                "scopes": ",".join(scope.value for scope in Scope if scope in scopes),
                "note": note,
                "services": None if services is None else ",".join(sorted(services)),
                **limits._asdict(),
                "created_at": now,
                "expires_at": None if expires_in_ms is None else now + expires_in_ms,
            }
            return int(connection.execute(insert(tokens).values(values).returning(tokens.c.id)).scalar_one())

        return self._database.write(once), token

    def now_ms(self) -> int:
        """The database's clock, by which tokens expire."""
        return self._database.read(lambda connection: int(connection.execute(select(now_ms())).scalar_one()))

    def listed(self) -> list[TokenRow]:
        """All tokens, the oldest first."""
        columns = [tokens.c[name] for name in TokenRow._fields]
        query = select(*columns).order_by(tokens.c.id)
        return self._database.read(lambda connection: [TokenRow(*row) for row in connection.execute(query)])

    def revoke(self, token_id: int) -> None:
        """Makes a token useless; `NotFound` if there is none."""
        statement = (
            update(tokens)
            .where(tokens.c.id == token_id, tokens.c.revoked_at.is_(None))
            .values(revoked_at=now_ms())
        )
        if not self._database.write(lambda connection: connection.execute(statement).rowcount):
            known = {row.id for row in self.listed()}
            if token_id not in known:
                raise NotFound(f"there is no token {token_id}: `tenuto token list` shows them")

    def principal(self, token: str) -> Principal | None:
        """Who a token belongs to; None if it is wrong, old or revoked."""
        columns = [tokens.c[name] for name in ("id", "user_id", "scopes", "services", *UserLimits._fields)]
        query = select(*columns).where(
            tokens.c.digest == digest_of(token),
            tokens.c.revoked_at.is_(None),
            tokens.c.expires_at.is_(None) | (tokens.c.expires_at > now_ms()),
        )
        found = self._database.read(lambda connection: connection.execute(query).one_or_none())
        if found is None:
            return None
        services = None if found.services is None else frozenset(found.services.split(","))
        limits = UserLimits(*found[-len(UserLimits._fields) :])
        return Principal(found.user_id, scopes_of(found.scopes), services, found.id, limits=limits)


def bearer(header: str | None) -> str | None:
    """The token of an Authorization header; None if it has none."""
    kind, _, token = (header or "").partition(" ")
    token = token.strip()
    return token if kind.lower() == "bearer" and token else None
