"""Owns the proof over real clusters: one script, unchanged, on a laptop, Slurm, Grid Engine and hosts by ssh.

Its driver is killed twice, the master is killed, a running task is deleted by hand, and a machine goes. Each
payload must run once, or once more where its machine went; each job must have the right end, told in words.
"""

from proof.clusters.proving import run

__all__ = ["run"]
