"""Owns the proof by failing operations: each system call of the workspace fails once, in every way it can.

After each failure nothing half written may pass for good, and the directory must be usable again.
"""

from proof.nth.proving import run

__all__ = ["run"]
