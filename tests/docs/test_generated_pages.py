"""Owns the promise that what the pages show of the tables is what the code does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", generator().PAGES)
def test_a_page_shows_the_tables_as_they_are(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text == generator().fresh(page, text), f"docs/{page} is stale; run: python -m docs.generate"
