"""Owns the programs of the soak: ``python -m proof.soak [stage|scheduler] JSON``."""

from __future__ import annotations

import json
import sys

from proof.soak import scheduler, stage

_, program, given = sys.argv
if program == "stage":
    stage.main(stage.Soak(**json.loads(given)))
elif program == "scheduler":
    scheduler.main(scheduler.Orders(**json.loads(given)))
else:
    sys.exit(f"there is no program {program!r} of the soak")
