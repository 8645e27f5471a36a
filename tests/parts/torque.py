"""The commands of PBS over Slurm: Debian's slurm-wlm-torque, unpacked by `.ci/run`.

It cannot be installed beside Grid Engine's client, whose commands have the same names.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path("/usr/local/lib/slurm-torque/usr")


def is_unpacked() -> bool:
    return (ROOT / "bin" / "qsub").exists() and (ROOT / "bin" / "sbatch").exists()


def environment() -> dict[str, str]:
    """The variables by which its `qsub qstat qdel` are found, and their libraries."""
    libraries = ROOT / "lib" / "x86_64-linux-gnu"
    return {
        "PATH": f"{ROOT / 'bin'}:{os.environ['PATH']}",
        "PERL5LIB": f"{ROOT / 'share/perl5'}:{next(libraries.glob('perl5/*'), libraries)}",
        "LD_LIBRARY_PATH": str(libraries),
    }
