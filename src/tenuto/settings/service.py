"""The settings of the job service: the server, the services that it offers, its nodes.
Declares them only; `load_settings` reads them, the service uses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tenuto.settings.declaration import (
    BYTES,
    DATABASE,
    FLAG,
    NODE_URL,
    NODES,
    NUMBER,
    PATH,
    PATHS,
    SECONDS,
    TEXT,
    TEXTS,
    VARIABLES,
    WAIT,
    WORDS,
    choice,
    cores,
    found_setting,
    integer,
    optional,
    required_setting,
    setting,
)
from tenuto.settings.urls import Url

SERVER_SECTIONS = ("service", "services")
"""Sections whose foreign variables `tenuto serve` reads: ``load_settings(..., foreign=SERVER_SECTIONS)``."""
NODE_SECTIONS = ("node",)
"""Sections whose foreign variables `tenuto node` reads."""

PORT = integer(0, 65535)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The server: `tenuto serve`."""

    host: str = setting(TEXT, "127.0.0.1", "The address that the server listens on.")
    port: int = setting(PORT, 5000, "The port of the server; 0 takes a free one.", foreign="PORT")
    data: Path = setting(PATH, Path("data"), "The directory of uploads and results.", foreign="DATA_PATH")
    database: Path | Url = setting(
        DATABASE,
        Path("db.sqlite"),
        "The database of requests: a file of SQLite, or PostgreSQL.",
        foreign="DB_PATH",
    )
    auth: str = setting(
        choice("none", "tokens"),
        "none",
        '"tokens": every request names its user by a token; see `tenuto token`.',
    )
    compat: str = setting(
        choice("hybrid", "v1", "v2"), "hybrid", "Which generation of scripts the codes of answers are for."
    )
    max_age_s: float = setting(
        SECONDS, 172800.0, "Age at which the files of an ended job are deleted.", foreign="MAX_AGE"
    )
    forget_after_s: float = setting(SECONDS, 7776000.0, "Age at which an ended job is forgotten altogether.")
    max_upload_bytes: int = setting(BYTES, 4 << 30, "Size of the largest upload.")
    max_parts: int = setting(integer(1), 1000, "Files and fields that one upload may have.")
    max_result_bytes: int = setting(
        BYTES,
        16 << 30,
        "Size that the files of a result may have together, as they claim it, holes included.",
    )
    min_free_bytes: int = setting(
        BYTES,
        256 << 20,
        "Disk that uploads and payloads leave free; with less they are refused, with half of it a node stops "
        "the payload with the largest directory.",
    )
    hosts: tuple[str, ...] = setting(
        TEXTS, (), "Names that requests may call the server by, besides its address."
    )
    prefix: str | None = setting(
        optional(TEXT), None, "The path below which a proxy shows the server, such as `/tenuto`."
    )
    trusted_proxies: tuple[str, ...] = setting(
        TEXTS,
        (),
        "Addresses or networks of proxies whose `X-Forwarded-For`, `-Proto` and `-Host` count.",
    )
    queued_per_user: int = setting(
        integer(1), 1000, "Jobs of one user that may wait in the queue; further uploads are refused."
    )
    stored_bytes_per_user: int | None = setting(
        optional(BYTES), None, "Size of a user's uploads and results together; further uploads are refused."
    )
    connections_per_user: int = setting(
        integer(1), 100, "Requests of one user at once, with tokens; those that wait or stream count."
    )
    callback_hosts: tuple[str, ...] = setting(
        TEXTS,
        (),
        "Hosts that may be told of the end of a job: names, `*.example.org`, `*`, addresses, networks.",
    )
    callback_secret_file: Path | None = setting(
        optional(PATH),
        None,
        "The file with the secret that callbacks are signed with.",
        default_text="the SHA-256 of the token in hex; without tokens `callback.secret` in its data",
    )
    rate_per_s: float = setting(NUMBER, 50.0, "Requests per second of one user, with tokens.")
    burst: int = setting(integer(1), 200, "Requests that a user who was quiet may send at once.")
    connections: int = setting(
        integer(1), 4000, "Connections at once; the soft limit of open files is raised to it at start."
    )
    send_for_s: float = setting(
        WAIT,
        60.0,
        "How long a job is offered to nodes that do not take it; 0: it fails at the first refusal.",
    )
    retrieve_for_s: float = setting(
        WAIT, 3600.0, "How long a node that cannot be reached is asked for a result."
    )
    terminate_wait_s: float = setting(WAIT, 5.0, "How long a request to stop a job waits for its end.")
    poll_s: float = setting(SECONDS, 0.5, "How often a stage looks for work that no event announced.")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedSettings:
    """A service that the server offers, by its name."""

    nodes: tuple[Url | str, ...] = setting(
        NODES,
        (),
        "Where its jobs run: base URLs, or names under `nodes`; none: the embedded node.",
        foreign="SERVICE_<NAME>_UPLOAD_URL",
    )
    runs_per_user: int = setting(
        integer(1), 5, "Jobs of one user that run at once.", foreign="SERVICE_<NAME>_RUNS_PER_USER"
    )
    max_runs: int = setting(
        integer(1), 10, "Jobs of all users that run at once.", foreign="SERVICE_<NAME>_MAX_RUNS"
    )
    walltime_s: float | None = setting(optional(SECONDS), 86400.0, "Time after which a job is stopped.")
    memory_bytes: int | None = setting(optional(BYTES), None, "Memory that a job may use.")
    work_bytes: int | None = setting(
        optional(BYTES), 20 << 30, "Size that a job's directory may have, looked at every two seconds."
    )
    max_result_bytes: int | None = setting(
        optional(BYTES),
        None,
        "Size that the files of a result may have together.",
        default_text="`service.max_result_bytes`",
    )
    description: str | None = setting(optional(TEXT), None, "What it does, in a sentence for its users.")
    command: tuple[str, ...] = setting(
        WORDS, (), "The program that its jobs run; none: the `run.sh` of each upload."
    )
    inputs: tuple[str, ...] = setting(
        TEXTS,
        (),
        "Files that uploads for the command must have: names or patterns, with `?` at the end optional.",
    )
    max_input_bytes: int | None = setting(
        optional(BYTES), None, "Size that the files of one upload may have together."
    )
    cpus: int = setting(integer(1), 1, "Slots of its node that a job takes.")
    gpus: int = setting(integer(0), 0, "GPUs that a job has to itself, passed into the sandbox.")
    network: bool = setting(FLAG, False, "Whether its jobs may use the network.")
    paths: tuple[Path, ...] = setting(
        PATHS, (), "Places that its jobs may read, besides those of the system."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteNodeSettings:
    """A node that the services name."""

    url: Url = required_setting(NODE_URL, "The base URL of the node.")
    token_file: Path | None = setting(optional(PATH), None, "The file that holds the node's secret.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The server that `tenuto submit`, `fetch`, `follow` and `cancel` ask."""

    url: Url | None = setting(optional(NODE_URL), None, "The URL of the server.")
    token_file: Path | None = setting(optional(PATH), None, "The file that holds the user's token.")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The node: `tenuto node`, or the node embedded in a server."""

    name: str | None = setting(
        optional(TEXT), None, "The node's name.", default_text="the host's name; `local` when embedded"
    )
    host: str = setting(TEXT, "127.0.0.1", "The address that the node listens on.")
    port: int = setting(PORT, 9000, "The port of the node; 0 takes a free one.", foreign="PORT")
    data: Path | None = setting(
        optional(PATH),
        None,
        "The directory of payloads, a workspace.",
        default_text="`node`; embedded, `node` in the server's data",
        foreign="DATA_PATH",
    )
    database: Path | None = setting(
        optional(PATH),
        None,
        "The node's own file of SQLite.",
        default_text="`node.sqlite` in its data",
        foreign="DB_PATH",
    )
    slots: int = found_setting(integer(1), cores, "the cores", "Payloads that run at once.")
    sandbox: str = setting(
        choice("auto", "bwrap", "uid", "none"), "auto", "How payloads are kept apart from this machine."
    )
    token_file: Path | None = setting(
        optional(PATH),
        None,
        "The file that holds the secret a server must give.",
        default_text="`node.token` in its data",
    )
    max_age_s: float = setting(
        SECONDS, 172800.0, "Age at which an ended payload is deleted.", foreign="MAX_AGE"
    )
    processes: int = setting(integer(1), 512, "Processes that a payload may have.")
    pass_environment: tuple[str, ...] = setting(
        VARIABLES, ("PATH", "LANG", "LC_*", "TZ"), "Variables of the node that payloads see."
    )
