"""Owns which commands and routes are asked, and where: a line is a door and the arguments.

A command or route that is in no table fails a test. `empty` is a place without a workspace; `new` before a
door means a copy of its place, for a command that changes it; `holding` has a job that runs.
"""

from __future__ import annotations

from collections.abc import Iterator

COMMANDS = {
    "run": """
        empty: --json sweep.py good ws
        new experiments: --json sweep.py good ws
        new experiments: --json sweep.py sweep ws
        """,
    "plan": """
        empty: --json sweep.py good ws
        experiments: --json sweep.py good ws
        experiments: --json sweep.py sweep ws
        """,
    "status": """
        experiments:
        experiments: sweep
        experiments: f1dd26f0
        search:
        search: packing
        search: packing#1
        search: kind=search
        service:
        service: example
        service: example#1
        service: owner=1
        """,
    "top": "experiments:\nsearch:\nservice:",
    "ui": "experiments:\nsearch:\nservice:",
    "jobs": """
        experiments:
        experiments: --all
        experiments: --run sweep --sort=-lr --limit 2 task~Train
        experiments: state=error and reason=failed
        search:
        search: --all --sort id
        search: kind=search and state=error
        search: packing#1
        service:
        service: owner=1
        service: example
        """,
    "results": "experiments:\nexperiments: --sort=-result.loss task~Train\nsearch: --all\nservice:",
    "metrics": "experiments:\nexperiments: 68022df4\nsearch: packing#1\nservice: example#1",
    "graph": "experiments: --run sweep\nexperiments: --run sweep --tasks\nsearch:\nservice:",
    "files": """
        experiments: 68022df4
        experiments: --all 68022df4
        search: packing#1
        service: example#1
        """,
    "logs": """
        experiments: f1dd26f0
        experiments: --err --lines 1 f1dd26f0
        search: packing#1
        service: example#1
        """,
    "why": """
        experiments: f1dd26f0
        experiments: ebecf392
        experiments: edbab96c
        experiments: c2da655e
        experiments: sweep.Hold
        search: packing#1
        service: example#1
        """,
    "adopt": "empty: no-such-workspace",
    "du": "empty:",
    "diff": "experiments: sweep sweep\nexperiments: sweep good",
    "export": "empty: sweep",
    "wait": """
        experiments:
        experiments: sweep
        search: packing
        service: example
        service: example#1
        holding: --timeout 0
        """,
    "kill": """
        experiments: 68022df4
        experiments: --unowned
        search: packing#1
        service: example#1
        holding: --where state=running
        holding: --yes sweep.Hold
        holding: state=running
        """,
    "retry": "new experiments: f1dd26f0 5ef84bc4\nnew experiments: --failed --run sweep\nservice: example#1",
    "pause": "experiments: sweep\nsearch: packing\nservice: example",
    "resume": "experiments: sweep\nsearch: packing\nservice: example",
    "clean": """
        experiments: state=error
        experiments: --orphans
        experiments: --unowned
        experiments: --renamed
        new experiments: --yes state=error
        search: packing#1
        service: kind=service
        """,
    "runs": "experiments:",
    "runs list": "experiments:\nexperiments: --tag paper\nsearch:",
    "runs show": "experiments: sweep",
    "runs prune": "experiments: --keep-done 0 --keep-failed 0\nnew experiments: --yes --keep-done 0 good",
    "runs tag": "new experiments: good paper\nexperiments: nothing paper",
    "runs untag": "new experiments: good paper",
    "evolve": "empty: --json packing.py\nnew search: --json packing.py",
    "search best": "search: packing\nsearch: packing --cell 1,1",
    "search lineage": "search: packing",
    "search workers": "search:",
    "search add": """
        new search: packing -c x=0.5 -c y=0.5
        search: packing -c x=2 -c y=0.5
        search: packing -c x=0.5
        """,
    "search drain": "new search: packing\nsearch: nothing",
    "search export": "search: packing\nsearch: nothing",
    "search priority": "new search: packing 1 5\nsearch: packing 99 5",
    "search remove": "search: packing\nnew search: --yes packing",
    "worker": "search: --once --search packing\nsearch: --once --search nothing",
    "launchers": "empty:",
    "launchers list": "empty:",
    "launchers check": "empty: duration=1h\nempty: cpu(cores=1)\nempty: 'cuda(mem=400G)*8'",
    "launchers test": "empty: spawn",
    "doctor": "experiments:\nservice:",
    "demo": "empty: --dir sweep",
    "submit": "service: sweep.py --service nothing --user 1\nempty: sweep.py --service example",
    "fetch": "service: 1 -o out\nservice: 2 -o out\nservice: 99",
    "follow": "service: 2\nservice: 99",
    "cancel": "service: 1\nservice: 99\nempty: 1",
    "token create": "empty: --user 1 --db db.sqlite --note laptop",
    "token list": "service:",
    "token revoke": "service: 99\nempty: 1",
    "serve": "empty: --host 0.0.0.0 --port 0\nempty: --port 0 --service nothing",
    "node": "empty: --host 0.0.0.0 --port 0 --tls-cert tenuto.toml",
    "node drain": "empty: --url http://127.0.0.1:9",
    "node resume": "empty: --url http://127.0.0.1:9",
    "skill": "empty:",
    "usage": "service:\nservice: --by user",
}
"""Command -> where it is asked, with which arguments; `--json` is added where a line has none."""

