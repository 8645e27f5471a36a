"""Whatever a job calls itself is text: hostile strings in every place a person or a job can write."""

from __future__ import annotations

import json
import sys
import unicodedata
from itertools import pairwise
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tenuto.jobs.text import safe
from tenuto.testing.fake_source import FakeSource
from tests.monitor.hostile import GROUP, HOSTILE, hostile_source
from tests.monitor.page.conftest import Serve, Visitor, drawn

pytestmark = pytest.mark.slow


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
        "#/timeline",
        f"#/graph?group={group}",
        f"#/results?group={group}",
        "#/resources",
        "#/archive",
    ]
    for view in views:
        visitor.go(page, view)
        drawn(page)
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
    page = visitor.context().new_page()
    page.goto(f"http://127.0.0.1:{serve(FakeSource()).port}/")
    unknown = [
        number for number in range(sys.maxunicode + 1) if unicodedata.category(chr(number)) in ("Cn", "Co")
    ]
    spans = [
        (first + 1, last) for first, last in pairwise([-1, *unknown, sys.maxunicode + 1]) if first + 1 < last
    ]
    known = [number for first, end in spans for number in range(first, end)]
    assert len(known) > 100_000
    script = """async spans => {
      const { safe } = await import("/static/dom.js");
      const changed = [];
      for (const [first, end] of spans) {
        for (let one = first; one < end; one++) {
          const text = safe(String.fromCodePoint(one));
          if (text !== String.fromCodePoint(one)) changed.push([one, text]);
        }
      }
      return changed;
    }"""
    changed = dict(page.evaluate(script, spans))
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
