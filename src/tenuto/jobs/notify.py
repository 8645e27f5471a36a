"""Notices to a person about a run or a search: by a command or a POST, after the fact, never in the way.
What could not be sent is in the log of the driver; secrets of an address are never shown.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import tempfile
import threading
from base64 import b64encode
from queue import SimpleQueue
from shlex import split
from shutil import which
from typing import TYPE_CHECKING, NamedTuple

from tenuto.clock import SystemClock
from tenuto.errors import InvalidValue
from tenuto.light import late, pattern
from tenuto.settings import process_environment
from tenuto.settings.declaration import HIDDEN_URL, Unfit
from tenuto.settings.tree import NotifySettings
from tenuto.settings.urls import HiddenUrl

if TYPE_CHECKING:
    import urllib.parse as urls
    import urllib.request as requests
else:
    requests, urls = late("urllib.request"), late("urllib.parse")

TRIES = 3
EACH_S = 10.0
PAUSE_S = 1.0
"""Between two tries."""
APART_S = 60.0
"""Between two notices of one kind about one group."""
CLOSE_S = 35.0
_MOST_READ = 65_536
_SCHEME = pattern(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
_SLACK = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""What Slack takes for a link or a mention."""
_KEPT = "%:/?#[]@!$&'()*+,;=~"
"""Characters with a meaning in an address; all others that are not plain are quoted."""

log = logging.getLogger("tenuto.notify")


class Notice(NamedTuple):
    """What a person is told."""

    kind: str
    title: str
    text: str
    group: str
    state: str
    failed: int = 0
    url: str = ""


def given_on_command_line(text: str | None) -> NotifySettings | None:
    """The settings that ``--notify`` means: an address, or a command with ``{title}`` and ``{text}``."""
    if text is None:
        return None
    if _SCHEME.match(text):
        try:
            return NotifySettings(url=HIDDEN_URL.take(text))
        except Unfit:
            shown = HiddenUrl(text)
            raise InvalidValue(
                f"--notify: {shown} is no address for a POST: give http(s)://HOST/..."
            ) from None
    try:
        words = tuple(split(text))
    except ValueError as error:
        raise InvalidValue(f"--notify: {text!r:.100} is no command: {error}") from None
    if not words:
        raise InvalidValue(
            "--notify takes an address, https://..., or a command: 'notify-send {title} {text}'"
        )
    if which(words[0], path=process_environment().get("PATH")) is None:
        raise InvalidValue(
            f"--notify: there is no command {words[0]!r:.100} here: install it, or give its path"
        )
    return NotifySettings(command=words)


def shown_target(settings: NotifySettings) -> str:
    """Where notices go, for people: of an address only its host, since the rest may be a secret."""
    if settings.url is not None:
        return str(settings.url)
    return settings.command[0] if settings.command else ""


class Notifier:
    """Sends notices about the groups of one driver, in a thread of its own that begins with the first."""

    def __init__(self, settings: NotifySettings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._queue: SimpleQueue[Notice | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._told: dict[tuple[str, str], float] = {}

    def tell(self, notice: Notice) -> None:
        """Has a notice sent, unless its kind is not wanted or was told of the group within a minute."""
        key, now = (notice.group, notice.kind), self._clock.monotonic()
        if notice.kind not in self._settings.on:
            return
        if now - self._told.get(key, float("-inf")) < APART_S:
            return
        self._told[key] = now
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_on, name="notify", daemon=True)
            self._thread.start()
        self._queue.put(notice)

    def close(self) -> None:
        """Waits until all was sent or given up."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(CLOSE_S)
            if self._thread.is_alive():
                log.warning("notices could not be sent within %g s and are given up", CLOSE_S)

    def _send_on(self) -> None:
        while (notice := self._queue.get()) is not None:
            problem = send(self._settings, notice)
            if problem is not None:
                log.warning("a notice (%s of %s) could not be sent: %s", notice.kind, notice.group, problem)


def send(settings: NotifySettings, notice: Notice) -> str | None:
    """Sends one notice, trying three times; why it could not be sent, or None."""
    problem: str | None = None
    for attempt in range(TRIES):
        if attempt:
            threading.Event().wait(PAUSE_S)
        problem = _send_once(settings, notice)
        if problem is None:
            return None
    return problem


def _send_once(settings: NotifySettings, notice: Notice) -> str | None:
    problem: str | None = None
    if settings.command:
        problem = _run(settings.command, notice)
    if settings.url is not None:
        problem = _post(settings, notice) or problem
    return problem


def _run(command: tuple[str, ...], notice: Notice) -> str | None:
    fields = {name: str(value) for name, value in notice._asdict().items()}
    words = [re.sub(r"\{(\w+)\}", lambda found: fields.get(found[1], found[0]), word) for word in command]
    with tempfile.TemporaryFile() as said:  # a pipe would be awaited until the command's children end
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                timeout=EACH_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{command[0]} took longer than {EACH_S:g} s"
        except (OSError, ValueError) as error:
            return f"{command[0]} cannot be run: {getattr(error, 'strerror', None) or error}"
        said.seek(0)
        last = (said.read(_MOST_READ).decode(errors="replace").strip().splitlines() or [""])[-1]
    return f"{command[0]} ended with exit code {done.returncode}: {last}" if done.returncode else None


def _post(settings: NotifySettings, notice: Notice) -> str | None:
    assert settings.url is not None
    where = shown_target(settings)
    if settings.format == "slack":
        words = f"*{notice.title}*\n{notice.text}"
        body: dict[str, object] = {"text": words.translate(_SLACK)}
    else:
        names = ("title", "text", "group", "state", "failed", "url")
        body = {name: getattr(notice, name) for name in names}
    address, headers = _address(settings.url.reveal())
    try:
        request = requests.Request(address, json.dumps(body).encode(), headers, method="POST")
        with requests.urlopen(request, timeout=EACH_S) as answer:
            answer.read(1)
            if answer.geturl() != address:  # followed by a GET, which tells nothing
                return f"{where} leads elsewhere: give the address that it leads to"
    except Exception as error:  # noqa: BLE001  whatever a network does, a driver continues
        code, reason = getattr(error, "code", None), getattr(error, "reason", error)
        cause = getattr(reason, "strerror", None) or type(reason).__name__
        return f"{where} answered {code}" if code else f"{where} cannot be reached: {cause}"
    return None


def _address(url: str) -> tuple[str, dict[str, str]]:
    """An address as it is asked for, and the headers: a user and a password go there, as in `curl`."""
    headers = {"Content-Type": "application/json"}
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    user, at, host = host.rpartition("@")
    if at:
        headers["Authorization"] = f"Basic {b64encode(urls.unquote(user).encode()).decode()}"
    return urls.quote(f"{scheme}://{host}{slash}{path}", safe=_KEPT), headers


def run_notice(name: str, run_id: str, state: str, done: int, failed: int, message: str | None) -> Notice:
    """The notice that a run has ended."""
    text = f"{done} done, {failed} failed" + (f": {message}" if message else "")
    return Notice("ended", f"{name}: {state}", text, f"{name}/{run_id}", state, failed)
