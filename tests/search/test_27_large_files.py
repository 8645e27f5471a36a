"""27: repositories whose large files lie with git LFS, and filters of the user's configuration."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from tests.search.programs import git, programs, repository

LOOK = """
import json
data = open("data.bin", "rb").read()
found = {"objective": float(len(data)), "measures": {"a": 1, "b": 1}, "metrics": {"end": data[-1]}}
print(json.dumps(found))
"""
DATA = bytes(range(256)) * 20


def pointer(data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(data)}\n"


def kept(path: Path, data: bytes) -> Path:
    digest = hashlib.sha256(data).hexdigest()
    return path / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4] / digest


def with_large_file(tmp_path: Path) -> Path:
    path = repository(tmp_path, LOOK)
    (path / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (path / "data.bin").write_text(pointer(DATA))
    git(path, "-c", "filter.lfs.clean=cat", "add", ".gitattributes", "data.bin")
    git(path, "commit", "-qm", "data", ".gitattributes", "data.bin")
    kept(path, DATA).parent.mkdir(parents=True)
    kept(path, DATA).write_bytes(DATA)
    return path


def test_27_a_large_file_is_in_checkouts_and_its_pointer_in_commits(tmp_path: Path) -> None:
    path = with_large_file(tmp_path)
    result = programs(tmp_path, "open('program.py', 'a').write('# x')", max_total_jobs=2).run(slots=1)
    assert [row["objective"] for row in result.rows()] == [len(DATA)] * 2
    commit = result.rows()[1]["solution"]
    assert git(path, "show", f"{commit}:data.bin") == pointer(DATA).strip()
    assert git(path, "diff", "--name-only", "HEAD", commit) == "program.py"


def test_27_what_an_agent_makes_of_a_large_file_is_kept_beside_it(tmp_path: Path) -> None:
    path = with_large_file(tmp_path)
    result = programs(
        tmp_path, "open('data.bin', 'ab').write(b'7')", max_total_jobs=3, max_unfinished_jobs=1
    ).run(slots=1)
    first, second, third = result.rows()
    assert [row["objective"] for row in (second, third)] == [len(DATA) + 1, len(DATA) + 2]
    assert git(path, "show", f"{second['solution']}:data.bin") == pointer(DATA + b"7").strip()
    assert kept(path, DATA + b"77").read_bytes() == DATA + b"77"
    assert kept(path, DATA).read_bytes() == DATA
    assert git(path, "status", "--porcelain", "data.bin", "program.py") == ""
    assert first["objective"] == len(DATA)


def test_27_a_large_file_that_was_not_fetched_stays_a_pointer_and_the_search_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = with_large_file(tmp_path)
    kept(path, DATA).unlink()
    row = programs(tmp_path, max_total_jobs=1).run(slots=1).rows()[0]
    assert row["objective"] == len(pointer(DATA))
    assert "files of git LFS are pointers here: data.bin (git lfs pull)" in capfd.readouterr().err


def test_27_no_filter_of_the_users_configuration_runs_on_a_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = repository(tmp_path)
    ran = tmp_path / "ran"
    lines = [f"{key} = touch {ran}; cat" for key in ("clean", "smudge")]
    drivers = f'[diff "f"]\n textconv = touch {ran}; cat\n command = touch {ran}\n'
    home = tmp_path / "home"
    home.mkdir()
    home.joinpath(".gitconfig").write_text(
        '[filter "f"]\n' + "\n".join(lines) + f"\n{drivers}[push]\n recurseSubmodules = check\n"
        '[protocol "file"]\n allow = never\n[submodule]\n recurse = true\n[init]\n templateDir = /none\n'
    )
    monkeypatch.setenv("HOME", str(home))
    agent = (
        "open('.gitattributes', 'w').write('* filter=f diff=f merge=f\\n*.x filter=lfs')\nopen('a.x', 'w')"
    )
    command = [sys.executable, str(tmp_path / "agent.py")]
    for confine in ("none", "auto"):
        options = {"confine": confine, "name": confine, "command": command, "max_total_jobs": 3}
        rows = (
            programs(
                tmp_path,
                agent
                + f"\nopen('{confine}', 'w').write(os.environ['EVOLVE_SEED'])".replace(
                    "os.", "__import__('os')."
                ),
                **options,
            )
            .run(slots=1)
            .rows()
        )
        assert [row["status"] for row in rows] == ["SUCCEEDED"] * 3, rows
    assert not ran.exists()
    assert git(path, "status", "--porcelain") == "A  staged.txt\n?? notes.txt"
