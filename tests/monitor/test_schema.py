"""Line 26: whatever is asked, the server has an answer of its own; FastAPI's 422 never shows."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from .conftest import Client, Served

WHOLE = os.environ.get("HYPOTHESIS_PROFILE") == "prove"
REQUESTS, EACH = (2_000, 100) if WHOLE else (120, 12)
"""`make prove` asks all of them, `make test` some."""
NOT_ASKED = ("/api/events", "/api/logout")
"""A stream never ends, and a logout ends all."""


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.watchdog(1_800 if WHOLE else 600)
def test_line_26_no_request_is_answered_by_a_failure(served: Served) -> None:
    import schemathesis  # takes seconds, and each worker collects this file

    client = served.client()
    schema = schemathesis.openapi.from_dict(client.get("/api/openapi.json").json)
    found = [one.ok() for one in schema.get_all_operations()]
    operations = [operation for operation in found if operation.path not in NOT_ASKED]
    asked = 0
    while asked < REQUESTS:
        before = asked
        for operation in list(operations):
            count = ask_all(served, client, operation)
            asked += count
            if count == 1:  # a question without parameters is asked once
                operations.remove(operation)
        assert asked > before


def ask_all(served: Served, client: Client, operation: Any) -> int:
    """Ask one question in many ways; gives back how many."""
    asked = 0

    @settings(max_examples=EACH, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        nonlocal asked
        asked += 1
        response = case.call(base_url=f"http://127.0.0.1:{served.port}", headers=client.headers)
        assert response.status_code < 500, response.text
        assert response.status_code != 422
        if response.status_code >= 400:
            assert {"error", "message"} <= response.json().keys()

    ask()
    return asked
