"""Acceptance 2: the codes of a download for all ten states and three generations, and who may do what."""

from __future__ import annotations

import asyncio
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from tenuto.lifecycle.service import ServiceState
from tenuto.service.access import Scope, Tokens
from tenuto.service.contract import ErrorCode
from tenuto.service.routes import download, info, jobs, watching
from tenuto.service.rows import NewJob
from tenuto.service.server import Server
from tenuto.service.tables import jobs as jobs_table
from tests.service.asgi import ask, make_server, run
from tests.service.multipart import CONTENT_TYPE, body, field, file, good

S = ServiceState
CODES = {
    "hybrid": dict.fromkeys((S.QUEUED, S.PROCESSING, S.SUBMITTED, S.RUNNING), 202)
    | {S.COMPLETED: 200, S.FAILED: 410, S.KILLED: 410, S.INVALID: 400, S.UNKNOWN: 503, S.CLEANED: 410},
    "v1": dict.fromkeys((S.QUEUED, S.PROCESSING, S.SUBMITTED, S.RUNNING), 202)
    | {S.COMPLETED: 200, S.FAILED: 410, S.KILLED: 410, S.INVALID: 400, S.UNKNOWN: 500, S.CLEANED: 204},
    "v2": dict.fromkeys(S, 200),
}


def put(server: Server, state: ServiceState, user: str = "1") -> int:
    """A job in a state, as if it had come that far."""
    requests = server.parts.requests
    name = f"{state.value}{user}"
    row, _ = requests.add(NewJob(user, "example", name))
    place = server.parts.places.open_job(name)
    Path(place.result).write_bytes(b"PK-not-really")
    values = {"state": state.value, "result_sha256": "ab" * 32, "result_bytes": 13, "ended_at": 1}
    statement = jobs_table.update().where(jobs_table.c.id == row.id).values(values)
    server.database.write(lambda connection: connection.execute(statement))
    return row.id


@pytest.mark.parametrize("compat", CODES)
def test_the_code_tells_the_state(tmp_path: Path, compat: str) -> None:
    server = make_server(tmp_path, compat=compat)
    app = server.app()
    ids = {state: put(server, state) for state in S}

    async def main() -> None:
        for state, id in ids.items():
            full, head = await ask(app, "GET", f"/download/{id}"), await ask(app, "HEAD", f"/download/{id}")
            assert full.status == head.status == CODES[compat][state], state
            assert head.body == b"" or state is not S.COMPLETED
            if state is S.COMPLETED:
                assert full.body == b"PK-not-really"
                assert full.headers["etag"] == '"' + "ab" * 32 + '"'
                assert full.headers["content-disposition"] == f'attachment; filename="results-{id}.zip"'
                assert full.headers["cache-control"] == "private, no-cache"
            elif full.status != 204:
                assert full.json["status"] == state.value
                assert full.json["id"] == id
                assert full.headers["cache-control"] == "no-store"
            if full.status in (202, 503):
                assert full.headers["retry-after"] == "1"
            assert full.headers["x-content-type-options"] == "nosniff"
        assert (await ask(app, "GET", "/download/999")).json == {
            "id": 999, "status": "Unknown", "message": "There is no such job", "error": "not_found",
        }  # fmt: skip

    run(main())


def test_a_download_that_has_begun_is_whole_though_the_cleaner_comes(tmp_path: Path) -> None:
    """H12: the file is open before the first byte; after it, the answer is 410."""
    server = make_server(tmp_path)
    app, id = server.app(), put(server, S.COMPLETED)
    row = server.parts.requests.get(id)
    assert row is not None
    content = os.urandom(3 << 20)
    Path(server.parts.place(row).result).write_bytes(content)
    got = b""

    async def clean() -> None:
        assert await server.parts.move(row, S.CLEANED) is not None
        await server.parts.files(server.parts.places.discard, row.directory)

    async def send(message: dict[str, Any]) -> None:
        nonlocal got
        if message["type"] == "http.response.body":
            if not got:
                await clean()
            got += message["body"]

    async def main() -> None:
        await ask(app, "GET", f"/download/{id}", send=send)
        assert got == content
        assert (await ask(app, "GET", f"/download/{id}")).status == 410
        assert (await ask(app, "GET", f"/download_partial/{id}")).json["error"] == "cleaned"

    run(main())


