"""Owns the proof of a fleet: two servers on one PostgreSQL and three nodes, under random strikes.

Processes are killed, frozen and stopped, and the database restarts, while users upload, wait and end jobs.
"""

from proof.fleet.proving import run

__all__ = ["run"]
