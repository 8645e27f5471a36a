"""Ports of this machine for servers that cannot be asked to find one themselves."""

from __future__ import annotations

import random
import socket
from pathlib import Path


def free_port() -> int:
    """A port that the kernel gives to no connection meanwhile: a server takes seconds to listen on it."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.SystemRandom().sample(range(10_000, max(low, 11_000)), 100):
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free")
