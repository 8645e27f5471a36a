"""The answers of every route: the monitor's, a server's and a node's, over real HTTP."""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from tests.behaviour.conftest import GOLDEN
from tests.behaviour.normal import Normaliser
from tests.behaviour.places import Monitor, Node, Place, Service
from tests.behaviour.tables import MONITOR, NODE, SERVER, lines
from tests.parts.answers import Answer

METHODS = {"get", "post", "put", "patch", "delete", "head"}
Golden = Callable[[str, Any], tuple[str, str]]


def shown(answer: Answer, normal: Normaliser) -> dict[str, Any]:
    """An answer as a golden file keeps it: status, type, and content by its type."""
    kind = answer.headers.get("content-type", "").partition(";")[0]
    told: dict[str, Any] = {"status": answer.status, "type": kind}
    if not answer.body:
        return told
    if kind == "application/json":
        is_description = isinstance(answer.json, dict) and "openapi" in answer.json
        told["json"] = described(answer.json) if is_description else normal(answer.json)
    elif kind == "application/zip":
        with zipfile.ZipFile(io.BytesIO(answer.body)) as found:
            told["files"] = {name: normal.text(found.read(name).decode()) for name in found.namelist()}
    elif kind == "text/event-stream":
        told["text"] = events(answer.body.decode(), normal)
    elif kind == "text/plain" and b"# HELP" in answer.body:
        told["metrics"] = sorted(set(re.findall(r"^# TYPE (.+)$", answer.body.decode(), re.MULTILINE)))
    elif kind != "text/html":
        told["text"] = normal.text(answer.body.decode())
    return told


def events(text: str, normal: Normaliser) -> list[dict[str, Any]]:
    """The frames of a stream, without the pings between them.

    Nor that a job is Running: one that ends at once may end before its server asks.
    """
    frames = [dict(re.findall(r"^(event|data): (.*)$", frame, re.MULTILINE)) for frame in text.split("\n\n")]
    return [
        {**frame, "data": normal(json.loads(frame["data"]))}
        for frame in frames
        if "data" in frame and not re.search(r'"status": ?"Running"', frame["data"])
    ]


def described(description: dict[str, Any]) -> dict[str, Any]:
    """What a description promises: the parameters and statuses of each route, the fields of each body."""
    return {
        "routes": {
            f"{method.upper()} {path}": {
                "parameters": sorted(one["name"] for one in route.get("parameters", ())),
                "statuses": sorted(route["responses"]),
            }
            for path, methods in description["paths"].items()
            for method, route in methods.items()
        },
        "bodies": {
            name: sorted(schema.get("properties", schema.get("enum", ())))
            for name, schema in description["components"]["schemas"].items()
        },
    }


def routes(description: dict[str, Any]) -> set[str]:
    return {
        f"{method.upper()} {path}" for path, methods in description["paths"].items() for method in methods
    }


def file_name(server: str, route: str) -> str:
    return f"routes/{server}-{re.sub('[^A-Za-z_.]+', '-', route).strip('-')}"


def filled(text: str, monitor: Monitor) -> str:
    """The query or body of a line, with the group and the job of its place: a failed one, or the first."""
    group = monitor.groups()[-1]["group"]
    asked = monitor.ask(
        "GET", f"/api/jobs?group={quote(group)}&filter=state%3Derror%20or%20state%3Ddone"
    ).json
    job = min(asked["jobs"], key=lambda one: (one["state"] != "error", one["key"]))["key"]
    return text.replace("{group}", group).replace("{job}", job)


@pytest.mark.parametrize("route", [route for route, text in MONITOR.items() if text])
def test_the_monitor_answers_as_its_golden_file_says(
    route: str, place: Callable[[str], Place], monitor: Callable[[str], Monitor], golden: Golden
) -> None:
    method, path = route.split()
    asked = {}
    for door, given in lines(MONITOR[route]):
        line, browser = filled(given, monitor(door)), monitor(door)
        body = ast.literal_eval(line) if line.startswith("{") else None
        query = "" if body is not None else quote(line, safe="?&=/:{}-")
        answer = browser.ask(method, path + query, body, until=b"reset" if path == "/api/events" else b"")
        asked[f"{door}: {given}"] = shown(answer, place(door).normal)
    found, kept = golden(file_name("monitor", route), asked)
    assert found == kept


