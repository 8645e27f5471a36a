"""Owns the list of peers and how each is told to do the work; every one runs two jobs at a time."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from bench.peers.peer import DRIVERS, JOB, Peer, script

PYTHON = sys.executable


def makefile(shape: str, count: int) -> Mapping[str, str]:
    lines = [f"all: {' '.join(f'out/{n}' for n in range(count))}"]
    for number in range(count):
        lines.append(f"out/{number}:{f' out/{number - 1}' if shape == 'chain' and number else ''}")
        lines.append("\t@sleep 600" if shape == "sleep" else f"\t@{PYTHON} {JOB} $@")
    return {"Makefile": "\n".join(lines) + "\n", "out/.keep": ""}


def snakefile(shape: str, count: int) -> Mapping[str, str]:
    before = "lambda w: [f'out/{int(w.n) - 1}'] if int(w.n) else []" if shape == "chain" else "[]"
    command = "sleep 600" if shape == "sleep" else f"{PYTHON} {JOB} {{output}}"
    text = (
        f"rule all:\n    input: expand('out/{{n}}', n=range({count}))\n\n"
        f"rule work:\n    input: {before}\n    output: 'out/{{n}}'\n    shell: {command!r}\n"
    )
    return {"Snakefile": text}


def dodo(shape: str, count: int) -> Mapping[str, str]:
    command = "['sleep', '600']" if shape == "sleep" else f"[{PYTHON!r}, {str(JOB)!r}, f'out/{{n}}']"
    before = "[f'out/{n - 1}'] if n else []" if shape == "chain" else "[]"
    text = (
        "from doit.tools import run_once\n\n\n"
        "def task_work():\n"
        f"    for n in range({count}):\n"
        "        yield {\n"
        "            'name': str(n),\n"
        f"            'actions': [{command}],\n"
        "            'targets': [f'out/{n}'],\n"
        f"            'file_dep': {before},\n"
        "            'uptodate': [run_once],\n"
        "        }\n"
    )
    return {"dodo.py": text, "out/.keep": ""}


def tool(name: str, *options: str) -> list[str]:
    return [name, *options]


def beside(python: Path, name: str, *options: str) -> list[str]:
    """A command of the peer's environment."""
    return [str(python.with_name(name)), *options]


PEERS = (
    Peer(
        "make",
        "make",
        None,
        lambda _python, _shape, _count: tool("make", "-s", "-j2", "all"),
        start_s=0.02,
        job_s=0.012,
        hop_s=0.02,
        files=makefile,
        whole=True,
        remembers=True,
        note="fresh interpreter",
    ),
    Peer(
        "doit",
        "doit",
        "doit",
        lambda python, _shape, _count: beside(python, "doit", "-n", "2", "-v", "0"),
        start_s=0.4,
        job_s=0.014,
        hop_s=0.025,
        files=dodo,
        whole=True,
        remembers=True,
        start={"import": ["python", "-c", "import doit"], "--help": ["doit", "help"]},
        note="fresh interpreter",
    ),
    Peer(
        "Luigi, fork",
        "luigi",
        "luigi",
        script("run_luigi.py", "fork"),
        start_s=0.8,
        job_s=0.006,
        hop_s=0.012,
        remembers=True,
        start={"import": ["python", "-c", "import luigi"], "--help": ["luigi", "--help"]},
        note="forks, without records",
    ),
    Peer(
        "Luigi, fresh",
        "luigi",
        "luigi",
        script("run_luigi.py", "fresh"),
        start_s=0.8,
        job_s=0.02,
        hop_s=0.03,
        note="fresh interpreter in a fork",
    ),
    Peer(
        "Dask, in its workers",
        "dask",
        "distributed",
        script("run_dask.py", "worker"),
        start_s=2.2,
        job_s=0.003,
        hop_s=0.006,
        start={"import": ["python", "-c", "import distributed"], "--help": ["dask", "--help"]},
        note="no process of its own for a job",
    ),
    Peer(
        "Dask, fresh",
        "dask",
        "distributed",
        script("run_dask.py", "fresh"),
        start_s=2.2,
        job_s=0.014,
        hop_s=0.025,
        note="fresh interpreter",
    ),
    Peer(
        "HyperQueue",
        "hyperqueue",
        "hyperqueue",
        script("run_hyperqueue.py"),
        start_s=0.6,
        job_s=0.014,
        hop_s=0.06,
        start={"import": ["python", "-c", "import hyperqueue"]},
        note="fresh interpreter; server and worker of its Python package",
    ),
    Peer(
        "Snakemake",
        "snakemake",
        "snakemake",
        lambda python, _shape, _count: beside(python, "snakemake", "--cores", "2", "--quiet", "all"),
        start_s=2.2,
        job_s=0.04,
        hop_s=0.1,
        files=snakefile,
        whole=True,
        remembers=True,
        start={"--help": ["snakemake", "--help"]},
        note="fresh interpreter, through a shell",
    ),
    Peer(
        "submitit, local",
        "submitit",
        "submitit",
        script("run_submitit.py"),
        start_s=0.8,
        job_s=0.35,
        hop_s=0.7,
        start={"import": ["python", "-c", "import submitit"]},
        note="fresh interpreter",
    ),
    Peer(
        "experimaestro",
        "experimaestro",
        "experimaestro",
        script("run_experimaestro.py"),
        start_s=1.5,
        job_s=0.35,
        hop_s=0.6,
        remembers=True,
        start={
            "import": ["python", "-c", "import experimaestro"],
            "--help": ["experimaestro", "--help"],
        },
        note="fresh interpreter, directory, marker",
    ),
)
OPENEVOLVE = Peer(
    "OpenEvolve, no-op agent",
    "openevolve",
    "openevolve",
    lambda python, _shape, count: [str(python), str(DRIVERS / "search_openevolve.py"), str(count)],
    start_s=3.0,
    job_s=0.1,
    hop_s=0.1,
    note="evaluates in its own processes; no directory or row for a candidate",
)
"""Searches, and runs no jobs: W9 alone measures it."""
ALL = (*PEERS, OPENEVOLVE)
NAMES = tuple(dict.fromkeys(peer.name for peer in ALL))
