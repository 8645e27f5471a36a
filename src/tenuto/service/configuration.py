"""From settings to servers and nodes: what is offered, on which nodes, in which sandbox.
Refuses what would be unsafe, before anything listens.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from tenuto.errors import InvalidSetting, UnsafeService
from tenuto.launchers.instructions import Limits
from tenuto.service.decisions import Quota
from tenuto.service.names import is_service
from tenuto.service.node.node import NodePlan
from tenuto.service.node.sandbox import choose
from tenuto.service.node.work import Terms, passed_on
from tenuto.service.parts import Offered
from tenuto.service.serving import Address
from tenuto.settings import Settings, Url
from tenuto.settings.service import OfferedSettings, ServiceSettings
from tenuto.workspace.markers import Durability

EMBEDDED = "local"
EXAMPLE = "example"


def database_of(settings: ServiceSettings) -> str:
    """The database of a server, with its password."""
    return settings.database.reveal() if isinstance(settings.database, Url) else str(settings.database)


def offered(settings: Settings, names: tuple[str, ...], *, with_node: bool) -> dict[str, Offered]:
    """The services of a server: those of the settings and those named, or one example."""
    declared: dict[str, OfferedSettings] = dict(settings.services)
    for name in names:
        declared.setdefault(name, OfferedSettings())
    if not declared and with_node:
        declared[EXAMPLE] = OfferedSettings()
    if not declared:
        raise InvalidSetting(
            'no service is configured: write [services.NAME] nodes = ["http://..."] into tenuto.toml, or '
            "try `tenuto serve --with-node`"
        )
    found: dict[str, Offered] = {}
    embedded = settings.node.name or EMBEDDED
    for name, service in declared.items():
        if not is_service(name):
            raise InvalidSetting(f"{name!r} cannot name a service: letters, digits, _ . and - only")
        if not service.nodes and not with_node:
            raise InvalidSetting(
                f"service {name} has no nodes: name some under [services.{name}], or give --with-node"
            )
        nodes = tuple(str(node) for node in service.nodes) or (embedded,)
        found[name] = Offered(name, Quota(service.runs_per_user, service.max_runs), nodes)
    return found


def terms(settings: Settings) -> dict[str, Terms]:
    """What the payloads of each service may have on a node; `""` for those that are not named."""
    return {"": _terms(settings, OfferedSettings())} | {
        name: _terms(settings, service) for name, service in settings.services.items()
    }


def _terms(settings: Settings, service: OfferedSettings) -> Terms:
    limits = Limits(service.walltime_s, service.memory_bytes, settings.log_bytes, settings.grace_s)
    return Terms(
        limits,
        Durability(settings.durability),
        settings.node.processes,
        service.work_bytes,
        service.network,
        tuple(str(path) for path in service.paths),
    )


def node_plan(
    settings: Settings, variables: Mapping[str, str], *, under: Path | None, is_exposed: bool
) -> NodePlan:
    """How a node is to be; ``under``: the data of the server that it is embedded in."""
    node = settings.node
    if under is None:
        data = node.data or Path("node")
        name = node.name or _host_name()
    else:
        data, name = under / "node", node.name or EMBEDDED
    data = Path(data).absolute()
    data.mkdir(parents=True, exist_ok=True)
    return NodePlan(
        name,
        data,
        (node.database if under is None else None) or data / "node.sqlite",
        node.slots,
        settings.launcher,
        choose(node.sandbox, str(data), must=is_exposed),
        terms(settings),
        passed_on(variables, node.pass_environment),
        node.max_age_s,
    )


def _host_name() -> str:
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in socket.gethostname())
    return name or EMBEDDED


def server_address(settings: ServiceSettings, tls: tuple[Path | None, Path | None]) -> Address:
    """Where a server listens."""
    return Address(
        settings.host, settings.port, settings.header_s, settings.write_s, settings.connections, *tls
    )


def refuse_strangers(address: Address, auth: str, *, is_insecure: bool) -> None:
    """Refuses to let everybody on the network run programs here."""
    if auth == "none" and not address.is_loopback and not is_insecure:
        raise UnsafeService(
            f"everybody who can reach {address.host} could run programs here: give --auth tokens (and make "
            "some with `tenuto token create`), or allow it with --insecure"
        )