MONITOR = {
    "GET /healthz": "experiments:",
    "POST /api/login": "experiments: {'code': 'wrong'}",
    "POST /api/logout": "",  # a test of its own logs out
    "POST /api/codes": "experiments: {}",
    "GET /api/about": "experiments:\nsearch:\nservice:",
    "GET /api/overview": "experiments:\nsearch:\nservice:",
    "GET /api/groups": "experiments:\nsearch:\nservice:\nservice: ?kind=service",
    "GET /api/jobs": """
        experiments: ?filter=task~Train&sort=-lr
        experiments: ?limit=1&offset=3&group={group}
        experiments: ?filter=((
        search: ?group={group}&limit=3
        search: ?filter=state=error
        service:
        """,
    "GET /api/job": """
        experiments: ?key={job}
        experiments: ?key=nothing
        search: ?key={job}
        service: ?key={job}
        """,
    "GET /api/why": "experiments: ?key={job}\nsearch: ?key={job}\nservice: ?key={job}",
    "GET /api/log": """
        experiments: ?key={job}
        experiments: ?key={job}&stream=err&tail=10
        search: ?key={job}
        service: ?key={job}
        """,
    "GET /api/graph": """
        experiments: ?group={group}
        experiments: ?group={group}&around={job}&depth=1
        search: ?group={group}
        """,
    "GET /api/timeline": "experiments: ?width=5\nsearch: ?width=5\nservice: ?width=5",
    "GET /api/history": "experiments: ?group={group}&points=2\nsearch: ?group={group}&points=2",
    "GET /api/results": """
        experiments: ?group={group}&task=sweep.Train
        search: ?group={group}&limit=2
        service: ?group={group}
        """,
    "GET /api/metrics": """
        experiments: ?group={group}
        experiments: ?key={job}
        experiments: ?key=nothing
        search: ?group={group}
        service: ?group={group}
        """,
    "GET /api/tokens": "experiments:\nsearch:",
    "GET /api/queue": "experiments:\nservice:",
    "GET /api/nodes": "experiments:\nservice:",
    "GET /api/cleanup": "experiments:\nsearch:\nservice:",
    "GET /api/archive": "experiments: ?group={group}\nsearch: ?group={group}",
    "GET /api/carbon": "experiments:\nsearch: ?group={group}",
    "GET /api/notes": "experiments:",
    "POST /api/notes": "experiments: {'group': '{group}', 'note': '', 'pinned': False}",
    "GET /api/servers": "experiments:",
    "POST /api/servers": "experiments: {'port': 1}",
    "POST /api/actions": """
        experiments: {'action': 'retry', 'dry_run': True, 'jobs': [{'key': '{job}', 'attempt': 1}]}
        experiments: {'action': 'kill', 'jobs': [{'key': '{job}', 'attempt': 1}]}
        experiments: {'action': 'clean', 'dry_run': True, 'jobs': [{'key': '{job}', 'attempt': 9}]}
        search: {'action': 'kill', 'dry_run': True, 'jobs': [{'key': '{job}', 'attempt': 1}]}
        service: {'action': 'retry', 'dry_run': True, 'jobs': [{'key': '{job}', 'attempt': 1}]}
        service: {'action': 'explode', 'jobs': []}
        """,
    "GET /api/events": "experiments:\nsearch:\nservice:",
}
"""Route of `tenuto ui` -> whose monitor is asked, with which query or body."""

