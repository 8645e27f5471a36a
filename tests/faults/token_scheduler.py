"""A scheduler with tokens as a program: submits the jobs it is told to, and says what became of them.

Reads from standard input {root, launcher, slots, tokens: {name: count}, jobs: {id: [seconds, needs]}}
and prints `submitted`, and then, once all ended, one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from builders import Bench
from tokens_for_faults import LAUNCHERS, tokens_in, work_of

from tenuto.workspace.machine import this_machine

DEADLINE_S = 110.0


def main() -> None:
    spec = json.load(sys.stdin)
    root = Path(spec["root"])
    launcher = LAUNCHERS[spec["launcher"]](this_machine(), slots=spec["slots"])
    with Bench(root / "ws", launcher=launcher) as bench:
        tokens = tokens_in(root, spec["tokens"])
        jobs = [
            bench.command(
                job_id,
                *work_of(root, job_id, seconds, {name: (tokens[name].count, n) for name, n in needs.items()}),
                tokens=[tokens[name].dependency(amount) for name, amount in needs.items()],
            )
            for job_id, (seconds, needs) in spec["jobs"].items()
        ]
        print("submitted", flush=True)
        bench.wait(DEADLINE_S)
        print(json.dumps({job.job_id: job.state.name for job in jobs}), flush=True)
        launcher.close()


main()
