"""Owns the proof of the job service by killing: servers and nodes die at every pair of their kill points.

After each death the process is started again: every job is final, each was started at most once.
"""

from proof.service.proving import run

__all__ = ["run"]