SERVER = {
    "POST /upload": "",  # of the fixture's; those that are refused have a test of their own
    "GET /download/{id}": "1 2 3 4 5 99 x",
    "HEAD /download/{id}": "1 2",
    "GET /download_partial/{id}": "1 4",
    "GET /jobs": "? ?user_id=1&limit=1 ?status=Queued ?status=nothing",
    "GET /services": "?",
    "GET /jobs/{id}": "1 2 3 4 5 99",
    "GET /jobs/{id}/files": "1 4 99",
    "GET /jobs/{id}/files/{path}": "1",
    "POST /terminate/{id}": "1 99",
    "GET /jobs/{id}/logs": "1 1?stream=stderr&offset=2",
    "GET /jobs/{id}/points": "1 99",
    "GET /jobs/{id}/events": "1 2",
    "GET /": "?",
    "GET /health": "?",
    "GET /openapi.json": "?",
    "GET /swagger": "?",
    "GET /usage": "? ?by=service ?by=nothing",
    "GET /metrics": "?",
}
"""Route of `tenuto serve` -> ids or queries, separated by blanks."""

NODE = {
    "GET /": "?",
    "GET /health": "?",
    "POST /submit": "",
    "GET /find/{key}": "key-1 key-9",
    "GET /retrieve/{id}": "1 2 9",
    "GET /retrieve_partial/{id}": "1",
    "GET /logs/{id}": "1 9",
    "GET /points/{id}": "1 9",
    "GET /progress/{id}": "1 9",
    "POST /kill/{id}": "1 9",
    "POST /drain": "",
    "POST /resume": "",
    "GET /load": "?",
    "GET /metrics": "?",
    "GET /openapi.json": "?",
    "GET /swagger": "?",
}
"""Route of `tenuto node`, likewise."""


UNKNOWN = """
    run nothing.py
    plan nothing.py
    top nothing
    jobs --run nothing
    jobs nothing=
    results --run nothing
    metrics nothing
    graph --run nothing
    files nothing
    logs nothing
    why nothing
    wait nothing
    kill nothing
    retry nothing
    clean lr=
    runs list nothing
    runs show nothing
    runs prune nothing
    runs tag nothing paper
    runs untag nothing paper
    evolve nothing.py
    worker --search nothing --once
    search add nothing -c x=1
    search best nothing
    status nothing
    why nothing#1
    pause nothing
    resume nothing
    search drain nothing
    search export nothing
    search priority nothing 1 2
    search remove nothing --yes
    launchers check nothing
    launchers test nothing
    token revoke 99
    completion nothing
    nothing
    """
"""Commands with a name that there is none of, asked in the workspace of experiments, or of searches."""
EMPTY = """
    status
    top --json
    ui --json --port 0
    jobs
    results
    graph
    files x
    logs x
    why x
    wait x
    kill x
    retry --failed
    clean state=error
    runs list
    runs show x
    runs prune
    worker --once
    status x
    pause x
    search workers
    launchers list
    doctor
    token list
    usage
    """
"""Commands that are asked where there is no workspace."""


def lines(text: str) -> Iterator[tuple[str, str]]:
    """The door and the arguments of each line of a table."""
    for line in text.strip().splitlines():
        door, _, arguments = line.strip().partition(":")
        yield door, arguments.strip()
