"""What a job asks of Slurm, as the arguments of sbatch.
Refuses what cannot be said to Slurm; runs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tenuto.errors import InvalidSetting, LauncherNotFound
from tenuto.launchers.instructions import GRACE_S
from tenuto.launchers.requirements import Alternative
from tenuto.launchers.runner.terms import LAST_WORDS_S
from tenuto.settings.slurm import SlurmSettings

_MIB = 1 << 20
_OURS = (
    *("--array", "-a", "--chdir", "-D", "--input", "-i", "--job-name", "-J", "--open-mode", "--output", "-o"),
    *("--parsable", "--requeue", "--no-requeue", "--signal", "--test-only", "--wait", "-W", "--wrap"),
)
"""Options that the launcher itself sets, or that would change what an answer of sbatch means."""
_LAST_WORDS_S = 60
"""How long before an unknown time limit Slurm is to tell the runner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    """What each job of a launcher asks for; None and 0 leave it to Slurm."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time_s: float | None = None
    cpus: int = 1
    memory_bytes: int | None = None
    gpus: int = 0
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("partition", "account", "qos", "constraint"):
            _check_text(name, getattr(self, name))
        object.__setattr__(self, "extra", tuple(self.extra))
        for word in self.extra:
            _check_text("extra", word)
            if _option(word) in _OURS:
                raise InvalidSetting(f"extra must not hold {word!r}: Tenuto sets this option itself")
        _check_number("time_s", self.time_s, 0, exclusive=True)
        _check_number("memory_bytes", self.memory_bytes, 1)
        _check_number("cpus", self.cpus, 1)
        _check_number("gpus", self.gpus, 0)

    @classmethod
    def of(cls, settings: SlurmSettings) -> SlurmOptions:
        """The options that the settings name."""
        return cls(
            partition=settings.partition,
            account=settings.account,
            qos=settings.qos,
            constraint=settings.constraint,
            time_s=settings.time_s,
            cpus=settings.cpus,
            memory_bytes=settings.memory_bytes,
            gpus=settings.gpus,
            extra=settings.extra or (),
        )

    def adapted(self, alternative: Alternative) -> SlurmOptions:
        """These options with what a requirement says; `LauncherNotFound` for what Slurm cannot be asked."""
        problem = unsayable(alternative)
        if problem is not None:
            raise LauncherNotFound(problem)
        gpus = alternative.gpus
        return replace(
            self,
            time_s=self.time_s if alternative.duration_s is None else alternative.duration_s,
            cpus=self.cpus if alternative.cores is None else alternative.cores,
            memory_bytes=self.memory_bytes if alternative.memory_bytes is None else alternative.memory_bytes,
            gpus=self.gpus if gpus is None else gpus.count,
        )

    def arguments(self, grace_s: float = GRACE_S) -> list[str]:
        """The arguments of sbatch, what the job needs first.

        `grace_s`: how long a job may take to stop; Slurm is asked for that, and half a minute, on top.
        """
        words = []
        if self.time_s is not None:
            words.append(f"--time={math.ceil((self.time_s + grace_s + LAST_WORDS_S) / 60)}")
        if self.cpus > 1:
            words.append(f"--cpus-per-task={self.cpus}")
        if self.memory_bytes is not None:
            words.append(f"--mem={-(-self.memory_bytes // _MIB)}M")
        if self.gpus:
            words.append(f"--gpus={self.gpus}")
        for name in ("partition", "account", "qos", "constraint"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"--{name}={value}")
        words += self.extra
        if self.time_s is None:
            words.append(f"--signal=B:USR1@{_LAST_WORDS_S}")
        return words


def unsayable(alternative: Alternative) -> str | None:
    """Why Slurm cannot be asked for an alternative; None if it can."""
    gpus = alternative.gpus
    if gpus is None:
        return None
    if gpus.kind == "mps":
        return "Slurm has no GPUs of the kind mps"
    if gpus.memory_bytes is not None:
        return "the memory of a GPU cannot be asked of Slurm: choose a partition for it in launchers.py"
    return None


def _option(word: str) -> str:
    return word.partition("=")[0] if word.startswith("--") else word[:2]


def _check_text(name: str, value: object) -> None:
    if value is not None and not (isinstance(value, str) and value and value.isprintable()):
        raise InvalidSetting(f"{name} must be printable text, not {value!r:.60}")


def _check_number(name: str, value: object, least: int, *, exclusive: bool = False) -> None:
    if value is None:
        return
    is_number = type(value) is int or (exclusive and type(value) is float and math.isfinite(value))
    if not is_number or value < least or (exclusive and value == least):  # type: ignore[operator]
        raise InvalidSetting(f"{name} must be a number from {least} up, not {value!r:.60}")
