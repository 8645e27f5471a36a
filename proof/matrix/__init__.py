"""Owns the proof by killing: real schedulers, runners and payloads die before each of their operations.

After each death another scheduler must end the job: none stuck, none twice at once, nothing unreadable.
Runners inherit the lock of their job, or, under a cluster (`cluster`, `external`), make a claim.
"""

from proof.matrix.proving import run

__all__ = ["run"]
