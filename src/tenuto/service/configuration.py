"""From settings to servers and nodes: the services, on which nodes, in which sandbox.
Refuses what would be unsafe, before anything listens.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tenuto.clock import Randomness
from tenuto.database import SQLITE, database_url, refuse_unusable
from tenuto.errors import InvalidSetting, TenutoError, UnsafeService
from tenuto.launchers.confinement import (
    Private,
    Sandbox,
    SandboxMode,
    choose,
    gpu_devices,
    may_change_uid,
    missing_program,
    passed_on,
    refuse_exposed,
)
from tenuto.launchers.devices import visible_devices
from tenuto.launchers.instructions import Limits
from tenuto.launchers.selection import is_local, node_launcher
from tenuto.service.context import Offered
from tenuto.service.data_paths import DataPaths, private
from tenuto.service.decisions import Quota
from tenuto.service.http_node import HttpNode, NodeAddress
from tenuto.service.http_server import ListenAddress
from tenuto.service.names import LONGEST_PATH, Input, input_of, is_service
from tenuto.service.node.node import GpuPlan, NodePlan, make_directory
from tenuto.service.node.work import Terms, encoded_command
from tenuto.service.nodes import Node
from tenuto.service.tables import NODE_MIGRATIONS
from tenuto.service.uploads import LONGEST_FIELD, UploadLimits
from tenuto.settings import Settings, Url
from tenuto.settings.service import NodeSettings, OfferedSettings, ServiceSettings
from tenuto.settings.tree import ValueSource
from tenuto.web import host_of, is_loopback
from tenuto.workspace.markers import Durability

EMBEDDED = "local"
EXAMPLE = "example"
NODE_DATABASE = "node.sqlite"
NODE_SECRET = "node.token"
LONGEST_HEAD = LONGEST_PATH + 512
"""Bytes around a file on its way to a node."""


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
        quota = Quota(service.runs_per_user, service.max_runs)
        found[name] = Offered(name, quota, nodes, service, _inputs(name, service))
    return found


def _inputs(name: str, service: OfferedSettings) -> tuple[Input, ...]:
    """The files that uploads for a command have; refuses settings that no upload could satisfy."""
    if service.inputs and not service.command:
        raise InvalidSetting(
            f"services.{name}.inputs: only a service with a command asks for files; without one, uploads "
            "have a run.sh and any others"
        )
    if len(encoded_command(service.command)) > LONGEST_FIELD:
        raise InvalidSetting(f"services.{name}.command: it is longer than {LONGEST_FIELD} bytes")
    found: dict[str, Input] = {}
    for text in service.inputs:
        try:
            one = input_of(text)
        except ValueError as error:
            raise InvalidSetting(f"services.{name}.inputs: {text!r} can name no file: {error}") from None
        if one.pattern in found:
            raise InvalidSetting(f"services.{name}.inputs: {one.pattern!r} is there twice")
        found[one.pattern] = one
    return tuple(found.values())


def terms(settings: Settings) -> dict[str, Terms]:
    """What the payloads of each service may have on a node; `""` for the others."""
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
        service.cpus,
        service.gpus,
        settings.service.max_result_bytes if service.max_result_bytes is None else service.max_result_bytes,
    )


def _refuse_terms(
    settings: Settings, service: str, found: Sandbox, devices: int | None, path: str | None
) -> None:
    """Refuses what the payloads of a service could never have on this node.

    ``devices``: its GPUs that can be told apart, None of a cluster; ``path``: where programs are looked for.
    """
    offered = settings.services[service]
    if offered.cpus > settings.node.slots and is_local(settings.launcher):
        raise InvalidSetting(
            f"services.{service}.cpus = {offered.cpus}, and this node has {settings.node.slots} slots"
        )
    if devices is not None and offered.gpus > devices and (devices or not gpu_devices()):
        raise InvalidSetting(f"services.{service}.gpus = {offered.gpus}, and this node has {devices}")
    if offered.command and (problem := missing_program(found, offered.command[0], offered.paths, path)):
        raise InvalidSetting(f"services.{service}.command: {problem}")


def node_plan(
    settings: Settings,
    variables: Mapping[str, str],
    *,
    under: Path | None,
    is_exposed: bool,
    tls: tuple[Path | None, Path | None] = (None, None),
    is_insecure: bool = False,
) -> NodePlan:
    """How a node is to be; ``under``: the data of the server that it is embedded in.

    Its directory is made, unless its database cannot be used or payloads would see files of others.
    ``tls``: certificate and key of this process. ``is_insecure``: it is to serve without its secret.
    """
    node = settings.node
    if under is None:
        data = node.data or Path("node")
        name = node.name or _host_name()
    else:
        data, name = under / "node", node.name or EMBEDDED
    data = Path(data).absolute()
    database = (node.database if under is None else None) or data / NODE_DATABASE
    refuse_unusable(database, NODE_MIGRATIONS)
    hidden = _private(settings, (data, database), is_server=under is not None, tls=tls)
    own = [
        service
        for service, offered in settings.services.items()
        if under is None or not offered.nodes or name in offered.nodes
    ]
    paths = {f"services.{one}.paths": tuple(map(str, settings.services[one].paths)) for one in own}
    refuse_exposed(node.sandbox, hidden, paths)
    is_apart = not is_local(settings.launcher)
    devices = visible_devices() if not is_apart and any(settings.services[one].gpus for one in own) else {}
    environment = passed_on(variables, node.pass_environment)
    directories = [data.parent, data] if under is not None else [data]
    new = [directory for directory in directories if not directory.exists()]
    for directory in directories:
        make_directory(directory, is_passed=may_change_uid(node.sandbox))
    try:
        sandbox = choose(node.sandbox, str(data), must=is_exposed, private=hidden, paths=paths)
        for service in own:
            found = None if is_apart else len(devices)
            _refuse_terms(settings, service, sandbox, found, environment.get("PATH"))
        if is_insecure:
            _refuse_open_node(settings, sandbox, data)
    except TenutoError:
        for directory in reversed(new):
            with suppress(OSError):  # it holds something by now
                directory.rmdir()
        raise
    return NodePlan(
        name,
        data,
        database,
        None if is_apart and settings.origin("node.slots").source is ValueSource.DEFAULT else node.slots,
        partial(node_launcher, settings, node.slots),
        sandbox,
        terms(settings),
        environment,
        node.max_age_s,
        min_free_bytes=settings.service.min_free_bytes,
        gpus=GpuPlan(devices, str(settings.tokens_path)) if devices else None,
    )


def _private(
    settings: Settings,
    node: tuple[Path, Path],
    *,
    is_server: bool,
    tls: tuple[Path | None, Path | None],
) -> Private:
    """What no payload may see: of the node, and of the server in its process or in its settings."""
    data, database = node
    files = [*settings.files, settings.node.token_file or data / NODE_SECRET, *tls]
    files.append(settings.service.callback_secret_file)
    files += [remote.token_file for remote in settings.nodes.values()]
    files.append(settings.client.token_file)
    databases = [str(database.absolute())]
    url = database_url(database_of(settings.service))
    if url.database and url.drivername == SQLITE and (is_server or os.path.exists(url.database)):
        databases.append(os.path.abspath(url.database))
    directories = [str(data)]
    if is_server or os.path.isdir(DataPaths(str(settings.service.data)).jobs):
        directories.append(os.path.abspath(settings.service.data))
    return Private(
        tuple(directories),
        tuple(os.path.abspath(path) for path in files if path is not None),
        tuple(databases),
    ).everywhere()


def _host_name() -> str:
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in socket.gethostname())
    return name or EMBEDDED


def address_of(
    section: ServiceSettings | NodeSettings, service: ServiceSettings, tls: tuple[Path | None, Path | None]
) -> ListenAddress:
    """Where a server or node listens; the limits of connections are the server's.

    Refuses `service.hosts` that no request could ever name.
    """
    for host in service.hosts:
        if host_of(host) is None and host_of(f"[{host}]") is None:
            raise InvalidSetting(
                f"service.hosts: {host!r} is no host: give names and addresses, without a scheme or path"
            )
    return ListenAddress(section.host, section.port, service.connections, *tls)


def node_limits(settings: Settings) -> UploadLimits:
    """What a server may send to a node: an upload of the largest size, with the words around each file."""
    service = settings.service
    parts = service.max_parts + 3
    most = service.max_upload_bytes + parts * LONGEST_HEAD
    return UploadLimits(most, parts, service.min_free_bytes)


def node_secret(node: NodeSettings, data: Path, randomness: Randomness) -> str:
    """The secret that servers must give to a node: read from its file, which is made at the first start."""
    return made_secret(node.token_file or data / NODE_SECRET, "tnn_", randomness)


def made_secret(path: Path, prefix: str, randomness: Randomness) -> str:
    """The secret in a file, which is made if it is not there."""
    part = Path(f"{path}.{randomness.nonce()}")
    try:
        if not path.exists():
            with open(part, "x", encoding="ascii", opener=private) as file:
                file.write(f"{prefix}{randomness.nonce()}{randomness.nonce()}\n")
            with suppress(FileExistsError):  # whole, or not at all; another process may have been faster
                os.link(part, path)
    except OSError as error:
        raise InvalidSetting(f"the secret cannot be kept: {path}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return secret_in(path)


def secret_in(path: Path) -> str:
    """The secret in a file; `InvalidSetting` if there is none."""
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidSetting(f"the secret cannot be read: {path}: {why}") from None
    if not secret or not (secret.isascii() and secret.isprintable()):
        raise InvalidSetting(f"{path} holds no secret of one line: delete it, and another one is made")
    return secret


def _refuse_open_node(settings: Settings, sandbox: Sandbox, data: Path) -> None:
    """Refuses to serve without the secret where payloads could ask the node themselves."""
    reached = [f"services.{name}.network = true" for name, one in settings.services.items() if one.network]
    if sandbox.mode is SandboxMode.UID:
        reached.append("sandbox uid")
    if reached:
        raise UnsafeService(
            f"payloads could ask this node for the files of others ({', '.join(reached)}): leave out "
            f"--insecure, and let its servers give the secret in {data / NODE_SECRET}"
        )


def remote_nodes(
    settings: Settings, services: Mapping[str, Offered], embedded: str | None
) -> dict[str, Node]:
    """The nodes that services name, besides the embedded one: by URL, or by a name under [nodes].

    The secret of one on this machine is read where `tenuto node` with these settings keeps it, if no file
    is named. Also those under [nodes] that no service names any more: they get no job, and are asked for the
    results of those that they have.
    """
    found: dict[str, Node] = {}
    poll_s = settings.service.poll_s
    beside = settings.node.token_file or (settings.node.data or Path("node")).absolute() / NODE_SECRET
    named = {name: service.name for service in services.values() for name in service.nodes}
    for name in {**named, **settings.nodes}:
        if name == embedded:
            continue
        declared = settings.nodes.get(name)
        if declared is None and "://" not in name:
            raise InvalidSetting(f"service {named[name]} names node {name}, and there is no [nodes.{name}]")
        url = name if declared is None else declared.url.reveal()
        file = None if declared is None else declared.token_file
        if file is None and is_loopback(urlsplit(url).hostname or ""):
            file = beside
        elif file is not None and name in named:
            secret_in(file)
        found[name] = HttpNode(name, NodeAddress(url, secret_file=file, poll_s=poll_s))
    return found


def refuse_strangers(address: ListenAddress, auth: str, *, is_insecure: bool) -> None:
    """Refuses to let every client on the network run programs here."""
    if auth == "none" and not address.is_loopback and not is_insecure:
        raise UnsafeService(
            f"everybody who can reach {address.host} could run programs here: give --auth tokens (and make "
            "some with `tenuto token create`), or allow it with --insecure"
        )
