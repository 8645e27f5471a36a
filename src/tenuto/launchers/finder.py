"""Finds the launcher that satisfies what a job needs: `launchers.py`, this machine, Slurm.
Loaded when the first requirement is met; it starts nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from tenuto.errors import LauncherNotFound, RequirementError
from tenuto.launchers.choice import AUTO, LOCAL, SLURM, Launchers
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.requirements import Alternative, Host, Requirement, unfit
from tenuto.launchers.this_host import this_host
from tenuto.launchers.user_file import FILE_NAME, UserFile
from tenuto.light import shutil
from tenuto.settings import Settings, load_settings, process_environment, user_directory

logger = logging.getLogger("tenuto.launchers")


class Tried(NamedTuple):
    """One launcher that was asked, and its answer."""

    alternative: int | None
    """From 1; None if it was asked for the whole requirement."""
    launcher: str
    fits: bool
    why: str = ""

    def __str__(self) -> str:
        about = "" if self.alternative is None else f"alternative {self.alternative}: "
        return f"{about}{self.launcher}: {self.why}"


class Chosen(NamedTuple):
    """A launcher, and the alternative that it satisfies."""

    launcher: Launcher
    alternative: Alternative
    number: int
    """Of the alternative, from 1."""


class Search(NamedTuple):
    """What came of looking for a launcher."""

    chosen: Chosen | None
    tried: tuple[Tried, ...]


class Finder:
    """Finds launchers by one set of settings; each requirement is looked into once."""

    def __init__(self, settings: Settings, launchers: Launchers, directory: Path | None = None) -> None:
        """`directory`: where `launchers.py` may lie; by default beside the user's `tenuto.toml`."""
        self._settings = settings
        self._launchers = launchers
        self.user_file = UserFile(directory or user_directory())
        self._found: dict[tuple[Requirement, frozenset[str]], Search] = {}
        self._warned: set[Requirement] = set()

    def choose(self, requirement: Requirement, launcher: Launcher | None = None) -> Chosen:
        """The launcher of a job that needs something.

        `launcher`: the one that a script chose; then only its alternative is looked for. Raises
        `LauncherNotFound` if nothing satisfies the requirement.
        """
        if launcher is None and self._settings.launcher == AUTO:
            return self.find(requirement)
        given = self._launchers.named(self._settings.launcher) if launcher is None else launcher
        tried: list[Tried] = []
        chosen = self._fitted(requirement, given, tried)
        if chosen is None:
            _refuse(requirement, tried)
        self._say_passed_over(requirement, tried)
        return chosen

    def find(self, requirement: Requirement, tags: frozenset[str] = frozenset()) -> Chosen:
        """The first launcher that satisfies a requirement, as `auto` finds it; else `LauncherNotFound`."""
        found = self.search(requirement, tags)
        return found.chosen if found.chosen is not None else _refuse(requirement, found.tried)

    def search(self, requirement: Requirement, tags: frozenset[str] = frozenset()) -> Search:
        """Asks, for each alternative, `launchers.py`, if there is one; else this machine, then Slurm."""
        key = requirement, tags
        if key not in self._found:
            self._found[key] = self._searched(requirement, tags)
        return self._found[key]

    def _searched(self, requirement: Requirement, tags: frozenset[str]) -> Search:
        tried: list[Tried] = []
        if self.user_file.exists():
            return Search(self._by_user_file(requirement, tags, tried), tuple(tried))
        host = self._host(requirement)
        for number, alternative in enumerate(requirement.alternatives, 1):
            why = unfit(alternative, host)
            tried.append(Tried(number, LOCAL, why is None, why or ""))
            if why is None:
                self._say_passed_over(requirement, tried)
                return Search(Chosen(self._launchers.named(LOCAL), alternative, number), tuple(tried))
            chosen = self._by_slurm(number, alternative, tried)
            if chosen is not None:
                self._say_passed_over(requirement, tried)
                return Search(chosen, tuple(tried))
        return Search(None, tuple(tried))

    def _by_user_file(
        self, requirement: Requirement, tags: frozenset[str], tried: list[Tried]
    ) -> Chosen | None:
        """What `launchers.py` returns for the first alternative that it has a launcher for.

        It is asked for each one alone: a launcher that it returned for them all would not say for which.
        """
        for number, alternative in enumerate(requirement.alternatives, 1):
            launcher = self.user_file.find(Requirement((alternative,)), tags)
            if launcher is None:
                tried.append(Tried(number, FILE_NAME, False, "it returned None, and has the last word"))
                continue
            # Slurm cannot be asked for the memory of a GPU: the file chose the partition for it.
            gpus = alternative.gpus and replace(alternative.gpus, memory_bytes=None)
            asked = Requirement((replace(alternative, gpus=gpus) if launcher.external else alternative,))
            own: list[Tried] = []
            fitted = self._fitted(asked, launcher, own)
            tried += [one._replace(alternative=number) for one in own]
            if fitted is not None:
                return Chosen(fitted.launcher, alternative, number)
        return None

    def _say_passed_over(self, requirement: Requirement, tried: Iterable[Tried]) -> None:
        """Warns, once, of alternatives that were preferred, and whose memory of a GPU Slurm may well have."""
        passed = []
        for one in tried:
            gpus = requirement.alternatives[(one.alternative or 1) - 1].gpus
            if one.launcher == SLURM and not one.fits and gpus and gpus.memory_bytes is not None:
                passed.append(str(one))
        if passed and requirement not in self._warned:
            self._warned.add(requirement)
            text = "; ".join(passed)
            logger.warning("%s: passed over %s", requirement, text, extra={"action": "passed_over"})

    def _by_slurm(self, number: int, alternative: Alternative, tried: list[Tried]) -> Chosen | None:
        """Slurm, if it is installed here and can be asked for an alternative, and would take it."""
        if shutil.which("sbatch", path=process_environment().get("PATH")) is None:
            return None
        adapted: Any = self._launchers.named(SLURM)
        try:
            launcher = adapted.adapted(alternative)
            why = launcher.why_refused()
        except LauncherNotFound as error:
            why = str(error)
        tried.append(Tried(number, SLURM, why is None, why or ""))
        return Chosen(launcher, alternative, number) if why is None else None

    def _fitted(self, requirement: Requirement, launcher: Launcher, tried: list[Tried]) -> Chosen | None:
        """The first alternative that a given launcher can satisfy."""
        host = None if launcher.external else self._host(requirement, launcher.slots)
        for number, alternative in enumerate(requirement.alternatives, 1):
            fitted = launcher
            why = None if host is None else unfit(alternative, host)
            if host is None:
                try:
                    fitted = launcher.adapted(alternative)
                except LauncherNotFound as error:
                    why = str(error)
            tried.append(Tried(number, launcher.name, why is None, why or ""))
            if why is None:
                return Chosen(fitted, alternative, number)
        return None

    def _host(self, requirement: Requirement, slots: int | None = None) -> Host:
        with_gpus = any(alternative.gpus is not None for alternative in requirement.alternatives)
        return this_host(slots or self._settings.slots, with_gpus=with_gpus)


