"""Whom a request calls: the Host header, read strictly, and the hosts that are this machine itself.
Decides for both guards; answers nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{0,5}))?")
LARGEST_PORT = 65535


def host_of(header: str) -> str | None:
    """The host that a Host header names, without its port, in lower case; None if it is not one."""
    found = _HOST.fullmatch(header)
    if found is None or int(found[3] or 0) > LARGEST_PORT:
        return None
    if found[1] is None:
        return found[2].lower()
    try:
        return str(ipaddress.IPv6Address(found[1]))
    except ValueError:
        return None


def host_names(hosts: Iterable[str]) -> frozenset[str]:
    """Hosts as people write them in settings, IPv6 with or without brackets, as `host_of` gives them."""
    return frozenset(host_of(host) or host_of(f"[{host}]") or host.lower() for host in hosts)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, seen from itself."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_served(headers: Sequence[str], allowed: Collection[str]) -> bool:
    """Whether the Host headers of a request are one served host: this machine itself, or one allowed."""
    host = host_of(headers[0]) if len(headers) == 1 else None
    return host is not None and (is_loopback(host) or host in allowed)
