"""Owns the job that peers run: a fresh interpreter that leaves a file."""

import sys

open(sys.argv[1], "w").close()
