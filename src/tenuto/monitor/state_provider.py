"""The protocol of a state provider: what every view stands on, one method for each route.
Holds no logic. Answers are plain JSON values, so that a provider elsewhere is as good as one here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tenuto.lifecycle.events import Event
from tenuto.monitor import shapes

Listener = Callable[[Event], object]


class StateProvider(Protocol):
    """What a view stands on. Every answer is plain JSON; each method may be called from any thread."""

    def about(self) -> shapes.About: ...

    def overview(self) -> shapes.OverviewJson: ...

    def groups(self, kind: str | None = None, offset: int = 0, limit: int = 100) -> shapes.Groups: ...

    def jobs(
        self,
        group: str | None = None,
        filter: str = "",
        sort: str = "",
        offset: int = 0,
        limit: int = 100,
    ) -> shapes.Jobs: ...

    def job(self, key: str) -> shapes.JobDetail: ...

    def why(self, key: str) -> shapes.WhyJson: ...

    def log(
        self,
        key: str,
        stream: str = "out",
        earlier: int = 0,
        tail: int | None = None,
        start: int | None = None,
        limit: int | None = None,
    ) -> shapes.LogPart: ...

    def graph(self, group: str, around: str | None = None, depth: int = 2) -> shapes.Graph: ...

    def timeline(
        self,
        groups: Sequence[str] = (),
        start: int | None = None,
        end: int | None = None,
        width: int = 400,
        by: str = "slot",
    ) -> shapes.Timeline: ...

    def history(self, group: str, points: int = 100) -> shapes.HistoryJson: ...

    def results(
        self,
        group: str,
        task: str | None = None,
        offset: int = 0,
        limit: int = 1000,
        importance: str | None = None,
    ) -> shapes.Results: ...

    def metrics(
        self,
        keys: Sequence[str] = (),
        group: str | None = None,
        filter: str = "",
        names: Sequence[str] = (),
        points: int = 1000,
        since: float | None = None,
        limit: int = 200,
    ) -> shapes.MetricsJson: ...

    def tokens(self) -> shapes.TokensJson: ...

    def queue(self) -> shapes.QueueJson: ...

    def nodes(self) -> shapes.Nodes: ...

    def archive(self, group: str) -> shapes.ArchiveJson: ...

    def carbon(self, group: str | None = None) -> shapes.Carbon: ...

    def cleanup(self) -> shapes.Cleanup: ...

    def act(
        self, action: str, targets: Sequence[tuple[str, int]], *, dry_run: bool = False, by: str = ""
    ) -> shapes.Outcomes: ...

    def changes(self, since: str | None, wait_s: float) -> shapes.DeltaJson | shapes.ResetJson:
        """All that is newer than the id of a frame; blocks until there is something, `wait_s` at most."""
        ...

    def add_listener(self, listener: Listener) -> None:
        """Call a listener with each event from now on, in a thread of the provider's."""
        ...

    def remove_listener(self, listener: Listener) -> None: ...

    def close(self) -> None: ...
