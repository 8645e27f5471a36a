"""Dramatiq's broker on Redis, made sound: data that is no message of Dramatiq goes to the dead letters.
Dramatiq's own consumer stops for seconds at such a message, and meets it again later.
"""

from __future__ import annotations

from typing import Any

from dramatiq import Message
from dramatiq.brokers.redis import RedisBroker

_NACKED_AS = "redis_message_id"
"""The option by which Dramatiq acknowledges a message."""


class SoundRedisBroker(RedisBroker):
    """A broker whose consumers see messages only."""

    def do_fetch(self, queue_name: str, *arguments: Any) -> list[bytes]:
        """Fetches messages, without unreadable ones."""
        dispatch: Any = self._dispatch
        fetched: list[bytes] = dispatch("fetch")(queue_name, *arguments)
        sound = [body for body in fetched if _is_message(body)]
        if len(sound) < len(fetched):
            self._bury(queue_name)
        return sound

    def _bury(self, queue_name: str) -> None:
        """Moves unreadable messages to the dead letters; looks at all messages: `fetch` gives no ids."""
        for message_id, body in self.client.hscan_iter(f"{self.namespace}:{queue_name}.msgs"):
            if not _is_message(body):
                self.do_nack(queue_name, message_id)


def _is_message(body: bytes) -> bool:
    try:
        return _NACKED_AS in Message.decode(body).options
    except Exception:  # noqa: BLE001  whatever a decoder makes of foreign bytes
        return False
