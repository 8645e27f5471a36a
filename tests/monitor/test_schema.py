"""Line 26: whatever is asked, the server has an answer of its own; FastAPI's 422 never shows."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from .conftest import Served

NOT_ASKED = ("/api/events", "/api/logout")
"""A stream never ends, and a logout ends all."""


@pytest.mark.slow
@pytest.mark.watchdog(600)
def test_line_26_no_request_is_answered_by_a_failure(served: Served) -> None:
    client = served.client()
    schema = schemathesis.openapi.from_dict(client.get("/api/openapi.json").json)
    asked = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path in NOT_ASKED:
            continue

        @settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
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
    assert asked > 100
