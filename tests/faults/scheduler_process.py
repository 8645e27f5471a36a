"""A scheduler as a program: submits the commands it is told to, and says what became of them.

Reads from standard input {root, slots, retries, jobs: {job id: command}}; prints `submitted`, and then, once
all ended, one line of JSON for each job.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from builders import WAIT_S, Bench


def main() -> None:
    spec = json.load(sys.stdin)
    with Bench(Path(spec["root"]), slots=spec["slots"]) as bench:
        jobs = [
            bench.command(job_id, *arguments, retries=spec["retries"])
            for job_id, arguments in spec["jobs"].items()
        ]
        print("submitted", flush=True)
        bench.wait(2 * WAIT_S)
        bench.scheduler.drain()
        for job in jobs:
            result = {
                "job_id": job.job_id,
                "state": job.state.name,
                "reason": job.failure_status and job.failure_status.name,
                "message": job.state_record.message,
                "attempt": job.attempt,
                "history": [state.name for state in bench.owner.history[job.job_id]],
            }
            print(json.dumps(result), flush=True)


main()
