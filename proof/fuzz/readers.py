"""Owns the list of all readers of files."""

from __future__ import annotations

from proof.fuzz.readers_of_documents import documents, texts
from proof.fuzz.readers_of_jobs import directory, records
from proof.fuzz.readers_of_lines import lines
from proof.fuzz.targets import Bench, Target


def targets(bench: Bench) -> list[Target]:
    """Every reader of files."""
    return [*records(bench), *directory(bench), *lines(bench), *documents(bench), *texts(bench)]
