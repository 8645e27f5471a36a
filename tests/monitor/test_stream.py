"""Lines 7 and 14 in small: clients that reconnect, read slowly, come late or come and go see one picture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from proof.descriptors import open_files
from tenuto.lifecycle.states import JobState
from tenuto.monitor.provider import LocalProvider
from tenuto.testing.contracts.providers import GROUP, key
from tenuto.testing.fake_source import FakeSource, fake_row

from .conftest import READY_S, Client, Served, Stream


def picture(client: Client) -> dict[str, tuple[str, int]]:
    jobs = client.get("/api/jobs?limit=1000").json["jobs"]
    return {job["key"]: (job["state"], job["attempt"]) for job in jobs}


class Follower:
    """Keeps a picture as a page does."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seen: dict[str, tuple[str, int]] = {}
        self.stream = client.stream()

    def read_until(self, wanted: str) -> None:
        """Read frames until a job is done."""
        while self.seen.get(wanted, ("", 0))[0] != "done":
            self.apply(*self.stream.frame())

    def apply(self, event: str, data: Any) -> None:
        if event == "end":
            self.reconnect()
        elif event == "reset" or "many" in data:
            self.seen = picture(self.client)
        elif event == "delta":
            self.seen.update({job["key"]: (job["state"], job["attempt"]) for job in data["jobs"]})
            for gone in data["gone"]:
                self.seen.pop(gone["key"], None)

    def reconnect(self) -> None:
        last = self.stream.last
        self.stream.close()
        self.stream = self.client.stream(last=last)


def change(source: FakeSource, number: int) -> None:
    row = fake_row(GROUP, "my.Train", f"n{number}", JobState.RUNNING, attempt=1)
    source.put(row)
    source.put(row._replace(state=JobState.DONE if number % 3 else JobState.ERROR))
    if number % 5 == 4:
        source.remove(GROUP, f"experiments:my.Train/n{number - 2}")


def test_line_07_every_kind_of_client_ends_with_one_picture(served: Served, source: FakeSource) -> None:
    steady, nervous, slow = (Follower(served.client()) for _ in range(3))
    for number in range(100):
        change(source, number)
        if number % 10 == 0:
            nervous.reconnect()
    source.put(fake_row(GROUP, "my.Train", "last", JobState.DONE, attempt=1))
    last = "experiments:my.Train/last"
    late = Follower(served.client())
    for client in (steady, nervous, slow, late):
        client.read_until(last)
        client.stream.close()
        assert client.seen == picture(client.client)
    assert len(steady.seen) == 4 + 100 - 20 + 1


def test_line_07_an_id_of_another_server_begins_anew(served: Served) -> None:
    stream = served.client().stream(last="0123456789ab-7")
    event, data = stream.frame()
    assert event == "reset"
    assert stream.last == f"{data['epoch']}-{data['seq']}"
    stream.close()


def serving(source: FakeSource) -> Served:
    provider = LocalProvider([source])
    assert provider.wait_until_loaded(READY_S)
    return Served(provider)


def test_line_07_a_client_that_meets_a_restarted_server_ends_with_its_picture(source: FakeSource) -> None:
    first = serving(source)
    follower = Follower(first.client())
    change(source, 1)
    follower.read_until("experiments:my.Train/n1")
    last = follower.stream.last
    first.close()
    while follower.stream.frame()[0] != "end":
        pass
    follower.stream.close()
    for number in range(2, 10):
        change(source, number)  # while no server runs
    second = serving(source)
    try:
        follower.client = second.client()
        follower.stream = follower.client.stream(last=last)
        assert follower.stream.frame()[0] == "reset"
        follower.seen = picture(follower.client)
        change(source, 10)
        follower.read_until("experiments:my.Train/n10")
        assert follower.seen == picture(follower.client)
        assert len(follower.seen) == 4 + 10 - 2
    finally:
        follower.stream.close()
        second.close()


def test_more_than_500_rows_are_named_not_sent(served: Served, source: FakeSource) -> None:
    client = served.client()
    stream = client.stream()
    stream.frame()
    for number in range(600):
        source.put(fake_row(GROUP, "my.Train", f"m{number}", JobState.WAITING))
    many: set[str] = set()
    jobs = 0
    while not many and jobs < 600:
        _, data = stream.frame()
        many.update(data.get("many", ()))
        jobs += len(data["jobs"])
    assert many == {GROUP} or jobs == 600
    end = time.monotonic() + 60
    while client.get("/api/jobs?limit=1").json["known"] < 604:  # the last may come after the word of many
        assert time.monotonic() < end
    stream.close()


def test_a_log_is_followed_from_attempt_to_attempt(served: Served, source: FakeSource) -> None:
    stream = served.client().stream(f"/api/events?log={key(1)}:out:4")
    assert next_log(stream)["text"] == "two\nthree\n"
    source.logs[key(1), "out"] += b"four\n"
    assert next_log(stream)["text"] == "four\n"
    source.logs[key(1), "out"] = b"again\n"
    source.put(source.row(key(1))._replace(attempt=2))
    part = next_log(stream)
    assert (part["text"], part["offset"], part["attempt"]) == ("again\n", 0, 2)
    source.put(source.row(key(1))._replace(state=JobState.DONE))
    assert next_log(stream)["ended"]
    stream.close()


def next_log(stream: Stream) -> Any:
    while True:
        event, data = stream.frame()
        assert event != "end"
        if event == "log":
            return data


def test_line_14_clients_that_came_and_went_leave_no_descriptor(served: Served, source: FakeSource) -> None:
    client = served.client()
    before = len(open_files())
    for _ in range(40):
        stream = client.stream()
        stream.frame()
        stream.close()
    change(source, 1)  # a stream notices that its client left when it has something to say
    deaf = client.stream()
    deaf.close()
    for _ in range(200):
        if len(open_files()) <= before + 2:
            break
        change(source, 2)
        client.get("/healthz")
    assert len(open_files()) < before + 20  # threads that other tests left open some too


def test_a_broken_source_harms_nothing_and_heals(served: Served, source: FakeSource, tmp_path: Path) -> None:
    client = served.client()
    source.is_broken = True
    assert client.get("/api/jobs").json["known"] == 4
    source.is_broken = False
    follower = Follower(client)
    source.put(fake_row(GROUP, "my.Train", "after", JobState.DONE, attempt=1))
    follower.read_until("experiments:my.Train/after")
    follower.stream.close()