def test_the_stream_tells_of_a_job_as_its_golden_file_says(
    place: Callable[[str], Place], golden: Golden
) -> None:
    asked = place("new search")
    browser = Monitor(asked)
    script = asked.start("sweep.py", "good", "ws")
    try:
        stream = browser.ask("GET", "/api/events", until=b'"jobs":[{').body.decode()
    finally:
        script.communicate()
        browser.close()
    last = events(stream, asked.normal)[-1]
    fields = {
        "event": last["event"],
        "data": sorted(last["data"]),
        "job": sorted(last["data"]["jobs"][0]),
        "group": sorted(last["data"]["groups"][0]),
    }
    found, kept = golden("routes/monitor-GET-api-events-live", fields)
    assert found == kept


def answers(place: Service | Node, route: str, given: str) -> dict[str, Any]:
    """What a server or a node answers to each id or query of a line; chance makes the ids of a node."""
    ids = place.ids if isinstance(place, Node) else {}
    method, path = route.split()
    asked = {}
    for one in given.split():
        target, mark, query = one.partition("?")
        full = re.sub(r"{\w+}", ids.get(target, target), path) + (mark + query if query else "")
        answer = place.server.request(method, full, b"" if method == "POST" else None)
        asked[f"{route} {one}"] = shown(answer, place.normal)
    return asked


@pytest.mark.parametrize("route", SERVER)
def test_a_server_answers_as_its_golden_file_says(
    route: str, place: Callable[[str], Service], golden: Golden
) -> None:
    service = place("service")
    asked = answers(service, route, SERVER[route])
    made_by_fixture = {"POST /upload": service.uploaded, "POST /terminate/{id}": service.terminated}
    if route in made_by_fixture:
        asked["at first"] = shown(made_by_fixture[route], service.normal)
    found, kept = golden(file_name("server", route), asked)
    assert found == kept


@pytest.mark.parametrize("route", NODE)
def test_a_node_answers_as_its_golden_file_says(
    route: str, place: Callable[[str], Node], golden: Golden
) -> None:
    node = place("node")
    asked = answers(node, route, NODE[route])
    if route == "GET /load":
        asked[f"{route} ?"]["json"] = "<number>"
    made_by_fixture = {"POST /submit": node.submitted[0], "POST /kill/{id}": node.killed}
    if route in made_by_fixture:
        asked["at first"] = shown(made_by_fixture[route], node.normal)
    found, kept = golden(file_name("node", route), asked)
    assert found == kept


def test_an_upload_that_is_refused_says_why(place: Callable[[str], Service], golden: Golden) -> None:
    service = place("service")
    upload = service.server.upload
    refused = {
        "no multipart": service.server.post("/upload"),
        "unknown service": upload(service="nothing"),
        "no user": upload(user=""),
        "a name that climbs": upload(files={"../x": b""}),
    }
    asked = {name: shown(answer, service.normal) for name, answer in refused.items()}
    found, kept = golden("routes/server-POST-upload-refused", asked)
    assert found == kept


def test_every_route_of_every_server_has_a_golden_file(
    place: Callable[[str], Any], monitor: Callable[[str], Monitor]
) -> None:
    said = {
        "monitor": (monitor("experiments").ask("GET", "/api/openapi.json").json, MONITOR),
        "server": (place("service").server.get("/openapi.json").json, SERVER),
        "node": (place("node").server.get("/openapi.json").json, NODE),
    }
    assert {name: routes(found) for name, (found, _) in said.items()} == {
        name: set(table) for name, (_, table) in said.items()
    }, "name the route in tests/behaviour/tables.py, and make its golden file"
    files = {f"{file_name(name, route)}.json" for name, (_, table) in said.items() for route in table}
    kept = {str(path.relative_to(GOLDEN)) for path in (GOLDEN / "routes").glob("*.json")}
    assert kept - files <= {
        "routes/server-POST-upload-refused.json",
        "routes/monitor-GET-api-events-live.json",
    }
    assert not files - kept


def test_a_browser_that_logs_out_is_asked_to_log_in(place: Callable[[str], Place], golden: Golden) -> None:
    browser = Monitor(place("search"))
    try:
        answers_ = [browser.ask("POST", "/api/logout", {}), browser.ask("GET", "/api/about")]
    finally:
        browser.close()
    shown_ = [shown(answer, place("search").normal) for answer in answers_]
    assert [answer.status for answer in answers_] == [204, 401]
    found, kept = golden("routes/monitor-POST-api-logout", shown_)
    assert found == kept
