"""`tenuto skill`: one page for a coding agent that is to use Tenuto."""

from __future__ import annotations

from pathlib import Path

import click

from tenuto.cli.console import print_json
from tenuto.cli.options import json_option
from tenuto.errors import DirectoryUnusable

NAME = "SKILL.md"
PAGE = """\
---
name: tenuto
description: Run experiments and searches with Tenuto, find out why a job failed, wait without polling.
---
# Tenuto

Runs Python tasks as jobs, keeps what each returned, and never runs a task with the same parameters twice. A
killed script, run again, continues where it stopped. Add `--json` to every command below: whole ids, nothing
cut, errors as one JSON object on standard error (`error`, `message`, `remedy`, `exit`).

## Ten commands

| Command | What for |
|---|---|
| `tenuto run --detach FILE` | start a script or YAML file, and come back once it has begun |
| `tenuto wait [NAME]` | sleep until it has ended; never poll in a loop |
| `tenuto status` | runs, searches, services; what runs now |
| `tenuto jobs [FILTER]` | jobs, such as `state=error and lr<0.1` |
| `tenuto why JOB` | why a job is in its state, and what to do next |
| `tenuto logs JOB` | what a job printed; `--err` for standard error |
| `tenuto results` | what jobs returned, the best first |
| `tenuto metrics JOB` | metrics that a job logged over time |
| `tenuto retry JOB` | run a failed job again; `--failed`: all of them |
| `tenuto kill JOB` | stop a job |

JOB is the beginning of an id, `NAME#N` of a search, `SERVICE#N` of a service. A filter compares fields
(`state task reason kind group owner`), tags, parameters and results. `-w DIR` chooses the workspace; by
default the one here.

## Exit codes

0 done; 1 jobs failed; 2 wrong usage; 3 nothing of that name; 4 another run has the experiment; 5 interrupted;
6 still at work when the time of `wait --timeout` was up.

## A sweep

```python file=sweep.py
from tenuto import Param, Task, experiment, log_metrics, tag


class Train(Task):
    lr: Param[float]

    def execute(self):
        for step in range(3):
            log_metrics({"loss": self.lr / (step + 1)}, step=step)
        if self.lr > 0.5:
            raise ValueError("diverged")
        return {"loss": self.lr / 3}


if __name__ == "__main__":
    with experiment("workspace", "sweep"):
        for lr in (0.1, 0.2, 0.9):
            Train.C(lr=tag(lr)).submit()
```

```sh
tenuto run --detach --json sweep.py
tenuto wait --json sweep || true
tenuto results --json
```

## A failure

```sh
job=$(tenuto jobs --json state=error | python -c 'import json, sys; print(json.load(sys.stdin)[0]["id"])')
tenuto why --json $job
tenuto logs --err --lines 5 $job
tenuto metrics --json $job
```

Fix the script, then run it again: what is done is reused.

## Leave, and come back

```sh
sed -i 's/> 0.5/> 5/' sweep.py
tenuto run --detach --json sweep.py
tenuto wait --json --timeout 60 sweep
tenuto results --json --sort result.loss
```

`tenuto search best NAME` shows the best candidate, `tenuto pause NAME` and `tenuto resume NAME` steer it.
"""


@click.command()
@click.option(
    "--install", metavar="DIR", help=f"Write the page as DIR/tenuto/{NAME}, such as .claude/skills."
)
@json_option
def command(install: str | None, as_json: bool) -> None:
    """Print one page for coding agents: what Tenuto is for, ten commands, exit codes, examples."""
    if install is None:
        print_json({"page": PAGE}) if as_json else click.echo(PAGE, nl=False)
        return
    path = Path(install) / "tenuto" / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGE, encoding="utf-8")
    except OSError as error:
        raise DirectoryUnusable(
            f"{path} cannot be written: {error.strerror}; choose another --install DIR"
        ) from None
    print_json({"path": str(path)}) if as_json else click.echo(str(path))
