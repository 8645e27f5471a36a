"""The settings of searches, and of the database and the queue that they may share with other machines.
Declares them only; `load_settings` reads them, the search uses them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.settings.declaration import DATABASE_URL, SECONDS, TEXT, integer, optional, setting, url
from tenuto.settings.urls import Url

SEARCH_FILE = "search.db"
"""The database of searches in a workspace, unless the settings name another."""
SEARCH_SECTIONS = ("search", "database", "queue")
"""The sections whose foreign variables a search reads: ``load_settings(..., foreign=SEARCH_SECTIONS)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """Searches: how many candidates are in flight, and how the work is shared out."""

    max_unfinished_jobs: int | None = setting(
        optional(integer(1)),
        None,
        "Candidates in flight at once.",
        default_text="twice the slots",
        foreign="SCHEDULER_MAX_UNFINISHED_JOBS",
    )
    max_total_jobs: int | None = setting(
        optional(integer(0)), None, "Candidates in all.", foreign="SCHEDULER_MAX_TOTAL_JOBS"
    )
    schedule_batch_size: int | None = setting(
        optional(integer(1)),
        None,
        "Candidates proposed in one step.",
        default_text="all that fit",
        foreign="SCHEDULER_SCHEDULE_BATCH_SIZE",
    )
    agent_slots: int = setting(
        integer(1), 4, "Agents that change programs at once, beside the slots that evaluate."
    )
    dispatch_batch_size: int = setting(
        integer(1), 64, "Candidates handed out in one step.", foreign="SCHEDULER_DISPATCH_BATCH_SIZE"
    )
    poll_interval_s: float = setting(
        SECONDS,
        1.0,
        "How often the scheduler looks for what no event announced.",
        foreign="SCHEDULER_POLL_INTERVAL_SECONDS",
    )
    worker_poll_s: float = setting(
        SECONDS, 2.0, "How often a worker looks for candidates that no message announced."
    )
    lease_s: float = setting(
        SECONDS, 45.0, "Time after which the candidates of a silent worker are given to others."
    )
    max_attempts: int = setting(integer(1), 3, "Tries at a candidate whose worker is lost.")
    walltime_s: float | None = setting(
        optional(SECONDS),
        None,
        "Time after which a candidate is stopped.",
        foreign="TASKS_WORKER_TIME_LIMIT_SECONDS",
    )
    default_priority: int = setting(
        integer(),
        0,
        "Priority of candidates; the highest is started first.",
        foreign="MAPELITES_SAMPLER_DEFAULT_PRIORITY",
    )
    seed_population: int = setting(
        integer(1),
        16,
        "Candidates drawn at random before the archive is used.",
        foreign="MAPELITES_SEED_POPULATION_SIZE",
    )
    inspirations: int = setting(
        integer(0),
        3,
        "Elites shown to a proposal besides its parent.",
        foreign="MAPELITES_SAMPLER_INSPIRATION_COUNT",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    """The database of searches."""

    url: Url | None = setting(
        optional(DATABASE_URL),
        None,
        "The database of searches.",
        default_text=f"`{SEARCH_FILE}` in the workspace",
        foreign="DATABASE_URL",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The broker that wakes workers; without one they look."""

    url: Url | None = setting(
        optional(url("redis", "rediss", "unix", "amqp", "amqps")),
        None,
        "The broker: Redis or RabbitMQ.",
        foreign="TASKS_REDIS_URL",
    )
    namespace: str = setting(TEXT, "tenuto", "What the names of its queues begin with.")
