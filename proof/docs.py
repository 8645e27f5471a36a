"""Owns the figures of docs/reliability.md: `python -m proof.docs` draws them from the newest kept result.
`python -m proof.docs proof/results/NAME.json` takes another one. Proves nothing.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from bench import age
from bench.docs import kept
from docs.generate import refreshed
from proof.report import RESULTS, read, summary

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
PART = "figures"
NAMED = re.compile(r"\(\.\./proof/results/(?P<name>\w+\.json)\)")


def named(page: str) -> Path | None:
    """The result that a page was drawn from."""
    found = NAMED.search(page)
    return RESULTS / found["name"] if found else None


def figures(result: Path) -> str:
    """The part of the page that is drawn."""
    raw = json.loads(result.read_text(encoding="utf-8"))
    around, stem = raw["circumstances"], result.stem
    reports = [read(fields) for fields in raw["reports"]]
    where = f"Python {around['python']}, {around['system']}, {around['cores']} cores"
    minutes = sum(report.seconds for report in reports) / 60
    raw_numbers = f"[{stem}.json](../proof/results/{stem}.json)"
    everything = f"[all cases and planted bugs](../proof/results/{stem}.md)"
    taken = age.sentence(around, age.HEART)
    head = f"{around['started'][:10]}, {where}, {minutes:.0f} minutes; from {raw_numbers} ({everything})."
    return f"{taken}\n\n{head}\n\n{summary(reports).strip()}"


def fresh(page: str, result: Path) -> str:
    """The page with the figures of a result."""
    return refreshed(page, {PART: figures(result)})


def main() -> None:
    chosen = [Path(name) for name in sys.argv[1:]] or kept(RESULTS)[-1:]
    if not chosen:
        raise SystemExit("no result is kept: run `make prove`, then `git add -f proof/results/NAME*`")
    raw = json.loads(chosen[0].read_text(encoding="utf-8"))
    raw["circumstances"] = age.noted(raw["circumstances"], age.HEART)
    chosen[0].write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(fresh(PAGE.read_text(encoding="utf-8"), chosen[0]), encoding="utf-8")
    print(f"{PAGE.name} shows {chosen[0].name}", file=sys.stderr)


if __name__ == "__main__":
    main()