def find_launcher(*requirements: str | Requirement, tags: Iterable[str] = ()) -> Launcher:
    """The first launcher that satisfies one of several requirements, the preferred one first.

    ::

        launcher = find_launcher("duration=4h & cuda(mem=24G)", "duration=2d & cpu(cores=16)")

    `tags`: words for the `find_launcher` of your `launchers.py`. Raises `RequirementError` for a text that
    cannot be read, and `LauncherNotFound`, with a line for each launcher that was asked.
    """
    settings = load_settings()
    return Finder(settings, Launchers(settings)).find(_joined(requirements), _tags(tags)).launcher


def _joined(requirements: tuple[str | Requirement, ...]) -> Requirement:
    if not requirements:
        raise RequirementError("find_launcher needs a requirement, such as 'cpu(cores=2)'", "", 0)
    joined, *others = map(Requirement.parse, requirements)
    for other in others:
        joined |= other
    return joined


def _tags(tags: Iterable[str]) -> frozenset[str]:
    words = [tags] if isinstance(tags, str) else list(tags)
    if not all(isinstance(word, str) for word in words):
        raise TypeError(f"tags are texts, not {words!r:.60}")
    return frozenset(words)


def _refuse(requirement: Requirement, tried: Iterable[Tried]) -> NoReturn:
    lines = "".join(f"\n  {one}" for one in tried if not one.fits)
    raise LauncherNotFound(f"no launcher satisfies {requirement}:{lines}")
