"""Whatever a job calls itself is text: hostile strings in every place a person or a job can write."""

from __future__ import annotations

import json
import sys
import unicodedata
from datetime import timedelta
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tenuto.clock import SystemClock
from tenuto.jobs.text import safe
from tenuto.lifecycle.owners import Door
from tenuto.lifecycle.source import Group, Panels, ServiceRow
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.testing.fake_source import FakeSource, fake_row
from tests.monitor.page.conftest import Serve, Visitor

pytestmark = pytest.mark.slow

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
            door_state=text,
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
        care={
            "strays": [],
            "orphans": {"jobs": 0, "bytes": 0},
            "alarms": [{"key": key, "text": text} for text in HOSTILE],
            "bad_lines": 0,
        },
    )
    return source


def innocent(page: Page) -> None:
    """Nothing of a hostile string became an element, a link or a script."""
    found = page.evaluate(
        """() => ({
          hacked: window.hacked,
          made: document.querySelectorAll('img, iframe, i, u, script:not([src^="/static/"]), h1 ~ h1').length,
          handlers: [...document.querySelectorAll('*')]
            .filter(one => [...one.attributes].some(attribute => attribute.name.startsWith('on'))).length,
          links: [...document.querySelectorAll('a[href]')].map(one => one.getAttribute('href'))
            .filter(one => !one.startsWith('#') && !one.startsWith('http')),
          polluted: ({}).polluted,
          acting: /[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u202a-\\u202e\\u2066-\\u2069]/
            .test(document.body.innerText),
        })"""
    )
    assert found == {"hacked": None, "polluted": None, "made": 0, "handlers": 0, "links": [], "acting": False}


def test_15_hostile_strings_are_text(serve: Serve, visitor: Visitor) -> None:
    source = hostile_source()
    served = serve(source)
    page = visitor.enter(served)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: visitor.troubles.append(f"a dialog: {dialog.message}"))
    group = quote(GROUP, safe="")
    views = [
        "#/",
        f"#/jobs?group={group}",
        "#/score",
        f"#/graph?group={group}",
        f"#/results?group={group}",
        "#/resources",
        "#/archive",
    ]
    for view in views:
        visitor.go(page, view)
        page.wait_for_timeout(250)
        innocent(page)
    for chunk in source.rows(GROUP):
        for row in chunk[::5]:
            visitor.go(page, f"#/job?key={quote(row.key.encode('utf-8', 'replace').decode(), safe='')}")
            if "\ud800" in row.key:
                continue  # an address cannot name a lone surrogate
            expect(page.locator("[data-field=id]")).to_have_text(safe(row.id))
            expect(page.get_by_role("log").locator(".line").first).to_have_text(HOSTILE[0])
            innocent(page)
    assert all(url.startswith(f"http://127.0.0.1:{served.port}/") for url in requests)


def test_15_safe_is_the_same_in_both_languages(serve: Serve, visitor: Visitor) -> None:
    page = visitor.enter(serve(hostile_source()))
    known = [
        number
        for number in range(sys.maxunicode + 1)
        if unicodedata.category(chr(number)) not in ("Cn", "Co")
    ]
    assert len(known) > 100_000
    script = """async numbers => {
      const { safe } = await import("/static/dom.js");
      return numbers.map(one => [one, safe(String.fromCodePoint(one))])
        .filter(([one, text]) => text !== String.fromCodePoint(one));
    }"""
    changed = dict(page.evaluate(script, known))
    expected = {number: safe(chr(number)) for number in known if safe(chr(number)) != chr(number)}
    assert changed == expected
    joined = page.evaluate(
        """async texts => {
          const { safe } = await import("/static/dom.js");
          return JSON.parse(texts).map(safe);
        }""",
        json.dumps(HOSTILE),
    )
    assert joined == [safe(text) for text in HOSTILE]
