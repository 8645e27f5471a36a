"""Owns the soak: three schedulers on one workspace, killed and stopped at random, with real processes.

A plan (`plan`) says what is submitted; the jobs themselves write down what they did (`oracle`);
`strikes` strikes, `stage` starts again what was struck, and `judge` asks only the ledger, the kernel and the
files.
"""

from __future__ import annotations

from proof.report import Options, Report


def run(options: Options) -> Report:
    """Soak for as long as was asked."""
    # Here, because the jobs of the soak import this package, too, and are to be light.
    from proof.soak.proving import prove  # noqa: PLC0415

    return prove(options)
