"""Owns a rule of how we write: a sentence of a docstring or a comment names its actor."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNNAMED = re.compile(r"\b(whoever|somebody|someone|anybody|who (waits|asks|reads|looks))\b", re.IGNORECASE)
VAGUE = re.compile(
    r"\b(business|everybody|everyone|anyone|those who"
    r"|(?<!person )(?<!member )who (has|uses|needs|holds|starts|started|asked|runs))\b",
    re.IGNORECASE,
)
"""What no room of the house says either."""


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Each line of a comment or a docstring, with its number."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT)
        if token.type == tokenize.COMMENT or is_docstring:
            yield from enumerate(token.string.splitlines(), token.start[0])
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING):
            before = token.type


def unnamed(text: str, pattern: re.Pattern[str] = UNNAMED) -> list[int]:
    if not pattern.search(text):
        return []  # nothing to be found: a source is taken apart in a hundred times the time of a search
    return [number for number, line in sentences(text) if pattern.search(line)]


def test_a_sentence_names_its_actor() -> None:
    files = [path for room in ("src", "proof", "bench") for path in sorted((ROOT / room).rglob("*.py"))]
    found = [
        f"{path.relative_to(ROOT)}:{line}" for path in files for line in unnamed(path.read_text("utf-8"))
    ]
    assert not found, "write scheduler, runner, owner, job, caller: " + ", ".join(found)


def test_a_sentence_of_the_house_names_what_decides() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "src" / "tenuto").rglob("*.py"))
        for line in unnamed(path.read_text("utf-8"), VAGUE)
    ]
    assert not found, "name the one that has, uses or decides it: " + ", ".join(found)


def test_the_rule_reads_comments_and_docstrings_only() -> None:
    text = (
        '"""Whoever reads."""\n\nX = "somebody"  # anybody\n\ndef f():\n    """The caller."""\n    return 1\n'
    )
    assert unnamed(text) == [1, 3]
