"""What this machine offers to one job: its cores, its memory, its GPUs.
Asks the kernel and `nvidia-smi`; loads no CUDA.
"""

from __future__ import annotations

import contextlib
import os

from tenuto.launchers.devices import DeviceSort, device_sorts, visible_devices
from tenuto.launchers.requirements import Gpu, Gpus, Host, is_type

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
        with contextlib.suppress(OSError, ValueError), open(path) as stream:
            size = min(size, int(stream.read()))
    return size
