"""The keys of the terminal: what each does, once, for the help screen, the footer and the documentation.
It binds nothing; the views act on keys by the names here.
"""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """Keys, and what they do."""

    keys: tuple[str, ...]
    label: str
    """As it is printed."""
    meaning: str


VIEWS = ("overview", "jobs", "timeline", "graph", "results", "resources", "archive")
"""The views of the keys 1 to 7."""

KEYS = (
    Key(("1", "2", "3", "4", "5", "6", "7"), "1-7", "a view: " + " ".join(VIEWS)),
    Key(("up", "down", "j", "k"), "↑ ↓ j k", "move"),
    Key(("g", "home", "G"), "g G", "to the first, to the last"),
    Key(("pageup", "pagedown"), "PgUp PgDn", "a page up, a page down"),
    Key(
        ("tab", "shift+tab"),
        "Tab",
        "the next part of a view, the next pane of a split window, the next bar of the timeline",
    ),
    Key(("enter",), "Enter", "open"),
    Key(("escape",), "Esc", "back; leave the filter, a question, a zoomed pane"),
    Key(("?",), "?", "this help"),
    Key(("q",), "q", "quit"),
    Key(("/",), "/", "filter the jobs, an error points at the character; in a log: search"),
    Key(("n", "N"), "n N", "log: the next line with the text that is sought, the line before"),
    Key(("s", "S"), "s S", "sort by the next column; turn the order round"),
    Key(("space", "*"), "space *", "mark; mark all that match, or none"),
    Key(("K",), "K", "kill; asks first (y n), naming task, id and attempt"),
    Key(("R",), "R", "retry; asks first"),
    Key(("D",), "D", "clean: delete the directory; asks first"),
    Key(("l",), "l", "log of the job"),
    Key(("e",), "e", "out or err"),
    Key(("F",), "F", "follow the log, or stop"),
    Key(("w",), "w", "why the job is where it is"),
    Key(("v",), "v", "events of the job"),
    Key(("x",), "x", "diff of two marked jobs, or of this one and a marked one; results: the x axis"),
    Key(("y",), "y", "copy the id; in a job, the command; results: the y axis"),
    Key(("z",), "z", "zoom: the pane or the log gets the whole window; timeline: fit"),
    Key(("+", "-"), "+ -", "timeline: zoom in, zoom out; graph: depth around a job"),
    Key(("left", "right"), "← →", "timeline: earlier, later; archive: move"),
    Key(("c",), "c", "the code of a server elsewhere that was started again"),
    Key(("t", "L"), "t L", "results: the task, and a logarithmic x axis"),
    Key(("p",), "p", "results: the best 10 %; archive: the parents of the elite"),
)


def pressed(key: str, character: str | None) -> str:
    """The name of a key by which views act: its character where that can be seen."""
    is_seen = character is not None and len(character) == 1 and character.isprintable() and character != " "
    return character if is_seen and character is not None else key


def keys_table() -> str:
    """The keys as a table for the documentation."""
    rows = [f"| `{key.label}` | {key.meaning} |" for key in KEYS]
    return "\n".join(["| Key | What it does |", "|---|---|", *rows])
