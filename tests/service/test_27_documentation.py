"""Acceptance 27 and 29: the four lines of curl work; every route, code, action and metric is on the page."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from tenuto.service.contract import ErrorCode
from tenuto.service.log import ACTIONS
from tenuto.service.metrics import Metrics, NodeFigures
from tenuto.service.node.routes import router as node_router
from tenuto.service.routes import download, info, jobs, watching
from tenuto.settings.loader import foreign_variables
from tests.docs.test_code_blocks import blocks
from tests.service.servers import Process

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
ROUTERS = (jobs.router, download.router, watching.router, info.router)


def test_the_four_lines_of_curl_work(
    start: Callable[..., Process], tmp_path: Path, require: Callable[[str], None]
) -> None:
    require("curl")
    require("unzip")
    server = start("serve", "--with-node")
    for page in ("README.md", "docs/service.md", "README.md"):  # the lines work a second time, too
        assert four_lines(server, tmp_path / "here", page) == "HELLO\n"


def four_lines(server: Process, directory: Path, page: str) -> str:
    """What the lines of a page say."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (lines,) = [
        block.lines for block in blocks(text) if block.language == "sh" and "curl -s -o" in str(block.lines)
    ]
    assert len(lines) == 4
    script = "\n".join(lines).replace("localhost:5000", server.url.removeprefix("http://"))
    directory.mkdir(exist_ok=True)
    said = subprocess.run(["bash", "-ec", script], cwd=directory, capture_output=True, text=True, check=True)
    return said.stdout


@pytest.mark.prove("it fills a new environment by pip")
def test_27_the_four_lines_work_on_a_fresh_machine(tmp_path: Path, require: Callable[[str], None]) -> None:
    require("curl")
    require("unzip")
    subprocess.run([sys.executable, "-m", "venv", "fresh"], cwd=tmp_path, check=True)
    python = tmp_path / "fresh" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", f"{ROOT}[service]"]
    subprocess.run(install, cwd=tmp_path, check=True)
    server = Process("serve", "--with-node", "--port", "0", cwd=tmp_path, python=str(python))
    try:
        assert four_lines(server, tmp_path / "first", "README.md") == "HELLO\n"
    finally:
        server.close()


def test_every_variable_is_on_the_page() -> None:
    """The settings themselves are in docs/settings.md, which tests/settings compares."""
    ours = [(name, key) for name, key in foreign_variables() if key.startswith(("service", "node"))]
    assert ours
    for name, _ in ours:
        ending = name.partition("<NAME>_")[2] or name
        assert f"`{ending}`" in PAGE, name


def test_every_route_is_on_the_page() -> None:
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for method in route.methods:
                assert f"`{method} {route.path.replace(':path', '')}`" in PAGE


def test_every_route_of_a_node_is_on_the_page() -> None:
    for route in node_router.routes:
        assert isinstance(route, APIRoute)
        assert all(f"`{method} {route.path}`" in PAGE for method in route.methods), route.path


def test_every_error_code_is_on_the_page() -> None:
    missing = [code.value for code in ErrorCode if f"`{code.value}`" not in PAGE]
    assert missing == []


def test_every_action_is_on_the_page_as_it_is_meant() -> None:
    missing = [action for action, meaning in ACTIONS.items() if f"| `{action}` | {meaning} |" not in PAGE]
    assert missing == []


def test_every_metric_is_on_the_page() -> None:
    text = Metrics().text({}, ["x"], {"n": NodeFigures(True, 1)}, {}, 0).decode()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    names = {name for name in names if not name.endswith("_created")}
    assert {name for name in names if f"`{name}`" not in PAGE} == set()


def test_every_code_is_used() -> None:
    """An error code that nothing raises would be a promise about nothing."""
    rooms = [ROOT / "src" / "tenuto" / name for name in ("service", "web")]
    source = "".join(path.read_text() for room in rooms for path in room.rglob("*.py"))
    unused = [one for one in ErrorCode if f".{one.name}" not in source and source.count(f'"{one.value}"') < 2]
    assert unused == []
