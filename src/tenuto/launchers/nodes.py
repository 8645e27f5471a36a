"""The nodes of a job that asked for several, and the place of this process among its tasks.
Reads variables and files that batch systems and starters of parallel programs give; starts nothing.
"""

import re
import socket
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tenuto.settings import process_environment

NODES, TASKS = "JOB_NODES", "JOB_TASKS"
"""Variables of a job that asked for several: how many it asked for."""
_RANKS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK"),  # torchrun, in its workers
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", ""),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID"),  # the second in steps alone
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", ""),
)
"""Variables of a starter: rank, how many there are, rank on the node, and number of the node."""
_HOST_FILES = ("PBS_NODEFILE", "PE_HOSTFILE", "LSB_DJOB_HOSTFILE")
"""Variables that name a file whose lines begin with a host."""
_BRACKETS = re.compile(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*")


class JobNodes(NamedTuple):
    """Where the tasks of a job run, and which of them this process is."""

    hosts: tuple[str, ...]
    """The first one runs `execute()`."""
    size: int = 1
    """Tasks in all."""
    rank: int = 0
    """Of this process, from 0; 0 in `execute()` itself."""
    local_rank: int = 0
    """Among those of its node."""
    node_rank: int = 0
    """Place of its node in `hosts`."""

    @property
    def tasks_per_node(self) -> int:
        return self.size // len(self.hosts) or 1

    @property
    def address(self) -> str:
        """The host at which the tasks can meet."""
        return self.hosts[0]


def nodes() -> JobNodes:
    """The nodes of this job, in `execute()` and in each process that its starter made.

    ::

        there = tenuto.nodes()
        subprocess.run(["srun", sys.executable, "train.py"], check=True)  # there.size processes

    A job that asked for neither `nodes=` nor `tasks=` has one node and one task; so has other code.
    """
    environment = process_environment()
    for names in _RANKS:
        rank, size, local, node = (_number(environment, name) for name in names)
        if rank is not None and size is not None:
            hosts = _hosts(environment)
            each = size // len(hosts) or 1
            node = rank // each % len(hosts) if node is None else node
            return JobNodes(hosts, size, rank, rank % each if local is None else local, node)
    if TASKS not in environment:
        return JobNodes((socket.gethostname(),))
    return JobNodes(_hosts(environment), _number(environment, TASKS) or 1)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else None


def _hosts(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts of the job, the one of `execute()` first."""
    if (_number(environment, NODES) or 1) > 1:
        if listed := environment.get("SLURM_JOB_NODELIST"):
            return tuple(_expanded(listed))
        for name in _HOST_FILES:
            if name in environment:
                with open(environment[name], encoding="utf-8") as stream:
                    return tuple(dict.fromkeys(line.split()[0] for line in stream if line.strip()))
    return (socket.gethostname(),)


def _expanded(listed: str) -> Iterator[str]:
    """Each host of a list as Slurm writes it, such as `a1,n[01-03,7]`."""
    for part in filter(None, _BRACKETS.findall(listed)):
        yield from _unfolded(part)


def _unfolded(part: str) -> Iterator[str]:
    before, has_brackets, rest = part.partition("[")
    if not has_brackets:
        yield part
        return
    inside, _, after = rest.partition("]")
    for run in inside.split(","):
        first, _, last = run.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield from (f"{before}{number:0{len(first)}}{end}" for end in _unfolded(after))
