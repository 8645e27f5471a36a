"""Owns the promise that the tutorial shows what its commands print, but for ids, times and places."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_code_blocks import blocks
from tests.experiments.scripts import run, tenuto

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
NEW_STEP = ('"step": [0.1', '"step": [0.5, 0.1')


def code(containing: str) -> str:
    (found,) = [
        "\n".join(block.lines)
        for block in blocks(PAGE.read_text(encoding="utf-8"))
        if block.language == "python" and containing in "\n".join(block.lines)
    ]
    return found


def shown() -> list[str]:
    """The lines that the page says Tenuto prints."""
    found = [b for b in blocks(PAGE.read_text(encoding="utf-8")) if b.language == "console"]
    return [line for b in found for line in b.lines if line and not line.startswith("$") and line != "  ..."]


def shape(line: str) -> str:
    """A line without what differs from run to run. Which of several nearest jobs is named is chance."""
    line = re.sub(r"\b[0-9a-f]{12}\b", "ID", line)
    line = re.sub(r"\d{8}_\d{6}(\.\d+)?", "RUN", line)
    line = re.sub(r"(?<= )/\S*?(?=:| |$)", "PLACE", line)
    line = re.sub(r"was [\d.]+ in", "was VALUE in", line)
    return re.sub(r"\b\d+(\.\d+)?m?s\b", "TIME", line)


def test_the_page_shows_what_the_commands_print(tmp_path: Path) -> None:
    dataset = code("class Dataset").partition("class Count")[0]
    sweep = tmp_path / "moons.py"
    sweep.write_text(dataset + code("class Evaluate"), encoding="utf-8")
    said = "".join(run(tenuto("run", sweep.name), tmp_path).stderr for _ in range(2))
    sweep.write_text(sweep.read_text(encoding="utf-8").replace(*NEW_STEP), encoding="utf-8")
    said += run(tenuto("plan", sweep.name), tmp_path).stdout
    (tmp_path / "divide.py").write_text(code("class Divide"), encoding="utf-8")
    said += run(tenuto("run", "divide.py"), tmp_path).stderr
    printed = {shape(line.replace("python -m tenuto", "tenuto")) for line in said.splitlines()}
    assert [line for line in shown() if shape(line) not in printed] == []


def test_the_sheet_of_the_page_is_an_experiment_beside_the_script(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (name,) = re.findall(r"\$ tenuto run (\w+\.yaml)", page)
    (sheet,) = [b for b in blocks(page) if b.language == "yaml"]
    dataset = code("class Dataset").partition("class Count")[0]
    (tmp_path / "moons.py").write_text(dataset + code("class Evaluate"), encoding="utf-8")
    (tmp_path / name).write_text("\n".join(sheet.lines), encoding="utf-8")
    for one in ("moons.py", name):
        run(tenuto("run", one), tmp_path)
    results = run(tenuto("results", "-w", "workspace"), tmp_path).stdout
    assert results.count("moons.Evaluate") == 3, results
