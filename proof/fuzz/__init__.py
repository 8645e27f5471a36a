"""Owns the proof by garbage: every reader of files is fed what nobody wrote, guided by what that reaches.

A reader may answer, or raise an error of our tree. It may not raise anything else, hang, grow, import what a
file names, or take garbage for a finished job.
"""

from proof.fuzz.proving import run

__all__ = ["run"]
