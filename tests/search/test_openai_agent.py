"""The agent for OpenAI-compatible endpoints, against a server that answers what a test wants."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tenuto.examples.openai_agent import changed, main
from tests.search.programs import programs, repository

DIFF = "I raise A.\n\nprogram.py\n<<<<<<< SEARCH\nA = 1.0\n=======\nA = 4.0\n>>>>>>> REPLACE\n"
WHOLE = "I raise A.\n\nprogram.py\n```python\nA = 5.0\nB = 0.0\n```\n"


class Stub:
    """A server that gives the answers of a list, the last one for ever; a number is an error."""

    def __init__(self) -> None:
        self.answers: list[str | int | dict[str, Any]] = [DIFF]
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stub.asked.append({"path": self.path, **body})
                stub.keys.append(self.headers["Authorization"])
                answer = stub.answers.pop(0) if len(stub.answers) > 1 else stub.answers[0]
                code = answer if isinstance(answer, int) else 200
                usage = {"prompt_tokens": 1000, "completion_tokens": 100}
                found = {"choices": [{"message": {"content": answer}}], "usage": usage}
                text = json.dumps(answer if isinstance(answer, dict) else found).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                if code == 429:
                    self.send_header("Retry-After", "0.01")
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def stub() -> Iterator[Stub]:
    made = Stub()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub: Stub) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text("A = 1.0\nB = 0.0\n")
    (tmp_path / "prompt.md").write_text("# Goal\n\nmore\n")
    monkeypatch.setenv("EVOLVE_PROMPT", str(tmp_path / "prompt.md"))
    monkeypatch.setenv("EVOLVE_REPORT", str(tmp_path / "report.json"))
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    given = ["--model", "m", "--url", stub.url, "--file", "program.py", "--prices", "2,10", "--tries", "3"]
    return lambda *more: main([*given, *more])


def test_a_diff_is_applied_and_its_tokens_cost(agent: Callable[..., int], stub: Stub, tmp_path: Path) -> None:
    assert agent() == 0
    assert (tmp_path / "program.py").read_text() == "A = 4.0\nB = 0.0\n"
    report = json.loads((tmp_path / "report.json").read_text())
    assert report == {"cost": pytest.approx(0.003), "notes": "I raise A."}
    (asked,) = stub.asked
    assert (asked["path"], asked["model"], stub.keys) == ("/v1/chat/completions", "m", ["Bearer k"])
    assert "# Goal\n\nmore" in asked["messages"][1]["content"]
    assert "A = 1.0" in asked["messages"][1]["content"]


def test_a_file_keeps_its_line_ends(agent: Callable[..., int], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_bytes(b"A = 1.0\r\nB = 0.0\r\n")
    assert agent() == 0
    assert (tmp_path / "program.py").read_bytes() == b"A = 4.0\r\nB = 0.0\r\n"


def test_a_whole_file_is_written(agent: Callable[..., int], stub: Stub, tmp_path: Path) -> None:
    stub.answers = [WHOLE]
    assert agent("--form", "whole", "--temperature", "0.5") == 0
    assert (tmp_path / "program.py").read_text() == "A = 5.0\nB = 0.0\n"
    assert stub.asked[0]["temperature"] == 0.5


def test_an_agent_tries_again_with_its_faults(agent: Callable[..., int], stub: Stub, tmp_path: Path) -> None:
    stub.answers = [429, "no blocks", DIFF.replace("A = 1.0", "A = 7.0"), DIFF]
    assert agent() == 0
    assert (tmp_path / "program.py").read_text() == "A = 4.0\nB = 0.0\n"
    assert "no block of the form" in stub.asked[2]["messages"][-1]["content"]
    assert "not exactly once in program.py" in stub.asked[3]["messages"][-1]["content"]
    assert json.loads((tmp_path / "report.json").read_text())["cost"] == pytest.approx(3 * 0.003)


@pytest.mark.parametrize(
    ("answers", "said", "cost"),
    [
        ([401], "answered 401", None),
        ([{"error": "x"}], "gave no answer", None),
        (["nothing"], "no answer of 3 could be used", 0.009),
    ],
)
def test_an_agent_fails_with_words_and_reports_what_it_spent(
    agent: Callable[..., int],
    stub: Stub,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    answers: list[Any],
    said: str,
    cost: float | None,
) -> None:
    stub.answers = answers
    assert agent() == 1
    assert said in capsys.readouterr().err
    report = tmp_path / "report.json"
    assert (json.loads(report.read_text())["cost"] if report.exists() else None) == pytest.approx(cost)


def test_blocks_name_their_files() -> None:
    files = {"a.py": "x = 1\n", "b/c.py": "x = 1\n"}
    block = "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n"
    assert changed(f"why\n\n**b/c.py**\n\n{block}", files, "diff") == {"a.py": "x = 1\n", "b/c.py": "x = 2\n"}
    with pytest.raises(ValueError, match="none of the files"):
        changed(f"why\n{block}", files, "diff")
    with pytest.raises(ValueError, match="changes nothing"):
        changed("a.py\n```\nx = 1\n```", files, "whole")


def test_a_search_asks_the_endpoint(tmp_path: Path, stub: Stub) -> None:
    repository(tmp_path)
    command = [sys.executable, "-m", "tenuto.examples.openai_agent", "--model", "m", "--url", stub.url]
    command += ["--file", "program.py", "--prices", "2,10"]
    result = programs(tmp_path, max_total_jobs=2, command=command).run(slots=1)
    row = result.rows()[1]
    assert (row["objective"], row["cost"]) == (4.0, pytest.approx(0.003 + 0.25)), row
    assert "more" in stub.asked[0]["messages"][1]["content"]
