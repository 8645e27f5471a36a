"""The manifest of a submission: which attempts the runners of an external launcher are to run, by index.
Both sides of the format are here: a launcher writes it, a runner seeks its own line; nothing is judged.
"""

import os
from collections.abc import Sequence
from contextlib import suppress

from tenuto.light import NamedTuple, pattern
from tenuto.workspace.json_bytes import from_json, to_json
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import Files
from tenuto.workspace.records import Fields

_HEADER_LIMIT = 64 * 1024
_LINE_LIMIT = 64 * 1024
_PADDING = b" \0\n"
_MOST_SAID = 1 << 16
_PLACE_IN_SCRIPT = pattern(r"^\S*: (eval: )?(line )?\d+: ")
"""Where a shell saw an error, which it says first."""


class Order(NamedTuple):
    """One line: the attempt that one runner is to run."""

    directory: str
    script_name: str
    nonce: str

    @property
    def paths(self) -> JobPaths:
        return JobPaths(self.directory, self.script_name)


class Header(NamedTuple):
    """What holds for all runners of a submission."""

    beat_s: float
    signals: str | None = None
    """The file into which runners write that they began and ended."""
    job: tuple[str, ...] = ()
    """Variables of a runner's environment whose values are the cluster's id of its job; see `task`."""
    reuse_s: float = 0.0
    """How long after its start a runner takes further orders of the submission."""
    orders: int = 0
    """How many there are; known to readers."""
    slots: int = 0
    """Of a pilot, to whose manifest orders are appended: cores' worth of them that it runs at once."""
    time_s: float = 0.0
    """Of a pilot: how long it has."""
    idle_s: float = 0.0
    """Of a pilot: how long after its last order it ends."""
    task: str = "{job}_{index}"
    """How the cluster writes the id of a task, whose index is the last of the values."""

    @property
    def own_job(self) -> str | None:
        """The cluster's id of the job that this process is."""
        *job, last = [""] + [value for name in self.job if (value := os.environ.get(name))]
        if len(job) < 2:
            return last or None
        return self.task.replace("{job}", "_".join(job[1:])).replace("{index}", last)


class ManifestUnreadable(ValueError):
    """The manifest is not there yet, or was not written by a launcher."""


def encode_manifest(header: Header, orders: Sequence[Order]) -> bytes:
    """A JSON header padded to `first` bytes, then a line of `width` bytes for each order.

    A pilot's has none at first; the lines that are appended to it are as long as they are.
    """
    lines = [to_json(list(order)) for order in orders]
    width = max(map(len, lines), default=0) + 1
    fields = {**header._asdict(), "width": width, "orders": len(orders)}
    first = len(to_json({**fields, "first": 0})) + 20
    head = to_json({**fields, "first": first})
    return b"".join([_padded(head, first), *(_padded(line, width) for line in lines)])


def read_header(files: Files, path: str) -> tuple[Header, int, int]:
    """The header, where the orders begin, and how long the line of each is.

    Raises `ManifestUnreadable`, or `OSError` of the disk.
    """
    begin = files.read_range(path, 0, _HEADER_LIMIT).partition(b"\n")[0]
    try:
        fields = Fields(from_json(begin.rstrip(_PADDING)))
        header = Header(
            fields.number("beat_s"),
            fields.optional_text("signals"),
            fields.words("job"),
            fields.number("reuse_s"),
            fields.integer("orders"),
            fields.integer("slots", default=0),
            fields.optional_number("time_s") or 0.0,
            fields.optional_number("idle_s") or 0.0,
            fields.optional_text("task") or Header(0.0).task,
        )
        return header, fields.integer("first", least=1), fields.integer("width", least=1)
    except (ValueError, TypeError) as error:
        raise ManifestUnreadable(f"{path} has no readable header: {error}") from error


def read_order(files: Files, path: str, index: int) -> tuple[Header, Order]:
    """The header and the order of one runner. Raises `ManifestUnreadable`, or `OSError` of the disk."""
    header, first, width = read_header(files, path)
    line = files.read_range(path, first + index * width, min(width, _LINE_LIMIT)).rstrip(_PADDING)
    try:
        directory, script_name, nonce = (str(part) for part in from_json(line))
    except (ValueError, TypeError) as error:
        raise ManifestUnreadable(f"{path} has no readable line {index}: {error}") from error
    return header, Order(directory, script_name, nonce)


def taken_path(path: str) -> str:
    """The file beside a manifest that has a byte for each further order that a runner has looked for."""
    return f"{path.rpartition('/')[0]}/taken"


def setup_path(path: str, index: int | str) -> str:
    """The file beside a manifest that has what the setup of one task said."""
    return f"{path.rpartition('/')[0]}/setup-{index}"


SETUP_OVER = "tenuto: the setup is over"
"""The last line that the script around a runner adds to what a setup said that ended well."""


class SetupFailure(NamedTuple):
    """The facts about a setup that failed."""

    message: str
    """The last line that it said, and its exit code."""
    said: bytes = b""


def setup_failure(files: Files, path: str) -> SetupFailure:
    """Why a setup failed; the script around it has added the exit code to its output, as the last line."""
    said, (*lines, code) = _setup_said(files, path) or (b"", [""])
    if not code:
        return SetupFailure("setup: it failed, and what it said could not be kept")
    last = _PLACE_IN_SCRIPT.sub("", lines[-1]) if lines and code != "0" else "it ended before the job began"
    return SetupFailure(f"setup: {last} (exit code {code})", said)


def setup_cut_off(files: Files, path: str, exit_code: int | None) -> str | None:
    """How a setup ended whose shell was killed, or became another program; None if it ended well, or is none.

    `exit_code`: of the script; None if it was killed by a signal.
    """
    found = _setup_said(files, path)
    if found is None or found[1][-1] == SETUP_OVER:
        return None
    last = next((line for line in reversed(found[1]) if line not in ("", "0")), "")  # its trap adds the 0
    how = "was killed" if exit_code is None else f"ended with exit code {exit_code}"
    return f"setup: it {how} before the job began" + (last and f", after it said: {last}")


def _setup_said(files: Files, path: str) -> tuple[bytes, list[str]] | None:
    """The end of what a setup said, and its lines, of which there is one at least."""
    with suppress(OSError):
        if (found := files.stat(path)) is not None:
            said = files.read_range(path, max(found.size - _MOST_SAID, 0), _MOST_SAID)
            lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
            return said, lines or [""]
    return None


def _padded(text: bytes, size: int) -> bytes:
    return text.ljust(size - 1) + b"\n"
