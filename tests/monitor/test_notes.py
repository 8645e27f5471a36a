"""Owns notes beside groups, and the way to other servers of the same user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.web.http_server import WebServer, open_socket
from tenuto.monitor.web.notes import FILE, Notes
from tenuto.monitor.web.registrations import Registration, register
from tenuto.testing.fake_source import FakeSource

from .conftest import Served


def test_notes_are_kept_in_the_workspace_and_survive_what_people_write_there(tmp_path: Path) -> None:
    notes = Notes(str(tmp_path))
    assert notes.read() == {}
    notes.write("experiments:a/1", "good", pinned=True)
    notes.write("experiments:b/1", "", pinned=True)
    assert Notes(str(tmp_path)).read()["experiments:a/1"] == {"note": "good", "pinned": True}
    assert notes.write("experiments:b/1", "", pinned=False).keys() == {"experiments:a/1"}
    for text in ("", "[]", '{"a": 1, "b": {"note": 5}}', "\x00"):
        (tmp_path / FILE).write_text(text)
        assert set(notes.read()) <= {"b"}
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).symlink_to("/etc/passwd")
    assert notes.read() == {}


def test_a_note_is_written_over_http_and_refused_where_the_server_only_shows() -> None:
    provider = LocalProvider([FakeSource()], read_only=True)
    served = Served(provider)
    try:
        answer = served.client().ask("POST", "/api/notes", {"group": "g", "note": "x", "pinned": False})
        assert (answer.status, answer.json["error"]) == (403, "read_only")
    finally:
        served.close()


def test_a_note_needs_a_group(served: Served, source: FakeSource) -> None:
    told = {"group": "experiments:no/1", "note": "x", "pinned": False}
    assert served.client().ask("POST", "/api/notes", told).status == 404
    assert (
        served.client().ask("POST", "/api/notes", {**told, "note": ""}).status == 200
    )  # of a group that is gone
    known = source.groups()[0].group
    assert known in served.client().ask("POST", "/api/notes", {**told, "group": known}).json["notes"]


@pytest.mark.parametrize(("host", "read_only", "seen"), [("127.0.0.1", False, 1), ("127.0.0.1", True, 0)])
def test_other_servers_of_the_user_are_offered_where_that_gives_no_more_rights(
    tmp_path: Path, host: str, read_only: bool, seen: int
) -> None:
    register(tmp_path, Registration(9, 1, "127.0.0.1", "/other", "secret"))
    register(tmp_path, Registration(10, 1, "192.0.2.1", "/elsewhere", "secret"))
    provider = LocalProvider([FakeSource()], read_only=read_only)
    with open_socket(host, 0) as listening:
        server = WebServer(provider, listening, host=host, registry=tmp_path)
        found = [one.workspace for one in server.other_servers()]
    provider.close()
    assert found == ["/other"][:seen]
    assert "secret" not in json.dumps(found)