def test_a_list_of_queued_jobs_reads_once_what_they_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(tmp_path)
    app = server.app()
    for user in "123":
        put(server, S.QUEUED, user)
    asked: list[str] = []
    active = server.parts.requests.active

    def reading(name: str) -> Any:
        asked.append(name)
        return active(name)

    monkeypatch.setattr(server.parts.requests, "active", reading)
    listed = run(ask(app, "GET", "/jobs")).json["jobs"]
    assert [job["message"] for job in listed] == ["waits for a node: no node of the service answers"] * 3
    assert asked == ["example"]


def test_what_jobs_left_cannot_act_in_a_browser(tmp_path: Path) -> None:
    """H24: results and logs are attachments or plain text, never sniffed, and in a sandbox."""
    server = make_server(tmp_path)
    app, id = server.app(), put(server, S.COMPLETED)
    row = server.parts.requests.get(id)
    assert row is not None
    with zipfile.ZipFile(server.parts.place(row).result, "w") as made:
        made.writestr(".tenuto/stdout", "<script>alert(1)</script>")

    async def main() -> None:
        for path in (f"/download/{id}", f"/download_partial/{id}", f"/jobs/{id}/logs"):
            headers = (await ask(app, "GET", path)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["content-security-policy"] == "sandbox"
            is_text = headers["content-type"] == "text/plain; charset=utf-8"
            assert is_text or headers["content-disposition"].startswith("attachment; filename=")

    run(main())


def test_bad_parameters_are_said(tmp_path: Path) -> None:
    """H25."""
    app = make_server(tmp_path).app()

    async def error(path: str, method: str = "GET") -> tuple[int, str]:
        answer = await ask(app, method, path)
        return answer.status, answer.json["error"]

    async def main() -> None:
        assert await error("/download/x") == (400, "bad_id")
        assert await error("/download/" + "9" * 5000) == (400, "bad_id")
        assert await error("/jobs/1.5") == (400, "bad_id")
        assert await error("/jobs?limit=0") == (400, "bad_parameter")
        assert await error("/jobs?limit=x") == (400, "bad_parameter")
        assert await error("/jobs?status=Nope") == (400, "bad_parameter")
        assert await error("/download/1?wait=61") == (400, "bad_parameter")
        assert await error("/download/1?wait=nan") == (400, "bad_parameter")
        assert await error("/nowhere") == (404, "not_found")
        assert await error("/jobs/") == (404, "not_found")
        assert await error("/upload") == (405, "method_not_allowed")
        assert await error("/jobs?token=secret") == (400, "token_in_url")
        assert (await ask(app, "GET", "/jobs?user_id=a%00b")).json == {"jobs": [], "next": None}

    run(main())


def test_old_uploads_are_answered_as_they_were(tmp_path: Path) -> None:
    app = make_server(tmp_path, compat="v1").app()
    answer = run(ask(app, "POST", "/upload", {"content-type": CONTENT_TYPE}, good()))
    assert answer.status == 200


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (body(field("service", "example"), file("run.sh")), "missing_field", "Missing user_id field"),
        (body(field("user_id", "1"), file("run.sh")), "missing_field", "Missing service field"),
        (good(user="ada"), "bad_user_id", "Invalid user_id, should be a number"),
        (good(service="x"), "unknown_service", "Invalid service 'x'; there is: example"),
        (good()[:-8], "bad_multipart", "Multipart error: the body ended early"),
    ],
)
def test_a_refused_upload_leaves_nothing(tmp_path: Path, content: bytes, code: str, message: str) -> None:
    """Acceptance 16."""
    server = make_server(tmp_path)
    answer = run(ask(server.app(), "POST", "/upload", {"content-type": CONTENT_TYPE}, content))
    assert (answer.status, answer.json["error"], answer.json["message"]) == (400, code, message)
    assert list((tmp_path / "data" / "jobs").iterdir()) == []
    assert list((tmp_path / "data" / "trash").iterdir()) == []


def test_a_repeated_upload_is_the_same_job(tmp_path: Path) -> None:
    """H14."""
    server = make_server(tmp_path)
    app = server.app()
    headers = {"content-type": CONTENT_TYPE, "idempotency-key": "k1"}

    async def main() -> None:
        first = await ask(app, "POST", "/upload", headers, good())
        again = await ask(app, "POST", "/upload", headers, good())
        assert (first.status, first.body) == (again.status, again.body) == (201, again.body)
        other = await ask(app, "POST", "/upload", headers, good(b"other\n"))
        assert (other.status, other.json["error"]) == (422, "idempotency_mismatch")
        bad = await ask(app, "POST", "/upload", {**headers, "idempotency-key": "ä"}, good())
        assert bad.json["error"] == "bad_idempotency_key"

    run(main())
    assert len(list((tmp_path / "data" / "jobs").iterdir())) == 1


