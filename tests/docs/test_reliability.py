"""Owns the promise that the page on reliability names tests that exist, for every case it must name."""

from __future__ import annotations

import re
from pathlib import Path

from proof.__main__ import PROOFS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
CLUSTERS = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`((?:tests|src)/[\w/]+\.py)::(\w+)`")
ROWS = {row[2:5]: row for row in PAGE.splitlines() if re.match(r"\| [FH]\d\d \|", row)}
SERVICE = [f"H{number:02}" for number in range(1, 33)]

# The cases of the first part, scheduler and job process, that a part must show before it is called done.
CASES = """F01 F02 F03 F04 F05 F06 F09 F10 F11 F12 F14 F16 F17 F18 F20 F21 F22 F24 F25 F26 F27 F28 F29 F30 F31
F33 F34 F35 F38 F39 F40 F42 F44 F46 F47 F49 F51 F52 F53 F64 F67 F68""".split()

SEARCHES = "F51 F52 F53 F54 F55 F56 F57 F58 F59 F60 F61 F64 F65 F66 F67 F68 F70".split()


def test_every_named_test_exists() -> None:
    named = NAMED.findall(PAGE + CLUSTERS)
    assert len(named) > 50
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file() or f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_case_has_a_test_or_says_why_not() -> None:
    assert sorted(ROWS) == CASES + SERVICE
    assert [case for case, row in ROWS.items() if not NAMED.search(row) and "*open:" not in row] == []


def test_every_fault_of_a_cluster_has_a_test() -> None:
    rows = {row.split("|")[1].strip(): row for row in CLUSTERS.splitlines() if re.match(r"\| \d+ \|", row)}
    assert list(rows) == [str(number) for number in range(1, 32)]
    assert [number for number, row in rows.items() if not NAMED.search(row)] == []


def test_every_promise_of_a_search_has_a_test_of_its_number() -> None:
    section = PAGE.partition("### Searches")[2].partition("\n## ")[0]
    rows = {row.split("|")[1].strip(): row for row in section.splitlines() if re.match(r"\| \d+ \|", row)}
    assert list(rows) == [str(number) for number in range(1, 39)]
    untested = [
        number
        for number, row in rows.items()
        if not any(re.match(rf"test_(\d+_)*{number}_", name) for _, name in NAMED.findall(row))
    ]
    assert untested == []
    assert sorted(set(re.findall(r"F\d\d", section))) == SEARCHES


def test_every_proof_is_described() -> None:
    assert [name for name in PROOFS if f"| `{name}` |" not in PAGE] == []
