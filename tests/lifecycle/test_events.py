"""Events: frozen values with a tolerant wire format."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import MalformedEvent
from tenuto.lifecycle import events
from tenuto.lifecycle.events import (
    EVENT_TYPES,
    CarbonMetricsData,
    CarbonMetricsEvent,
    Event,
    JobExplainedEvent,
    JobProgressEvent,
    JobStateChangedEvent,
    JobSubmittedEvent,
    ProcessStartedEvent,
    ProcessStateEvent,
    RunCompletedEvent,
    ServiceAddedEvent,
    ServiceStateChangedEvent,
    UnknownEvent,
    from_record,
    to_record,
)
from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode

NOW = datetime(2030, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)
JOB = {"timestamp": NOW, "job_id": "ab12", "task_id": "train"}
OWNER = "experiments/sweep/20300101_123000"
RUN = {"timestamp": NOW, "owner": OWNER}

EXAMPLES: list[Event] = [
    JobSubmittedEvent(
        **JOB,
        owner=OWNER,
        tags={"lr": "0.1"},
        depends_on=("cd34",),
        transient=TransientMode.REMOVE,
    ),
    JobStateChangedEvent(
        **JOB,
        owner=OWNER,
        state=JobState.ERROR,
        attempt=2,
        reason=JobFailureStatus.TIMEOUT,
        message="héé",
        submittime=NOW,
        endtime=NOW,
        exit_code=-1,
    ),
    JobExplainedEvent(**JOB, owner=OWNER, state=JobState.WAITING, message="waits for token gpu"),
    JobProgressEvent(**JOB, attempt=1, progress=0.25, desc="epoch 3"),
    RunCompletedEvent(**RUN, failed=True, failed_jobs=3),
    ServiceAddedEvent(**RUN, service_id="tensorboard", state="running"),
    ServiceStateChangedEvent(**RUN, service_id="tensorboard", state="stopped"),
    CarbonMetricsEvent(
        **JOB, attempt=1, metrics=CarbonMetricsData(co2_kg=0.1, energy_kwh=2, duration_s=3.5, region="FR")
    ),
    ProcessStartedEvent(**JOB, attempt=1, launcher="spawn", host="h", pid=12),
    ProcessStateEvent(**JOB, attempt=1, state="ended", signal=9),
]


def test_every_event_of_the_seed_exists_and_has_an_example() -> None:
    names = (
        "JobSubmittedEvent JobStateChangedEvent JobProgressEvent RunCompletedEvent ServiceAddedEvent "
        "ServiceStateChangedEvent CarbonMetricsEvent ProcessStartedEvent ProcessStateEvent"
    ).split()
    assert {*names, "JobExplainedEvent"} == set(EVENT_TYPES) == {type(event).__name__ for event in EXAMPLES}


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_survives_the_wire(event: Event) -> None:
    assert from_record(json.loads(json.dumps(to_record(event)))) == event


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_cannot_change(event: Event) -> None:
    with pytest.raises(AttributeError):
        event.timestamp = NOW  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del event.timestamp
    with pytest.raises(AttributeError):
        event.anything = 1  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(event)) == copy.deepcopy(event) == event
    assert hash(event) == hash(copy.deepcopy(event))


def test_events_are_made_by_keyword_and_completely() -> None:
    with pytest.raises(TypeError):
        JobProgressEvent(NOW)  # type: ignore[misc]
    with pytest.raises(TypeError, match="progress"):
        JobProgressEvent(**JOB, attempt=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        JobProgressEvent(**JOB, attempt=1, progress=0.5, colour="red")  # type: ignore[call-arg]


def test_only_progress_and_measurements_are_ephemeral() -> None:
    ephemeral = {name for name, kind in EVENT_TYPES.items() if kind.ephemeral}
    assert ephemeral == {"JobProgressEvent", "CarbonMetricsEvent"}


def test_events_differ_by_type_and_by_value() -> None:
    assert EXAMPLES[5] != EXAMPLES[6]
    assert EXAMPLES[0] != "JobSubmittedEvent"
    assert len(set(EXAMPLES)) == len(EXAMPLES)
    assert "state=<JobState.ERROR: 6>" in repr(EXAMPLES[1])


def test_fields_of_a_newer_version_are_kept() -> None:
    record = {**to_record(EXAMPLES[3]), "mood": {"happy": True}}
    event = from_record(record)
    assert event.unknown == {"mood": {"happy": True}}
    assert to_record(event) == record


def test_fields_of_newer_measurements_are_tolerated() -> None:
    record = to_record(EXAMPLES[7])
    record["metrics"]["water_l"] = 3
    assert from_record(record) == EXAMPLES[7]


def test_an_event_of_a_newer_version_is_passed_on() -> None:
    record = {"type": "JobDreamtEvent", "timestamp": NOW.isoformat(), "of": ["sheep"]}
    event = from_record(record)
    assert event == UnknownEvent(timestamp=NOW, type_name="JobDreamtEvent", unknown={"of": ["sheep"]})
    assert to_record(event) == record


@pytest.mark.parametrize(
    "change",
    [
        {"type": None},
        {"timestamp": None},
        {"timestamp": 3},
        {"timestamp": "2030-01-01T00:00:00"},
        {"timestamp": "noon"},
        {"job_id": 7},
        {"job_id": None},
        {"state": "DREAMING"},
        {"state": []},
        {"attempt": True},
        {"attempt": "1"},
        {"reason": "BAD LUCK"},
        {"exit_code": 1.5},
    ],
    ids=str,
)
def test_a_field_of_the_wrong_type_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(MalformedEvent):
        from_record({**to_record(EXAMPLES[1]), **change})


def test_a_missing_field_is_refused() -> None:
    record = to_record(EXAMPLES[1])
    del record["job_id"]
    with pytest.raises(MalformedEvent, match="job_id"):
        from_record(record)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(EXAMPLES).flatmap(
        lambda event: st.tuples(st.just(event), st.sampled_from(sorted(to_record(event))), json_values)
    )
)
def test_a_hostile_field_gives_an_event_or_a_refusal(case: tuple[Event, str, object]) -> None:
    event, name, value = case
    try:
        found = from_record({**to_record(event), name: value})
    except MalformedEvent:
        return
    assert isinstance(found, Event)


@given(json_values)
def test_any_json_gives_an_event_or_a_refusal(value: object) -> None:
    try:
        found = from_record(value)
    except MalformedEvent:
        return
    assert isinstance(found, Event)


def test_every_field_has_a_codec() -> None:
    for kind in (*EVENT_TYPES.values(), CarbonMetricsData):
        for name, annotation in kind.fields.items():
            if name != "unknown":
                assert events._codec(annotation)