def test_uploads_that_are_too_large_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """Acceptance 17."""
    app = make_server(tmp_path, max_upload_bytes=1000).app()
    headers = {"content-type": CONTENT_TYPE, "content-length": "1001"}
    assert run(ask(app, "POST", "/upload", headers, good())).json["error"] == "too_large"
    lying = {"content-type": CONTENT_TYPE, "content-length": "10"}
    long = [good(), b"x" * 2000]
    assert run(ask(app, "POST", "/upload", lying, long)).json["error"] == "too_large"
    negative = {"content-type": CONTENT_TYPE, "content-length": "-5"}
    assert run(ask(app, "POST", "/upload", negative, good())).status == 201


def test_a_disk_without_room_is_said(tmp_path: Path) -> None:
    """Acceptance 19."""
    app = make_server(tmp_path, min_free_bytes=1 << 60).app()
    answer = run(ask(app, "POST", "/upload", {"content-type": CONTENT_TYPE}, good()))
    assert (answer.status, answer.json["error"]) == (507, "disk_full")
    assert list((tmp_path / "data" / "jobs").iterdir()) == []


def test_a_server_that_drains_takes_no_uploads(tmp_path: Path) -> None:
    """H29."""
    server = make_server(tmp_path)
    server.drain()
    app = server.app()
    answer = run(ask(app, "POST", "/upload", {"content-type": CONTENT_TYPE}, good()))
    assert (answer.status, answer.json["error"]) == (503, "draining")


# Tokens


def with_tokens(directory: Path, **settings: Any) -> tuple[Server, Any, dict[str, dict[str, str]]]:
    server = make_server(directory, auth="tokens", **settings)
    tokens = Tokens(server.database)
    made = {}
    for name, scopes in [
        ("ada", {Scope.SUBMIT, Scope.READ}),
        ("bob", {Scope.SUBMIT, Scope.READ}),
        ("reader", {Scope.READ}),
        ("front", {Scope.FRONT}),
        ("root", {Scope.ADMIN}),
    ]:
        _, token = tokens.create(name, frozenset(scopes), None)
        assert len(token) == len("tnt_") + 43
        made[name] = {"authorization": f"Bearer {token}"}
    return server, server.app(), made


def test_every_route_names_its_scope_or_is_open() -> None:
    """Default-deny: a route that forgot to ask is found here."""
    for router in (download.router, jobs.router, watching.router, info.router):
        for route in router.routes:
            assert isinstance(route, APIRoute)
            asked = [getattr(one.call, "scope", None) for one in route.dependant.dependencies]
            assert any(asked) or route.path in info.OPEN_PATHS, f"{route.path} lets everybody in"


def test_users_see_their_own_jobs_only(tmp_path: Path) -> None:
    """H11, H17, acceptance 20."""
    _, app, token = with_tokens(tmp_path)
    multipart = {"content-type": CONTENT_TYPE}
    mine = body(field("service", "example"), file("run.sh"))

    async def main() -> None:
        answer = await ask(app, "POST", "/upload", {**multipart, **token["ada"]}, mine)
        assert answer.status == 201
        id = answer.json["id"]
        assert (await ask(app, "GET", f"/jobs/{id}", token["ada"])).json["user_id"] == "ada"
        forged = await ask(app, "POST", "/upload", {**multipart, **token["bob"]}, good(user="ada"))
        assert (forged.status, forged.json["error"]) == (403, "wrong_user")
        for method, path in [
            ("GET", "/jobs/{}"),
            ("GET", "/download/{}"),
            ("HEAD", "/download/{}"),
            ("GET", "/download_partial/{}"),
            ("POST", "/terminate/{}"),
        ]:
            others = await ask(app, method, path.format(id), token["bob"])
            missing = await ask(app, method, path.format(999), token["bob"])
            assert others.status == missing.status == 404
            assert others.body.replace(str(id).encode(), b"#") == missing.body.replace(b"999", b"#")
            assert others.headers.keys() == missing.headers.keys()
        assert (await ask(app, "GET", "/jobs", token["bob"])).json["jobs"] == []
        assert (await ask(app, "GET", "/jobs?user_id=ada", token["bob"])).json["jobs"] == []
        assert len((await ask(app, "GET", "/jobs", token["root"])).json["jobs"]) == 1
        assert (await ask(app, "GET", f"/jobs/{id}", token["front"])).status == 200

    run(main())


