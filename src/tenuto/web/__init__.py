"""What both HTTP servers share, the service's and the monitor's: limits of connections, the check of hosts.
Knows no route and no door. Its server is loaded when it is first asked for: commands ask for hosts alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenuto.light import on_demand
from tenuto.web.hosts import host_names, host_of, is_loopback, is_served

if TYPE_CHECKING:
    from tenuto.web.connections import ConnectionLimits, HttpServer, http_server, protocol_class

__all__ = [
    "ConnectionLimits",
    "HttpServer",
    "host_names",
    "host_of",
    "http_server",
    "is_loopback",
    "is_served",
    "protocol_class",
]

_ON_DEMAND = dict.fromkeys(
    ("ConnectionLimits", "HttpServer", "http_server", "protocol_class"), f"{__name__}.connections"
)
__getattr__, __dir__ = on_demand(__name__, _ON_DEMAND)
