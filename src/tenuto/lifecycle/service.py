"""The two vocabularies of the job service: what a service job does, and what its payload does on a node.
Holds no row and no clock: a move is checked here, and made by a compare-and-set elsewhere.
"""

from collections.abc import Mapping
from enum import Enum, unique
from types import MappingProxyType


@unique
class ServiceState(Enum):
    """What a service job is doing. Users see the values, and rows hold them."""

    QUEUED = "Queued"
    PROCESSING = "Processing"
    SUBMITTED = "Submitted"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    COMPLETED = "Completed"
    FAILED = "Failed"
    INVALID = "Invalid"
    KILLED = "Killed"
    CLEANED = "Cleaned"

    @property
    def meaning(self) -> str:
        return _SERVICE_MEANINGS[self]

    @property
    def is_active(self) -> bool:
        """True while the job counts for the quotas: a node has it, or may have it."""
        return self in ACTIVE

    @property
    def is_final(self) -> bool:
        """True once the job has ended; the cleaner alone moves it on."""
        return self in ENDED or self is ServiceState.CLEANED


_SERVICE_MEANINGS: Mapping[ServiceState, str] = {
    ServiceState.QUEUED: "uploaded; waits for a free place in its quotas",
    ServiceState.PROCESSING: "claimed by a server, which sends it to a node",
    ServiceState.SUBMITTED: "a node has it; its program has not begun",
    ServiceState.RUNNING: "its program runs",
    ServiceState.UNKNOWN: "its node cannot be asked; asked again until it answers",
    ServiceState.COMPLETED: "its program ended with exit code 0; the result is here",
    ServiceState.FAILED: "it ended badly, or no node took it; the message says why",
    ServiceState.INVALID: "its node refused it",
    ServiceState.KILLED: "a person ended it",
    ServiceState.CLEANED: "it ended, and its files were removed after their time",
}

ACTIVE = frozenset(
    {ServiceState.PROCESSING, ServiceState.SUBMITTED, ServiceState.RUNNING, ServiceState.UNKNOWN}
)
"""The states that count for the quotas."""

ENDED = frozenset({ServiceState.COMPLETED, ServiceState.FAILED, ServiceState.INVALID, ServiceState.KILLED})
"""The final states whose files are still here."""


@unique
class PayloadState(Enum):
    """What a payload is doing on its node. Servers see the values, and rows hold them."""

    PREPARED = "Prepared"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    INVALID = "Invalid"
    KILLED = "Killed"
    CLEANED = "Cleaned"

    @property
    def meaning(self) -> str:
        return _PAYLOAD_MEANINGS[self]

    @property
    def is_final(self) -> bool:
        """True once the payload has ended."""
        return self not in (PayloadState.PREPARED, PayloadState.RUNNING)


_PAYLOAD_MEANINGS: Mapping[PayloadState, str] = {
    PayloadState.PREPARED: "its files are here; waits for a slot of the node",
    PayloadState.RUNNING: "its program runs, or its result is being packed",
    PayloadState.COMPLETED: "its program ended with exit code 0; the result is packed",
    PayloadState.FAILED: "it ended badly; the message says why, and its files are packed",
    PayloadState.INVALID: "the node cannot run it",
    PayloadState.KILLED: "it was ended on request",
    PayloadState.CLEANED: "its files were removed after their time",
}


def _service_table() -> Mapping[ServiceState, Mapping[ServiceState, str]]:
    S = ServiceState
    told: dict[ServiceState, str] = {
        S.RUNNING: "its program began",
        S.COMPLETED: "result retrieved",
        S.FAILED: "ended badly, or the node lost it",
        S.INVALID: "its node refused it",
        S.KILLED: "terminated",
        S.UNKNOWN: "the node cannot be asked",
    }
    cleaned = {S.CLEANED: "older than max_age_s"}
    rows: dict[ServiceState, dict[ServiceState, str]] = {
        S.QUEUED: {S.PROCESSING: "claimed", S.KILLED: "terminated"},
        S.PROCESSING: {
            S.SUBMITTED: "the node has it",
            S.QUEUED: "the node certainly has not got it",
            S.UNKNOWN: "the node did not answer",
            S.INVALID: "its node refused it",
            S.FAILED: "no node took it within send_for_s",
            S.KILLED: "terminated",
        },
        S.SUBMITTED: told,
        S.RUNNING: {state: why for state, why in told.items() if state is not S.RUNNING},
        S.UNKNOWN: {
            S.SUBMITTED: "the node answers again",
            S.RUNNING: "the node answers again",
            S.COMPLETED: "result retrieved",
            S.FAILED: "ended badly, lost, or silent for retrieve_for_s",
            S.INVALID: "its node refused it",
            S.KILLED: "terminated",
        },
        S.COMPLETED: cleaned,
        S.FAILED: cleaned,
        S.INVALID: cleaned,
        S.KILLED: cleaned,
        S.CLEANED: {},
    }
    return MappingProxyType({state: MappingProxyType(row) for state, row in rows.items()})


def _payload_table() -> Mapping[PayloadState, Mapping[PayloadState, str]]:
    P = PayloadState
    cleaned = {P.CLEANED: "older than max_age_s"}
    rows: dict[PayloadState, dict[PayloadState, str]] = {
        P.PREPARED: {
            P.RUNNING: "its runner is alive, or has been",
            P.KILLED: "ended on request before it began",
            P.FAILED: "it could not be started",
            P.INVALID: "the node cannot run it",
        },
        P.RUNNING: {P.COMPLETED: "exit code 0", P.FAILED: "ended badly", P.KILLED: "ended on request"},
        P.COMPLETED: cleaned,
        P.FAILED: cleaned,
        P.INVALID: cleaned,
        P.KILLED: cleaned,
        P.CLEANED: {},
    }
    return MappingProxyType({state: MappingProxyType(row) for state, row in rows.items()})


SERVICE_TRANSITIONS: Mapping[ServiceState, Mapping[ServiceState, str]] = _service_table()
"""state -> {legal next state: what brings it about}, of a service job."""

PAYLOAD_TRANSITIONS: Mapping[PayloadState, Mapping[PayloadState, str]] = _payload_table()
"""state -> {legal next state: what brings it about}, of a payload."""