def test_scopes_hold(tmp_path: Path) -> None:
    _, app, token = with_tokens(tmp_path)
    multipart = {"content-type": CONTENT_TYPE}

    async def main() -> None:
        refused = await ask(app, "POST", "/upload", {**multipart, **token["reader"]}, good(user="reader"))
        assert (refused.status, refused.json["error"]) == (403, "forbidden")
        assert (await ask(app, "GET", "/metrics", token["front"])).status == 403
        assert (await ask(app, "GET", "/metrics", token["root"])).status == 200
        for_eve = await ask(app, "POST", "/upload", {**multipart, **token["front"]}, good(user="eve"))
        assert for_eve.status == 201
        nobody = body(field("service", "example"), file("run.sh"))
        missing = await ask(app, "POST", "/upload", {**multipart, **token["front"]}, nobody)
        assert missing.json["error"] == "missing_field"
        assert (await ask(app, "GET", "/health")).status == 200

    run(main())


def test_wrong_tokens_are_counted_and_good_ones_always_pass(tmp_path: Path) -> None:
    """H18."""
    _, app, token = with_tokens(tmp_path)

    async def main() -> None:
        nothing = await ask(app, "GET", "/jobs")
        assert (nothing.status, nothing.headers["www-authenticate"]) == (401, "Bearer")
        wrong = {"authorization": "Bearer tnt_" + "x" * 43}
        for _ in range(10):
            assert (await ask(app, "GET", "/jobs", wrong)).status == 401
        slowed = await ask(app, "GET", "/jobs", wrong)
        assert slowed.status == 429
        assert 1 <= int(slowed.headers["retry-after"]) <= 60
        assert (await ask(app, "GET", "/jobs", token["ada"])).status == 200

    run(main())


def test_old_and_revoked_tokens_are_wrong(tmp_path: Path) -> None:
    server, app, token = with_tokens(tmp_path)
    tokens = Tokens(server.database)
    first = tokens.listed()[0]
    tokens.revoke(first.id)
    assert run(ask(app, "GET", "/jobs", token[first.user_id])).status == 401
    id, old = tokens.create("x", frozenset({Scope.READ}), 0)
    assert run(ask(app, "GET", "/jobs", {"authorization": f"Bearer {old}"})).status == 401
    assert id > first.id


def test_users_are_slowed_down_each_for_themselves(tmp_path: Path) -> None:
    _, app, token = with_tokens(tmp_path, rate_per_s=0.001, burst=3)

    async def main() -> None:
        codes = [(await ask(app, "GET", "/jobs", token["ada"])).status for _ in range(5)]
        assert codes == [200, 200, 200, 429, 429]
        assert (await ask(app, "GET", "/jobs", token["bob"])).status == 200

    run(main())


def test_a_failure_inside_tells_nothing_but_its_number(tmp_path: Path) -> None:
    """H31."""
    server = make_server(tmp_path)
    app = server.app()

    def broken(job_id: int) -> None:
        raise ZeroDivisionError("/secret/path")

    server.parts.requests.get = broken  # type: ignore[method-assign,assignment]
    answer = run(ask(app, "GET", "/jobs/1"))
    assert (answer.status, answer.json["error"]) == (500, "internal")
    assert b"secret" not in answer.body
    assert answer.headers["x-request-id"] in answer.json["message"]


def test_a_wait_ends_when_the_job_does(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    app = server.app()

    async def main() -> None:
        uploaded = await ask(app, "POST", "/upload", {"content-type": CONTENT_TYPE}, good())
        id = uploaded.json["id"]
        waiting = asyncio.create_task(ask(app, "GET", f"/jobs/{id}?wait=30"))
        while not server.parts.waiters.ids():  # noqa: ASYNC110  a few steps of the loop
            await asyncio.sleep(0)
        assert (await ask(app, "POST", f"/terminate/{id}")).json["message"] == "job terminated"
        assert (await waiting).json["status"] == "Killed"

    run(main())


def test_every_error_code_has_a_status() -> None:
    assert all(400 <= code.http_status < 600 for code in ErrorCode)
