"""The description and the first page of a server; a client that is made from the description."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tenuto.service.server import Server
from tests.service.asgi import ask, make_server, run
from tests.service.servers import Process


def served(tmp_path: Path, **settings: str) -> Server:
    return make_server(tmp_path, **settings)


def test_only_a_browser_gets_the_form(tmp_path: Path) -> None:
    app = served(tmp_path).app()
    for accept in ("", "*/*", "application/json"):
        reply = run(ask(app, "GET", "/", {"accept": accept}))
        assert reply.json == {"message": "pong"}
    reply = run(ask(app, "GET", "/", {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}))
    assert reply.headers["content-type"].startswith("text/html")
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert b"http://" not in reply.body
    assert b"onclick=" not in reply.body


def test_the_description_names_scopes_and_content_types(tmp_path: Path) -> None:
    found = run(ask(served(tmp_path, auth="tokens").app(), "GET", "/openapi.json")).json
    assert found["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    routes = [one for methods in found["paths"].values() for one in methods.values()]
    ids = [one["operationId"] for one in routes]
    assert len(set(ids)) == len(ids)
    assert {"upload", "download", "job", "jobs", "services", "terminate", "logs"} <= set(ids)
    assert found["paths"]["/upload"]["post"]["security"] == [{"bearer": []}]
    assert "security" not in found["paths"]["/health"]["get"]
    form = found["paths"]["/upload"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert set(form["required"]) == {"service", "files"}
    assert list(found["paths"]["/download/{id}"]["get"]["responses"]["200"]["content"]) == ["application/zip"]


def test_the_description_of_an_open_server_leaves_the_token_out(tmp_path: Path) -> None:
    found = run(ask(served(tmp_path, compat="v2").app(), "GET", "/openapi.json")).json
    assert found["paths"]["/upload"]["post"]["security"] == [{}, {"bearer": []}]
    kinds = found["paths"]["/download/{id}"]["get"]["responses"]["200"]["content"]
    assert set(kinds) == {"application/zip", "application/json"}, "with v2 the body tells the state"


GENERATED = """
import io, sys, zipfile
from tenuto_job_service_client import AuthenticatedClient
from tenuto_job_service_client.api.default import download, job, jobs, upload
from tenuto_job_service_client.models import ServiceState
from tenuto_job_service_client.models.upload_upload_form import UploadUploadForm
from tenuto_job_service_client.types import File
client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])
script = File(io.BytesIO(b"echo hi > out\\n"), "run.sh", "text/plain")
form = UploadUploadForm(service="example", files=[script])
sent = upload.sync(client=client, body=form)
assert job.sync(sent.id, client=client, wait=50).status == ServiceState.COMPLETED
result = download.sync(sent.id, client=client)
assert zipfile.ZipFile(result.payload).read("out") == b"hi\\n"
assert [one.id for one in jobs.sync(client=client).jobs] == [sent.id]
"""


@pytest.mark.prove("it fills a new environment by pip")
def test_a_generated_client_uploads_waits_and_downloads(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "made"], cwd=tmp_path, check=True)
    programs = tmp_path / "made" / "bin"
    subprocess.run([programs / "pip", "install", "--quiet", "openapi-python-client"], check=True)
    server = start("serve", "--with-node", "--sandbox", "none", "--auth", "tokens")
    command = [sys.executable, "-m", "tenuto", "token", "create", "--user", "ada"]
    token = subprocess.check_output(command, cwd=tmp_path, text=True).strip()
    (tmp_path / "openapi.json").write_bytes(server.get("/openapi.json").body)
    kinds = {"content_type_overrides": {"application/zip": "application/octet-stream"}, "post_hooks": []}
    (tmp_path / "config.json").write_text(json.dumps(kinds))
    making = [programs / "openapi-python-client", "generate", "--path", "openapi.json"]
    subprocess.run([*making, "--config", "config.json", "--output-path", "client"], cwd=tmp_path, check=True)
    using = [programs / "python", "-c", GENERATED, server.url, token]
    ended = subprocess.run(using, cwd=tmp_path / "client", timeout=120, check=False)
    assert ended.returncode == 0
