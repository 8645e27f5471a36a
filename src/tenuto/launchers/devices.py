"""What this machine offers to one job: its cores, its memory, and the GPUs that this process may use.
Asks the environment and `nvidia-smi`; loads no CUDA, which must not be touched before a fork.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import NamedTuple

from tenuto.errors import TokenError
from tenuto.launchers.requirements import Gpu, Gpus, Host, is_type

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
_SORT_QUERY = ("nvidia-smi", "--query-gpu=index,memory.total,name", "--format=csv,noheader,nounits")
_TAKES_S = 30.0


def visible_devices() -> dict[int, str]:
    """Number of each device on this machine -> its name in ``CUDA_VISIBLE_DEVICES``.

    As in CUDA, the variable counts up to the first entry that is no device.
    """
    given = os.environ.get(_VARIABLE)
    if given is None:
        return _all_devices()
    devices: dict[int, str] = {}
    for name in (part.strip() for part in given.split(",")):
        number = int(name) if name.isdecimal() else _number(name)
        if number is None:
            break
        devices[number] = name
    return devices


def _number(name: str) -> int | None:
    """The number of a device that is named by a part of its id."""
    if not name.startswith("GPU-"):
        if name.startswith("MIG-"):
            raise TokenError(
                f"{name} of {_VARIABLE} is a part of a GPU, which has no number of its own: "
                f"use xp.token with a name, and set {_VARIABLE} in the task"
            )
        return None
    return next((number for number, uuid in _all_devices().items() if uuid.startswith(name)), None)


class DeviceSort(NamedTuple):
    """What a device has, and what its maker calls it."""

    memory_bytes: int = 0
    type: str = ""


def device_sorts() -> dict[int, DeviceSort]:
    """Number of each device on this machine -> its properties."""
    found = {number: told.partition(",") for number, told in _asked(_SORT_QUERY).items()}
    return {
        number: DeviceSort(int(mebibytes) << 20, name.strip())
        for number, (mebibytes, _, name) in found.items()
        if mebibytes.strip().isdecimal()
    }


def _all_devices() -> dict[int, str]:
    return _asked(_QUERY)


def _asked(query: tuple[str, ...]) -> dict[int, str]:
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_TAKES_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}  # no driver, so no device
    rows = (line.split(",", 1) for line in answer.stdout.splitlines() if "," in line)
    return {int(index): value.strip() for index, value in rows}


_GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def this_host(slots: int, *, with_gpus: bool) -> Host:
    """This machine; `slots`: the cores that jobs may have. GPUs are looked for only if they are asked for."""
    return Host(cores=slots, memory_bytes=_memory_bytes(), gpus=_gpus() if with_gpus else (), nodes=1)


def fitting_devices(gpus: Gpus) -> dict[int, str]:
    """Number and name of each visible GPU with the memory and of the type that are asked for."""
    sorts = device_sorts()
    return {
        number: name
        for number, name in visible_devices().items()
        if (sort := sorts.get(number, DeviceSort())).memory_bytes >= (gpus.memory_bytes or 0)
        and is_type(gpus.type, sort.type)
    }


def _gpus() -> tuple[Gpu, ...]:
    sorts = device_sorts()
    return tuple(Gpu("cuda", *sorts.get(number, DeviceSort())) for number in visible_devices())


def _memory_bytes() -> int:
    """The machine's memory, or less where a control group allows less."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _GROUP_LIMITS:
        with suppress(OSError, ValueError), open(path) as stream:
            size = min(size, int(stream.read()))
    return size
