"""Codes and sessions of the browsers that have logged in.
In memory only, and only hashes; the end of the server ends them all.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import deque
from typing import NamedTuple

from tenuto.clock import Clock

CODE_S = 600.0
IDLE_S = 12 * 3600.0
LONGEST_S = 7 * 86_400.0
MOST_WRONG = 10
WRONG_S = 60.0
MOST_SESSIONS = 1_000


class Login(NamedTuple):
    """The two halves of a session, told once."""

    cookie: str
    key: str


class _Session(NamedTuple):
    key_hash: bytes
    began: float
    used: float


class Sessions:
    """The browsers that may ask; from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._codes: dict[bytes, float] = {}
        self._sessions: dict[bytes, _Session] = {}
        self._wrong: deque[float] = deque(maxlen=MOST_WRONG)

    def new_code(self) -> str:
        """A code that logs in once, within ten minutes."""
        code = secrets.token_urlsafe(16)
        self.add_code(code)
        return code

    def add_code(self, code: str) -> None:
        """Accept a code that another process made."""
        with self._lock:
            self._codes[_hash(code)] = self._clock.monotonic() + CODE_S

    def login(self, code: str) -> Login | None:
        """Use a code up; None if it is none, was used, or is too old."""
        now = self._clock.monotonic()
        with self._lock:
            until = self._codes.pop(_hash(code), None)
            self._codes = {known: until_ for known, until_ in self._codes.items() if until_ > now}
            if until is None or until <= now:
                self._wrong.append(now)
                return None
            login = Login(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
            while len(self._sessions) >= MOST_SESSIONS:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[_hash(login.cookie)] = _Session(_hash(login.key), now, now)
            return login

    @property
    def is_throttled(self) -> bool:
        """True after ten wrong codes in a minute."""
        with self._lock:
            full = len(self._wrong) == MOST_WRONG
            return full and self._clock.monotonic() - self._wrong[0] < WRONG_S

    def is_open(self, cookie: str, key: str) -> bool:
        """Whether both halves are of one session that has not ended; asking keeps it open."""
        now = self._clock.monotonic()
        name = _hash(cookie)
        with self._lock:
            session = self._sessions.get(name)
            if session is None:
                return False
            if now - session.used > IDLE_S or now - session.began > LONGEST_S:
                del self._sessions[name]
                return False
            if not secrets.compare_digest(session.key_hash, _hash(key)):
                return False
            self._sessions[name] = session._replace(used=now)
            return True

    def is_known(self, cookie: str) -> bool:
        """Whether a session was not ended since; asking does not keep it open."""
        with self._lock:
            return _hash(cookie) in self._sessions

    def logout(self, cookie: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(_hash(cookie), None)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
