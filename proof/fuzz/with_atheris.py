"""Owns the process in which atheris works on one reader: ``with_atheris.py NAME DIRECTORY ...``.
Started by `engines.by_atheris` as a script, so that nothing of Tenuto is loaded before it is instrumented.
What follows the directory is libFuzzer's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["tenuto"]):
    from proof.fuzz.mutations import LONGEST, mutated
    from proof.fuzz.readers import targets
    from proof.fuzz.targets import Bench, play


def main() -> None:
    name, directory, *options = sys.argv[1:]
    bench = Bench(directory)  # libFuzzer ends the process itself; the directory is cleared by its maker
    target = next(each for each in targets(bench) if each.name == name)
    seeds = target.seeds()
    corpus = Path(directory, "corpus")
    corpus.mkdir()
    for number, data in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(data)

    def one_input(data: bytes) -> None:
        play(target, data)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        """Half of the time JSON-aware, half of the time libFuzzer's own."""
        random = Random(seed)
        if random.random() < 0.5:
            return mutated(data, random, seeds)[: min(most, LONGEST)]
        changed: bytes = atheris.Mutate(data, most)
        return changed

    os.chdir(directory)
    atheris.Setup([sys.argv[0], *options], one_input, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
