"""Sentences on reuse, which agree with the number of what they name."""

from __future__ import annotations

import pytest

from tenuto.jobs.validity import CheckedReuse, Validness


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((), "its code has changed since"),
        (("a.py",), "a.py has changed since"),
        (("a.py", "b.py"), "a.py, b.py have changed since"),
    ],
)
def test_a_sentence_agrees_with_the_number_of_files(files: tuple[str, ...], said: str) -> None:
    assert str(CheckedReuse(Validness.CODE, files)) == said
