"""A private RabbitMQ for the tests; it needs ports of this machine, and a private port mapper of Erlang's."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pika

from tests.parts.keeper import Kept
from tests.parts.ports import free_port

SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
# The port mapper is started first, as a child of the same shell: one that Erlang starts would stay behind.
_START = """
epmd -port "$ERL_EPMD_PORT" & mapper=$!
"$0" & server=$!
trap 'kill $server' TERM
wait $server
wait $server
kill $mapper
"""


class RabbitMQ:
    """A server of its own."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tn-mq-", dir="/tmp"))
        self._port, self._distribution, self._mapper = free_port(), free_port(), free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self._port}/"
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self._port}\nloopback_users = none\n"
        )
        (self.directory / "plugins").write_text("[].")
        try:
            self.start()
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def start(self) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "RABBITMQ_NODENAME": f"t{self._port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "ERL_EPMD_PORT": str(self._mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
        }
        self._kept = Kept(["/bin/sh", "-c", _START, SERVER], self.directory, environment=environment)
        self._kept.wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            pika.BlockingConnection(pika.URLParameters(self.url)).close()
        except (pika.exceptions.AMQPError, OSError):
            return False
        return True

    def empty(self, queue: str = "tenuto.evolution") -> None:
        """Loses every message."""
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        connection.channel().queue_purge(queue)
        connection.close()

    def put(self, body: bytes, queue: str = "tenuto.evolution") -> None:
        """Puts bytes into a queue, as another program may."""
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        connection.channel().basic_publish("", queue, body)
        connection.close()

    def stop(self) -> None:
        self._kept.end(keep_directory=True)

    def end(self) -> None:
        self._kept.end()
