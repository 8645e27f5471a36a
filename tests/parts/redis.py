"""A private Redis for the tests, on a Unix socket in a temporary directory."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import redis

from tests.parts.keeper import Kept


class Redis:
    """A server of its own; `url` is its socket."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tn-rd-", dir="/tmp"))
        self.url = f"unix://{self.directory}/socket"
        try:
            self.start()
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def start(self) -> None:
        options = [
            "--port",
            "0",
            "--unixsocket",
            f"{self.directory}/socket",
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        self._kept = Kept(
            ["redis-server", *options, "--dir", str(self.directory), "--daemonize", "no"], self.directory
        )
        self._kept.wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.exceptions.RedisError:
            return False

    def empty(self) -> None:
        """Loses every message."""
        with redis.Redis.from_url(self.url) as client:
            client.flushall()

    def put(self, body: bytes, queue: str = "tenuto.evolution") -> None:
        """Puts bytes into a queue of Dramatiq, as another program may."""
        name = f"dramatiq:{queue}"
        with redis.Redis.from_url(self.url) as client:
            message_id = str(client.incr("strangers"))
            client.hset(f"{name}.msgs", message_id, body)
            client.rpush(name, message_id)

    def connections(self) -> int:
        """How many clients are connected, this question's own included."""
        with redis.Redis.from_url(self.url) as client:
            return len(client.client_list())

    def stop(self) -> None:
        self._kept.end(keep_directory=True)

    def end(self) -> None:
        self._kept.end()
