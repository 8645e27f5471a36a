"""The files in `deploy/`: units that systemd takes, a proxy that jobs pass through, alerts that can fire."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
import yaml

from tenuto.cli.main import loaded
from tenuto.service.metrics import Metrics, NodeFigures
from tenuto.service.node.routes import FIGURES
from tenuto.settings import load_settings
from tests.parts.ports import free_port
from tests.service.multipart import CONTENT_TYPE, body, field, file
from tests.service.servers import Process, eventually

DEPLOY = Path(__file__).parents[2] / "deploy"
Start = Callable[..., Process]


@pytest.mark.parametrize("unit", sorted(DEPLOY.glob("systemd/*.service")), ids=lambda unit: unit.stem)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = unit.read_text()
    assert "/opt/tenuto/bin/tenuto " in text
    here = tmp_path / unit.name
    here.write_text(text.replace("/opt/tenuto/bin/tenuto", sys.executable))
    said = subprocess.run(
        ["systemd-analyze", "verify", str(here)], capture_output=True, text=True, timeout=60, check=False
    )
    mine = [line for line in said.stderr.splitlines() if unit.name in line]
    assert mine == []


def test_a_restart_of_a_node_leaves_its_payloads() -> None:
    unit = (DEPLOY / "systemd" / "tenuto-node.service").read_text()
    assert "\nKillMode=process\n" in unit
    assert "\nDelegate=yes\n" in unit


@contextmanager
def nginx(directory: Path, upstream: str) -> Iterator[int]:
    """The site of `deploy/`, on a free port."""
    port = free_port()
    names = ["-subj", "/CN=jobs.example.org", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    site = (DEPLOY / "nginx" / "tenuto.conf").read_text()
    site = site.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    site = site.replace("/etc/ssl/tenuto", str(directory)).replace("http://127.0.0.1:5000", upstream)
    temporary = "".join(f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy"))
    temporary += "".join(f"{kind}_temp_path {directory}/{kind};" for kind in ("fastcgi", "uwsgi", "scgi"))
    (directory / "nginx.conf").write_text(
        f"daemon off; pid {directory}/pid; error_log {directory}/error.log; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{site}\n}}\n"
    )
    process = subprocess.Popen(["nginx", "-c", str(directory / "nginx.conf"), "-p", str(directory)])
    try:
        yield port
    finally:
        process.terminate()
        process.wait(30)


def test_jobs_pass_through_nginx_with_tls(tmp_path: Path, start: Start) -> None:
    if shutil.which("nginx") is None or shutil.which("openssl") is None:
        pytest.skip("nginx or openssl is not installed")
    (tmp_path / "tenuto.toml").write_text(
        '[service]\nhosts = ["jobs.example.org"]\ntrusted_proxies = ["127.0.0.1"]\nprefix = "/tenuto"\n'
    )
    server = start("serve", "--with-node", "--sandbox", "none")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with nginx(tmp_path, f"http://127.0.0.1:{urlsplit(server.url).port}") as port:

        def asked(path: str, data: bytes | None = None, **headers: str) -> bytes:
            host = {"Host": f"jobs.example.org:{port}"}
            request = urllib.request.Request(
                f"https://127.0.0.1:{port}/tenuto{path}", data, {**host, **headers}
            )
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                content: bytes = answer.read()
            return content

        def is_up() -> bool:
            try:
                return b"ok" in asked("/health")
            except OSError:
                return False

        eventually(is_up)
        large = body(
            field("user_id", "1"), field("service", "example"), file("run.sh"), file("x", bytes(3 << 20))
        )
        browser = {"Content-Type": CONTENT_TYPE, "Origin": f"https://jobs.example.org:{port}"}
        assert b'"id":1' in asked("/upload", large, **browser)
        assert asked("/download/1?wait=30")[:2] == b"PK"
        assert b"event: end" in asked("/jobs/1/logs?follow=true")
        assert b'href="swagger"' in asked("", Accept="text/html"), "sent on to where its links are right"
        assert f"https://jobs.example.org:{port}/tenuto/upload".encode() in asked("/swagger")
        failed = body(field("user_id", "1"), field("service", "example"), file("run.sh", b"exit 3\n"))
        asked("/upload", failed, **browser)
        assert b"/tenuto/jobs/2/logs?stream=stderr" in asked("/jobs/2?wait=30")
        assert json.loads(asked("/openapi.json"))["servers"] == [{"url": "/tenuto"}]
    assert server.get("/health").status == 200, "without the proxy, too"


BACK_UP = {
    "SQLite": ['sqlite3 db.sqlite ".backup copy.sqlite"', "mv copy.sqlite db.sqlite"],
    "PostgreSQL": ['pg_dump --clean --if-exists "$DB" > copy.sql', 'psql -q "$DB" < copy.sql'],
}
"""How the page says that a database is backed up, and put back."""


@pytest.mark.parametrize("kind", BACK_UP)
def test_a_database_is_backed_up_and_put_back_as_the_page_says(
    kind: str, tmp_path: Path, start: Start, request: pytest.FixtureRequest
) -> None:
    backing, putting = BACK_UP[kind]
    if shutil.which(backing.split()[0]) is None:
        pytest.skip(f"{backing.split()[0]} is not installed")
    page = (DEPLOY.parent / "docs" / "operations.md").read_text()
    assert f"`{backing}`" in page
    assert f"`{putting}`" in page
    url = "db.sqlite" if kind == "SQLite" else request.getfixturevalue("postgresql_url")

    def shell(line: str) -> None:
        subprocess.run(["bash", "-c", line], cwd=tmp_path, env={**os.environ, "DB": url}, check=True)

    arguments = ("serve", "--with-node", "--sandbox", "none", "--db", url)
    server = start(*arguments)
    old = server.run("echo old > out.txt\n")
    going = server.upload(f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo went > out.txt\n").json[
        "id"
    ]
    eventually(lambda: server.job(going)["status"] == "Running")
    shell(backing)
    lost = server.run("echo lost > out.txt\n", user="2")
    assert server.stop() == 0
    if kind == "SQLite":
        shell("rm -f db.sqlite-wal db.sqlite-shm")
    shell(putting)
    server = start(*arguments)
    assert server.get(f"/jobs/{old['id']}/files/out.txt").body == b"old\n"
    (tmp_path / "go").touch()
    assert server.final(going)["status"] == "Completed", "it ran on meanwhile"
    assert server.get(f"/jobs/{lost['id']}").status == 404
    new = server.run("echo new > out.txt\n", user="3")
    assert new["id"] == lost["id"] + 1, "no number is given twice"
    assert server.get(f"/jobs/{new['id']}/files/out.txt").body == b"new\n"
    assert server.get(f"/jobs/{lost['id']}").status == 404


def test_every_alert_names_figures_that_there_are() -> None:
    parser = pytest.importorskip("promql_parser")
    rules = yaml.safe_load((DEPLOY / "prometheus" / "tenuto.rules.yml").read_text())
    found = Metrics().text({}, ["s"], {"n": NodeFigures(True, 1)}, {}, 0).decode()
    known = {line.split()[2] for line in found.splitlines() if line.startswith("# TYPE")} | {"up"}
    known |= {f"tenuto_node_{name}" for name in FIGURES}
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len({alert["alert"] for alert in alerts}) == len(alerts) > 3
    for alert in alerts:
        assert set(alert) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"[0-9]+[smh]", alert["for"])
        parser.parse(alert["expr"])  # which raises for what Prometheus would not take
        expression = re.sub(r'"[^"]*"', "", alert["expr"])
        names = set(re.findall(r"\b(?:tenuto_\w+|up)\b", expression))
        assert names
        assert names <= known, alert["alert"]


def test_the_page_names_what_is_there() -> None:
    page = (DEPLOY.parent / "docs" / "operations.md").read_text()
    for path in re.findall(r"`(deploy/[a-z/.-]+)`", page):
        assert (DEPLOY.parent / path).exists() or list(DEPLOY.parent.glob(path)), path


def words_of(command: list[str]) -> tuple[click.Command, list[str]]:
    """The command that a container runs, and the options that it is given."""
    return loaded(command[0]), [word for word in command if word.startswith("--")]


def test_containers_run_commands_and_settings_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert sorted(services) == ["database", "node", "server", "worker"]
    ours = [service for name, service in services.items() if name != "database"]
    image = (DEPLOY / "Containerfile").read_text()
    commands = [service["command"] for service in ours] + [
        json.loads(re.findall(r"^CMD (.*)$", image, re.MULTILINE)[0])
    ]
    for command in commands:
        made, options = words_of(command)
        known = {name for parameter in made.params for name in parameter.opts}
        assert [option for option in options if option not in known] == []
    for service in ours:
        for name in service["environment"]:
            monkeypatch.setenv(name, re.sub(r"\$\{.*?\}", "secret", str(service["environment"][name])))
    monkeypatch.chdir(tmp_path)
    settings = load_settings()
    assert str(settings.service.database) == "postgresql://***@database/tenuto", "no secret is shown"
    assert str(settings.database.url) == "postgresql://***@database/tenuto_searches"
    assert settings.services["example"].nodes == ("first",)
    assert str(settings.nodes["first"].url) == "http://node:9000"


def test_the_image_copies_nothing_that_git_ignores() -> None:
    ignored = (DEPLOY.parent / ".containerignore").read_text().split()
    assert ignored == (DEPLOY.parent / ".dockerignore").read_text().split()
    assert {".venv", "build", "dist"} <= set(ignored)
    image = (DEPLOY / "Containerfile").read_text()
    assert "USER tenuto" in image, "the programs of users are not root's"
    assert image.index("USER tenuto") > image.index("COPY --from=build")


def test_each_step_of_the_image_is_one_that_its_check_knows() -> None:
    check = runpy.run_path(str(DEPLOY / "check_image.py"))
    steps = check["steps"]((DEPLOY / "Containerfile").read_text())
    assert [step.name for step in steps if step.name in ("FROM", "COPY", "USER", "CMD")] == [
        *("FROM", "COPY", "FROM", "COPY", "USER", "CMD"),
    ]
    assert not any("\n" in step.text or "\\" in step.text for step in steps), "continued lines are joined"


@pytest.mark.prove("it installs a system, and asks registries")
@pytest.mark.watchdog(1800)
def test_the_image_is_made_in_a_fresh_root_and_runs_a_job() -> None:
    if os.geteuid() or shutil.which("debootstrap") is None:
        pytest.skip("it takes root and debootstrap")
    said = subprocess.run(
        [sys.executable, str(DEPLOY / "check_image.py")],
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert said.returncode == 0, (said.stdout + said.stderr)[-4000:]
    assert "[x] server and node ran a job" in said.stdout
