"""A view of the terminal: it asks the provider off the loop, takes the answer, draws lines, acts on keys.
The protocol of the host, which is the application, is here too, so that views do not know Textual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from tenuto.monitor import shapes
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.cells import Line

T = TypeVar("T")


def group_or_newest(provider: StateProvider, group: str | None, kind: str | None = None) -> str | None:
    """The group that a view is about, by default the newest of a kind."""
    if group is not None:
        return group
    return next((one["group"] for one in provider.groups(kind, limit=1)["groups"]), None)


class Host(Protocol):
    """What the application does for a view."""

    group: str | None
    """The group that views are about; None: all that are followed."""
    now: str
    read_only: bool
    marked: dict[str, shapes.Job]

    def open(self, view: View) -> None:
        """Show a view over this one; Esc comes back."""

    def back(self) -> None: ...

    def go(self, name: str) -> None:
        """Show one of the views."""

    def say(self, sentence: str) -> None:
        """Show a sentence in the line above the footer, until the next key."""

    def renew(self) -> None:
        """Ask again, soon."""

    def later(self, question: Callable[[StateProvider], T], then: Callable[[T], object]) -> None:
        """Ask off the loop, and continue with the answer; a refusal is said."""

    def copy(self, text: str) -> None:
        """Hand a text to the clipboard of the terminal."""

    def act(self, action: str, jobs: Sequence[shapes.Job], more: int = 0) -> None:
        """Ask whether to act on jobs, at the attempts that are shown, and act."""

    def press(self, key: str) -> None: ...


class View:
    """A view that shows nothing; views override what they need."""

    name = ""
    title = ""
    hints = ""
    period_s: float | None = None
    """How often the view asks again although nothing changed."""
    is_dialog = False
    """True if the view is drawn over the foot of the one below."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def ask(self, provider: StateProvider) -> Any:
        """What the view needs; called in a thread."""

    def take(self, answer: Any) -> None:
        """The answer, on the loop."""

    def told(self) -> None:
        """Something changed."""

    def fail(self, error: Exception) -> bool:
        """A refusal; True if the view shows it by itself."""
        return False

    def heading(self) -> Line:
        """The first line, after the name of the program."""
        return []

    def draw(self, room: int, height: int) -> list[Line]:
        """The lines of the view."""
        return []

    def press(self, key: str) -> bool:
        """Act on a key; False if the view has no use for it."""
        return False

    def jobs(self) -> Sequence[shapes.Job]:
        """The jobs that an action is about."""
        return ()

    def current(self) -> shapes.Job | None:
        """The job under the cursor."""
        return None
