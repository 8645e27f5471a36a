"""The configuration of a private Slurm: quick decisions, loopback, nothing of the machine's own."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import NamedTuple

from tests.parts.ports import free_port

FAST = (
    "sched_interval=1,batch_sched_delay=0,sched_min_interval=0,bf_interval=1,bf_resolution=1,"
    "default_queue_depth=10000,bf_max_job_test=2000,bf_continue,max_rpc_cnt=0,nohold_on_prolog_fail"
)
_ALL = "Nodes=ALL State=UP"
PARTITIONS = (
    f"PartitionName=main {_ALL} Default=YES MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE",
    f"PartitionName=urgent {_ALL} MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF",
    f"PartitionName=cheap {_ALL} MaxTime=60 PriorityTier=1 PreemptMode=CANCEL",
)
DEVICES = ("/dev/full", "/dev/null", "/dev/zero", "/dev/random")


class Shape(NamedTuple):
    """What kind of cluster is wanted."""

    nodes: int = 2
    cpus: int = 4
    memory_mb: int = 4000
    gpus: int = 0
    apart: bool = False
    """Each node in namespaces of its own: another host, as far as a process can tell. Needs root."""
    share: str | None = None
    """A directory that nodes apart see through a FUSE mount of their own, without shared locks."""
    share_delay_s: float = 0.0
    """How late what is written here shows up there."""
    accounting: bool = False
    """slurmdbd and MariaDB, for sacct."""
    memory_groups: bool = False
    """Memory limits by control groups. Needs root."""
    extra: tuple[str, ...] = ()
    """More lines for slurm.conf, which replace those of the same key."""

    @property
    def node_names(self) -> list[str]:
        return [f"n{number}" for number in range(1, self.nodes + 1)]


def user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def write_configuration(here: Path, sockets: Path, shape: Shape, dbd_port: int) -> None:
    """Writes slurm.conf and what it refers to."""
    lines = _common(here, sockets)
    if shape.accounting:
        lines |= {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(dbd_port),
            # slurmdbd's own connections need the socket here; AuthInfo is not asked.
            "AccountingStoragePass": f"{sockets}/s",
            "AccountingStoreFlags": "job_comment",
        }
    if shape.memory_groups:
        lines["TaskPlugin"] = "task/cgroup"
        text = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n"
        (here / "cgroup.conf").write_text(text)
    gres = ""
    if shape.gpus:
        lines["GresTypes"] = "gpu"
        # `Count=` alone is refused, and only character devices are put into CUDA_VISIBLE_DEVICES.
        devices = ",".join(DEVICES[: shape.gpus])
        (here / "gres.conf").write_text(f"AutoDetect=off\nName=gpu File={devices}\n")
        gres = f" Gres=gpu:{shape.gpus}"
    lines |= {key: value for key, _, value in (line.partition("=") for line in shape.extra)}
    (here / "plugstack.conf").touch()
    body = [f"{key}={value}" for key, value in lines.items() if value]
    for node in shape.node_names:
        host = node if shape.apart else "localhost"
        body.append(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs={shape.cpus} "
            f"RealMemory={shape.memory_mb}{gres} State=UNKNOWN"
        )
    (here / "slurm.conf").write_text("\n".join([*body, *PARTITIONS]) + "\n")


def _common(here: Path, sockets: Path) -> dict[str, str]:
    return {
        "SlurmdParameters": "config_overrides",
        "ClusterName": "private",
        "SlurmctldHost": "localhost(127.0.0.1)",
        "SlurmctldPort": str(free_port()),
        "SlurmUser": user(),
        "SlurmdUser": user(),
        "AuthType": "auth/munge",
        # A requeued job waits for its credential to expire: 121 s by default.
        "AuthInfo": f"socket={sockets}/s,cred_expire=5",
        "CredType": "cred/munge",
        "PlugStackConfig": f"{here}/plugstack.conf",
        "StateSaveLocation": f"{here}/state",
        "SlurmdSpoolDir": f"{here}/spool/%n",
        "SlurmctldPidFile": f"{here}/pids/slurmctld",
        "SlurmdPidFile": f"{here}/pids/slurmd.%n",
        "SlurmctldLogFile": f"{here}/log/slurmctld.log",
        "SlurmdLogFile": f"{here}/log/slurmd.%n.log",
        "SlurmctldDebug": "info",
        "SlurmdDebug": "info",
        "MailProg": "/bin/true",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SwitchType": "switch/none",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "DefMemPerCPU": "100",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "task=1",
        "AccountingStorageType": "accounting_storage/none",
        "ReturnToService": "2",
        "SlurmdTimeout": "10",
        "SlurmctldTimeout": "10",
        "InactiveLimit": "0",
        "KillWait": "2",
        "WaitTime": "0",
        "MinJobAge": "300",
        "MaxJobCount": "100000",
        "MaxArraySize": "50001",
        "CompleteWait": "0",
        "EpilogMsgTime": "0",
        "MessageTimeout": "20",
        "JobRequeue": "1",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": FAST,
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "PriorityType": "priority/basic",
    }
