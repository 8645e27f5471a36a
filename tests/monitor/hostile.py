"""Fifty hostile strings, and a source that has them in every place a person or a job can write.
The tests of the page and of the terminal share them.
"""

from __future__ import annotations

from datetime import timedelta

from tenuto.clock import SystemClock
from tenuto.jobs.row import Group, ServiceRow
from tenuto.jobs.source import Panels
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.testing.fake_source import FakeSource, fake_row

GROUP = "experiments:hostile/1"
HOSTILE = [
    "<img src=x onerror=window.hacked=1>",
    "<script>window.hacked=1</script>",
    "<b>bold</b>",
    "&lt;b&gt;",
    '"><svg onload=window.hacked=1>',
    "' onmouseover='window.hacked=1",
    "javascript:window.hacked=1",
    "data:text/html,<script>1</script>",
    "</title><h1>x",
    "<iframe src=//example.com>",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]52;c;aGk=\x07",
    "\x1b]8;;http://example.com\x1b\\x\x1b]8;;\x1b\\",
    "\x9b31m",
    "\x07\x08",
    "a\rb",
    "a\nb",
    "a\tb",
    "\x7f",
    "[red]x[/red]",
    "[link=http://example.com]x[/link]",
    "{{7*7}}",
    "${window.hacked=1}",
    "`x`",
    "\u202eevil",
    "\u2066a\u2069",
    "\u200b",
    "\u200e",
    "\ufeff",
    "\u2028",
    "\u2029",
    "\u00ad",
    "\U000e0041",
    "\ud800",
    "__proto__",
    "constructor",
    "prototype",
    "toString",
    "hasOwnProperty",
    "valueOf",
    "__defineGetter__",
    "null",
    "undefined",
    "NaN",
    "%00%0a",
    "..",
    "' OR 1=1 --",
    "Z\u0351a\u0321lgo",
    "\U0001f469\u200d\U0001f680",
]
"""Fifty."""


def hostile_source() -> FakeSource:
    source = FakeSource()
    now = SystemClock().now()
    services = tuple(ServiceRow(text, text, text, text, text) for text in HOSTILE)
    group = Group(GROUP, Door.EXPERIMENTS, "<i>h</i>", "\u202e1", "<u>run</u>", True, now, message=HOSTILE[0])
    source.put_group(group._replace(services=services, host=HOSTILE[1]))
    states = [JobState.RUNNING, JobState.DONE, JobState.ERROR, JobState.WAITING]
    for number, text in enumerate(HOSTILE):
        state = states[number % 4]
        row = fake_row(
            GROUP, f"my.{text.replace('/', '|')}", f"{number:04d}{text.replace('/', '|')}", state, attempt=1
        )
        row = row._replace(
            attempt=1,
            message=text,
            tags={text: text},
            owner=text,
            where=text,
            status=text,
            alarm=text,
            progress=0.5,
            progress_desc=text,
            submitted=now - timedelta(minutes=2),
            started=now - timedelta(minutes=1),
            ended=now if state.finished() else None,
            reason=JobFailureStatus.FAILED if state is JobState.ERROR else None,
        )
        source.put(row)
        source.stored[row.key] = {text: text}
        source.values[row.key] = {text: text, "score": number}
        source.logs[row.key, "out"] = "\n".join(HOSTILE).encode("utf-8", "surrogatepass")
    key = row.key
    source.shown = Panels(
        tokens=[
            {
                "name": text,
                "capacity": 2,
                "held": 1,
                "free": 1,
                "holders": [{"pid": 1, "key": key}],
                "waiting": [],
            }
            for text in HOSTILE
        ],
        queue={
            "services": [{"name": text} for text in HOSTILE],
            "users": [{"user": text} for text in HOSTILE],
        },
        nodes=[{"url": text, "services": [text], "state": text, "load": None} for text in HOSTILE],
        cleanup={
            "unowned": [],
            "orphans": {"jobs": 0, "bytes": 0},
            "alarms": [{"key": key, "text": text} for text in HOSTILE],
            "bad_lines": 0,
        },
    )
    return source
