"""The list of launchers: what each offers on this machine, or why it cannot be used.
Asks, and starts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tenuto.errors import SettingsError
from tenuto.launchers.choice import SLURM
from tenuto.launchers.plugins import plugin_names
from tenuto.launchers.requirements import Host
from tenuto.launchers.requirements_values import about_size
from tenuto.launchers.this_host import this_host
from tenuto.launchers.user_file import FILE_NAME, UserFile
from tenuto.light import late, shutil
from tenuto.settings import Settings, process_environment, user_directory

if TYPE_CHECKING:
    from tenuto.launchers.slurm import commands
else:
    commands = late("tenuto.launchers.slurm.commands")


class Offer(NamedTuple):
    """One launcher, as a person asks for it."""

    name: str
    usable: bool
    offers: str
    why: str | None
    """Why it cannot be used."""
    default: bool
    """True for the launcher that the settings name."""


def offers(settings: Settings) -> list[Offer]:
    """Every launcher that could run a job."""
    host = _host_text(this_host(settings.slots, with_gpus=True))
    local = [
        Offer(name, True, f"this machine: {host}", None, settings.launcher == name)
        for name in ("warm", "spawn")
    ]
    plugins = [Offer(name, True, "a plug-in", None, settings.launcher == name) for name in plugin_names()]
    return [*local, _slurm(settings), *plugins, _user_file()]


def _slurm(settings: Settings) -> Offer:
    is_default = settings.launcher == SLURM
    if shutil.which("sbatch", path=process_environment().get("PATH")) is None:
        return Offer(SLURM, False, "", "sbatch is not on the PATH", is_default)
    try:
        version = commands.configuration().get("SLURM_VERSION", "?")
        found = commands.partitions()
    except commands.SlurmError as error:
        return Offer(SLURM, False, "", str(error), is_default)
    parts = ", ".join(f"{p.name} ({p.nodes} nodes, {p.cores} cores, {p.time_limit})" for p in found)
    return Offer(SLURM, True, f"Slurm {version}: {parts}", None, is_default)


def _user_file() -> Offer:
    file = UserFile(user_directory())
    if not file.exists():
        return Offer(FILE_NAME, False, "", f"there is no {file.path}", False)
    try:
        file.check()
    except SettingsError as error:
        return Offer(FILE_NAME, False, "", str(error), False)
    return Offer(FILE_NAME, True, f'{file.path} has the last word under launcher = "auto"', None, False)


def _host_text(host: Host) -> str:
    cores = f"{host.cores} slot{'s' if host.cores != 1 else ''}"
    memory = f", {about_size(host.memory_bytes)} of memory" if host.memory_bytes else ""
    gpus = ", ".join(f"{gpu.kind}({about_size(gpu.memory_bytes)})" for gpu in host.gpus)
    return f"{cores}{memory}, {gpus or 'no GPU'}"
