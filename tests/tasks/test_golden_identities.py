"""Identities are kept for ever: the golden file holds those of `golden_configs`, and none may change.

To add cases: write them in `golden_configs.py`, then run

    python -m tests.tasks.test_golden_identities

which adds the new ones. It never changes or removes one: that is a change of the canonical form, with a new
version, and is done by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tenuto.tasks.identity import VERSION
from tests.tasks.golden_configs import CASES, EQUAL, identity_of

GOLDEN = Path(__file__).parent / "golden" / "identities.json"
ROOT = Path(__file__).parents[2]


def computed() -> dict[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return {case: identity_of(case) for case in CASES}


def golden() -> dict[str, str]:
    stored = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {"version": VERSION, "identities": {}}
    assert stored["version"] == VERSION, "a new version of the form needs a new golden file"
    identities: dict[str, str] = stored["identities"]
    return identities


def test_every_golden_identity_is_still_the_same() -> None:
    now = computed()
    changed = {case: now.get(case, "removed") for case, then in golden().items() if now.get(case) != then}
    assert changed == {}, "results stored under these identities would be lost"


def test_every_case_is_in_the_golden_file() -> None:
    assert set(CASES) - set(golden()) == set(), "see the top of this file for how to add them"


def test_the_golden_file_keeps_its_size() -> None:
    assert len(golden()) >= 125, "an identity was removed from the golden file"


def test_cases_are_equal_exactly_where_a_rule_says_so() -> None:
    by_identity: dict[str, set[str]] = {}
    for case, value in computed().items():
        by_identity.setdefault(value, set()).add(case)
    together = sorted(sorted(cases) for cases in by_identity.values() if len(cases) > 1)
    assert together == sorted(sorted(cases) for cases in EQUAL)


@pytest.mark.parametrize("seed", ["0", "1"])
def test_another_process_computes_the_same(seed: str) -> None:
    program = (
        "import json, warnings; warnings.simplefilter('ignore')\n"
        "from tests.tasks.golden_configs import CASES, identity_of\n"
        "print(json.dumps({case: identity_of(case) for case in reversed(CASES)}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == computed()


def add_new_cases() -> None:
    added = {**computed(), **golden()}
    GOLDEN.write_text(json.dumps({"version": VERSION, "identities": added}, indent=1) + "\n")


if __name__ == "__main__":
    add_new_cases()
