"""Event files: nothing lost, nothing twice, whatever happens to the bytes."""

from __future__ import annotations

import errno
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tenuto.errors import JournalError
from tenuto.lifecycle.events import Event, JobProgressEvent, JobStateChangedEvent
from tenuto.lifecycle.states import JobState
from tenuto.testing import Crash, FakeDisk
from tenuto.workspace.event_writer import EventWriter
from tenuto.workspace.files import DiskFiles
from tenuto.workspace.journal import EventReader, JournalEntry, archive, discard, replay
from tenuto.workspace.layout import JournalPlace
from tenuto.workspace.lines import LINE_LIMIT

PLACE = JournalPlace("/ws/.events/experiments/sweep", "events-")
ARCHIVE = "/ws/experiments/sweep/1/events"
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def progress(step: int) -> Event:
    return JobProgressEvent(timestamp=NOW, job_id="ab12", task_id="task", attempt=1, progress=float(step))


def change() -> Event:
    return JobStateChangedEvent(
        timestamp=NOW, job_id="ab12", task_id="task", owner="experiments/sweep/1", state=JobState.DONE
    )


def write(disk: FakeDisk, *steps: int, writer: str = "w", **options: int) -> EventWriter:
    journal = EventWriter(disk, PLACE, writer, **options)
    for step in steps:
        journal.write(progress(step))
    return journal


def steps_of(entries: list[JournalEntry]) -> list[int]:
    return [int(entry.event.progress) for entry in entries]  # type: ignore[attr-defined]


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


def test_events_are_read_in_order_and_each_once(disk: FakeDisk) -> None:
    reader = EventReader(disk, PLACE)
    assert reader.read() == []
    writer = write(disk, 1, 2)
    assert reader.read() == [JournalEntry("w", 1, progress(1)), JournalEntry("w", 2, progress(2))]
    writer.write(progress(3))
    assert steps_of(reader.read()) == [3]
    assert reader.read() == []
    assert reader.bad_lines == 0


class Metered(FakeDisk):
    """Counts what is read."""

    bytes_read = 0

    def read_range(self, path: str, offset: int, limit: int) -> bytes:
        data = super().read_range(path, offset, limit)
        self.bytes_read += len(data)
        return data


@pytest.mark.parametrize("length", [0, 1, 40, 9000])
def test_a_reader_can_begin_at_the_end_without_reading_what_is_there(length: int) -> None:
    disk = Metered()
    reader = EventReader(disk, PLACE)
    writer = EventWriter(disk, PLACE, "w")
    for step in range(length):
        writer.add(progress(step))
    writer.flush()
    reader.skip()
    assert disk.bytes_read < 300_000, "both ends of the file at most"
    assert reader.read() == []
    writer.write(progress(7))
    write(disk, 8, writer="other").close()
    assert sorted(steps_of(reader.read())) == [7, 8]
    assert steps_of(EventReader(disk, PLACE, cursor=reader.cursor()).read()) == []


def test_a_reader_that_began_at_the_end_reads_the_line_that_was_being_written(disk: FakeDisk) -> None:
    writer = write(disk, 1, 2)
    writer.close()
    path = PLACE.path(0)
    whole = disk.read(path, 1 << 20)
    cut = len(whole) - 10
    disk.replace(path, whole[:cut], durable=False)
    reader = EventReader(disk, PLACE)
    reader.skip()
    assert reader.read() == []
    disk.replace(path, whole, durable=False)
    assert steps_of(reader.read()) == [2]


def test_a_reader_that_begins_at_the_end_finds_archived_files_and_only_its_writers(disk: FakeDisk) -> None:
    write(disk, 1, 2).close()
    write(disk, 3, writer="other").close()
    reader = EventReader(disk, PLACE, archive=ARCHIVE, accept=lambda writer: writer == "w")
    reader.skip()
    archive(disk, PLACE, ARCHIVE)
    assert reader.read() == []
    everybody = EventReader(disk, PLACE, archive=ARCHIVE, cursor=reader.cursor())
    assert steps_of(everybody.read()) == [3]


def test_a_long_line_at_the_end_is_skipped_too(disk: FakeDisk) -> None:
    event = JobProgressEvent(
        timestamp=NOW, job_id="ab12", task_id="task", attempt=1, progress=1.0, desc="x" * (LINE_LIMIT // 2)
    )
    writer = EventWriter(disk, PLACE, "w")
    writer.write(event)
    reader = EventReader(disk, PLACE)
    reader.skip()
    assert reader.read() == []
    writer.write(progress(2))
    assert steps_of(reader.read()) == [2]


def test_nothing_is_created_before_the_first_event(disk: FakeDisk) -> None:
    EventWriter(disk, PLACE, "w").close()
    assert disk.stat(PLACE.directory) is None


def test_every_writer_claims_a_file_of_its_own(disk: FakeDisk) -> None:
    writers = [EventWriter(disk, PLACE, name) for name in "abc"]
    for step in range(3):
        for writer in writers:
            writer.write(progress(step))
    assert disk.list(PLACE.directory) == ["events-0.jsonl", "events-1.jsonl", "events-2.jsonl"]
    entries = EventReader(disk, PLACE).read()
    assert [(entry.writer, entry.sequence) for entry in entries] == [(w, s) for w in "abc" for s in (1, 2, 3)]


def test_a_writer_whose_file_a_rival_made_goes_on_to_the_next_number(disk: FakeDisk) -> None:
    class Rival(FakeDisk):
        def list(self, path: str) -> list[str]:
            names = super().list(path)
            self.list = super().list  # type: ignore[method-assign]
            self.create_exclusive(PLACE.path(0))
            return names

    disk = Rival()
    EventWriter(disk, PLACE, "w").write(progress(1))
    assert disk.stat(PLACE.path(1)) is not None
    assert steps_of(EventReader(disk, PLACE).read()) == [1]


def test_added_events_are_written_together(disk: FakeDisk) -> None:
    reader = EventReader(disk, PLACE)
    writer = write(disk, 1)
    assert [writer.add(progress(step)) for step in (2, 3)] == [2, 3]
    assert steps_of(reader.read()) == [1]
    disk.operations.clear()
    writer.flush()
    assert [operation for operation, _ in disk.operations] == ["append"]
    assert steps_of(reader.read()) == [2, 3]


def test_an_event_that_was_added_comes_before_a_written_one_and_before_the_end(disk: FakeDisk) -> None:
    writer = EventWriter(disk, PLACE, "w")
    writer.add(progress(1))
    writer.write(progress(2))
    writer.add(progress(3))
    writer.close()
    assert steps_of(EventReader(disk, PLACE).read()) == [1, 2, 3]


def test_events_that_are_written_together_fill_one_file_after_the_other(disk: FakeDisk) -> None:
    writer = EventWriter(disk, PLACE, "w", rotate_bytes=400)
    for step in range(20):
        writer.add(progress(step))
    writer.flush()
    assert len(disk.list(PLACE.directory)) > 5
    assert steps_of(EventReader(disk, PLACE).read()) == list(range(20))


def test_an_event_that_cannot_be_written_takes_no_other_with_it(disk: FakeDisk) -> None:
    writer = EventWriter(disk, PLACE, "w")
    writer.add(progress(1))
    with pytest.raises(JournalError):
        writer.add(JobProgressEvent(timestamp=NOW, job_id="a", task_id="t", attempt=1, progress=1j))  # type: ignore[arg-type]
    writer.write(progress(2))
    assert steps_of(EventReader(disk, PLACE).read()) == [1, 2]


def test_a_full_file_is_followed_by_another(disk: FakeDisk) -> None:
    reader = EventReader(disk, PLACE)
    writer = EventWriter(disk, PLACE, "w", rotate_bytes=400)
    seen = []
    for step in range(20):
        writer.write(progress(step))
        seen += steps_of(reader.read())
    assert len(disk.list(PLACE.directory)) > 5
    assert seen == steps_of(EventReader(disk, PLACE).read()) == list(range(20))


def test_many_files_are_read_in_the_order_of_their_numbers(disk: FakeDisk) -> None:
    write(disk, *range(40), rotate_bytes=1)
    assert steps_of(EventReader(disk, PLACE).read()) == list(range(40))


def test_a_reader_can_go_on_where_another_stopped(disk: FakeDisk) -> None:
    writer = write(disk, 1, 2, 3)
    first = EventReader(disk, PLACE)
    assert steps_of(first.read(limit=2)) == [1, 2]
    writer.write(progress(4))
    second = EventReader(disk, PLACE, cursor=first.cursor())
    assert steps_of(second.read(limit=1)) == [3]
    assert steps_of(second.read()) == [4]


def test_a_torn_tail_is_left_until_it_is_whole(disk: FakeDisk) -> None:
    write(disk, 1, 2)
    whole = disk.read(PLACE.path(0), 10_000)
    reader = EventReader(disk, PLACE)
    disk.write(PLACE.path(0), whole[:-5])
    assert steps_of(reader.read()) == [1]
    assert reader.bad_lines == 0
    disk.write(PLACE.path(0), whole)
    assert steps_of(reader.read()) == [2]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_is_sealed_and_skipped(disk: FakeDisk, code: int) -> None:
    writer = write(disk, 1)
    disk.fail_after(0, code)
    with pytest.raises(OSError, match="Errno"):
        writer.write(progress(2))
    writer.write(progress(3))
    reader = EventReader(disk, PLACE)
    assert steps_of(reader.read()) == [1, 3]
    assert reader.bad_lines == 1


def test_a_failed_header_does_not_cost_the_events_after_it(disk: FakeDisk) -> None:
    writer = EventWriter(disk, PLACE, "w")
    disk.make_directory(PLACE.directory)
    disk.fail_after(2, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        writer.write(progress(1))
    writer.write(progress(2))
    assert steps_of(EventReader(disk, PLACE).read()) == [2]


def test_what_a_killed_writer_left_is_read_and_its_file_left_alone(disk: FakeDisk) -> None:
    writer = write(disk, 1)
    disk.crash_after(0)
    with pytest.raises(Crash):
        writer.write(progress(2))
    write(disk, 3, writer="x")
    assert steps_of(EventReader(disk, PLACE).read()) == [1, 3]


def test_garbage_before_between_and_after_costs_only_itself(disk: FakeDisk) -> None:
    write(disk, 1, 2)
    header, one, two = disk.read(PLACE.path(0), 10_000).splitlines(keepends=True)
    garbage = b"\0\xff{}[]\n"
    disk.write(PLACE.path(0), garbage + one + b"\n\n" + garbage * 2 + two.replace(b"ab12", b"ab13") + two)
    reader = EventReader(disk, PLACE)
    assert steps_of(reader.read()) == [1, 2]
    assert reader.bad_lines == 4
    assert header not in disk.read(PLACE.path(0), 10_000)


def test_an_endless_line_is_skipped_in_bounded_pieces(disk: FakeDisk) -> None:
    write(disk, 1)
    content = disk.read(PLACE.path(0), 10_000)
    disk.write(PLACE.path(0), content + b"x" * (3 * LINE_LIMIT) + b"\n" + content)
    reader = EventReader(disk, PLACE)
    assert steps_of(reader.read()) == [1], "the same event again is no new event"
    assert reader.bad_lines >= 1


def test_a_line_that_is_sound_but_no_event_is_counted(disk: FakeDisk) -> None:
    from tenuto.workspace.lines import seal

    write(disk, 1)
    file = disk.open_append(PLACE.path(0))
    for content in ({"w": 3, "s": 4}, {"w": "w", "s": "x", "e": {}}, {"w": "w", "s": 9, "e": {"type": 1}}):
        file.append(seal(content))
    reader = EventReader(disk, PLACE)
    assert steps_of(reader.read()) == [1]
    assert reader.bad_lines == 3


def test_an_event_too_long_for_a_line_is_refused(disk: FakeDisk) -> None:
    writer = write(disk, 1)
    with pytest.raises(JournalError, match="too long"):
        writer.write(
            JobProgressEvent(
                timestamp=NOW, job_id="j", task_id="t", attempt=1, progress=1.0, desc="x" * LINE_LIMIT
            )
        )
    writer.write(progress(2))
    assert steps_of(EventReader(disk, PLACE).read()) == [1, 2]


def test_archiving_moves_the_files_and_the_reader_follows(disk: FakeDisk) -> None:
    reader = EventReader(disk, PLACE, archive=ARCHIVE)
    writer = write(disk, 1, 2, rotate_bytes=300)
    assert steps_of(reader.read(limit=1)) == [1]
    writer.close()
    assert archive(disk, PLACE, ARCHIVE)
    assert disk.list(PLACE.directory) == []
    assert steps_of(reader.read()) == [2]
    assert steps_of(list(replay(disk, ARCHIVE))) == [1, 2]


def test_archiving_twice_overwrites_nothing(disk: FakeDisk) -> None:
    write(disk, 1, writer="a").close()
    archive(disk, PLACE, ARCHIVE)
    write(disk, 2, writer="b").close()
    archive(disk, PLACE, ARCHIVE)
    assert disk.list(ARCHIVE) == ["events-0.jsonl", "events-1.jsonl"]
    assert steps_of(list(replay(disk, ARCHIVE))) == [1, 2]


def test_a_file_moved_between_two_looks_is_neither_lost_nor_read_out_of_order() -> None:
    """Whatever step of a reader the move happens in."""
    for moment in range(40):
        disk = FakeDisk()
        write(disk, *range(6), rotate_bytes=300).close()
        reader = EventReader(disk, PLACE, archive=ARCHIVE)
        disk.before_step(moment, lambda disk=disk: archive(disk, PLACE, ARCHIVE))
        assert steps_of(reader.read() + reader.read()) == list(range(6)), moment


def test_a_reader_that_meets_an_archive_half_done_keeps_the_order() -> None:
    for moment in range(40):
        disk = FakeDisk()
        write(disk, *range(6), rotate_bytes=300).close()
        disk.make_directory(ARCHIVE)
        reader = EventReader(disk, PLACE, archive=ARCHIVE)
        disk.before_step(moment, lambda disk=disk: disk.rename(PLACE.path(0), f"{ARCHIVE}/events-0.jsonl"))
        entries = reader.read()
        disk.heal()
        archive(disk, PLACE, ARCHIVE)
        assert steps_of(entries + reader.read()) == list(range(6)), moment


def test_one_read_is_enough_when_a_file_moves_after_the_listings(disk: FakeDisk) -> None:
    write(disk, *range(6), rotate_bytes=300).close()
    disk.make_directory(ARCHIVE)
    listings = 2
    disk.before_step(listings, lambda: disk.rename(PLACE.path(0), f"{ARCHIVE}/events-0.jsonl"))
    assert steps_of(EventReader(disk, PLACE, archive=ARCHIVE).read()) == list(range(6))


def test_the_files_of_an_older_attempt_can_be_removed_and_their_names_reused(disk: FakeDisk) -> None:
    reader = EventReader(disk, PLACE)
    write(disk, 1, 2, 3, writer="a").close()
    assert steps_of(reader.read()) == [1, 2, 3]
    discard(disk, PLACE)
    write(disk, 4, writer="b")
    assert steps_of(reader.read()) == [4]


def test_a_journal_in_a_crowded_directory_is_found_without_listing_it(disk: FakeDisk) -> None:
    place = PLACE._replace(crowded=True)
    writer = EventWriter(disk, place, "w", rotate_bytes=1)
    for step in range(20):
        writer.write(progress(step))
    disk.remove(place.path(3))
    assert steps_of(EventReader(disk, place).read()) == [step for step in range(20) if step != 3]
    discard(disk, place)
    assert "list" not in {operation for operation, _ in disk.operations}
    assert disk.list(place.directory) == []


def test_events_are_synced_when_asked_but_progress_never(disk: FakeDisk) -> None:
    writer = EventWriter(disk, PLACE, "w", durable=True)
    writer.write(change())
    writer.write(progress(1))
    disk.power_loss()
    assert [entry.sequence for entry in EventReader(disk, PLACE).read()] == [1]


def test_without_durability_nothing_is_synced_until_asked(disk: FakeDisk) -> None:
    writer = EventWriter(disk, PLACE, "w")
    writer.sync()
    writer.write(change())
    assert "sync" not in {operation for operation, _ in disk.operations}
    writer.sync()
    assert ("sync", PLACE.path(0)) in disk.operations


def test_a_missing_directory_a_link_and_strange_files_are_passed_over(disk: FakeDisk) -> None:
    assert list(replay(disk, "/nowhere")) == []
    write(disk, 1)
    disk.symlink("events-0.jsonl", f"{PLACE.directory}/events-7.jsonl")
    disk.make_directory(f"{PLACE.directory}/events-8.jsonl")
    disk.write(f"{PLACE.directory}/events-9.jsonl", b"")
    disk.write(f"{PLACE.directory}/notes.txt", b"")
    assert steps_of(EventReader(disk, PLACE, archive="/nowhere").read()) == [1]


@given(
    damage=st.lists(
        st.tuples(st.sampled_from(["cut", "insert", "nul"]), st.floats(0, 1), st.binary(max_size=20)),
        max_size=4,
    )
)
def test_no_damage_raises_invents_or_repeats_an_event(damage: list[tuple[str, float, bytes]]) -> None:
    disk = FakeDisk()
    write(disk, *range(10))
    data = disk.read(PLACE.path(0), 100_000)
    for kind, where, noise in damage:
        at = int(where * len(data))
        if kind == "cut":
            data = data[:at]
        elif kind == "insert":
            data = data[:at] + noise + data[at:]
        else:
            data = data[:at] + b"\0" * len(noise) + data[at + len(noise) :]
    disk.write(PLACE.path(0), data)
    reader = EventReader(disk, PLACE)
    found = reader.read()
    assert all(entry == JournalEntry("w", entry.sequence, progress(entry.sequence - 1)) for entry in found)
    assert [e.sequence for e in found] == sorted({e.sequence for e in found})
    touched = len(damage) * 2
    if not any(kind == "cut" for kind, *_ in damage):
        assert len(found) >= 10 - touched
    assert reader.read() == []


class JournalMachine(RuleBasedStateMachine):
    """Writers, rotation, failures, archiving and readers in any order: every written event is read once."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = FakeDisk()
        self.writers: list[EventWriter] = []
        self.written: list[int] = []
        self.uncertain: set[int] = set()
        self.reader = EventReader(self.disk, PLACE, archive=ARCHIVE)
        self.seen: list[int] = []
        self.steps = iter(range(10**9))

    @rule()
    def start_writer(self) -> None:
        self.writers.append(EventWriter(self.disk, PLACE, f"w{next(self.steps)}", rotate_bytes=500))

    @precondition(lambda self: self.writers)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        step = next(self.steps)
        data.draw(st.sampled_from(self.writers)).write(progress(step))
        self.written.append(step)

    @precondition(lambda self: self.writers)
    @rule(data=st.data(), after=st.integers(0, 4))
    def fail(self, data: st.DataObject, after: int) -> None:
        step = next(self.steps)
        self.disk.fail_after(after, errno.ENOSPC)
        try:
            data.draw(st.sampled_from(self.writers)).write(progress(step))
            self.written.append(step)
        except OSError:
            self.uncertain.add(step)
        self.disk.heal()

    @rule(limit=st.integers(1, 5))
    def read(self, limit: int) -> None:
        self.seen += steps_of(self.reader.read(limit))

    @rule()
    def hand_over_to_another_reader(self) -> None:
        self.reader = EventReader(self.disk, PLACE, archive=ARCHIVE, cursor=self.reader.cursor())

    @rule()
    def archive(self) -> None:
        for writer in self.writers:
            writer.close()
        self.writers.clear()
        archive(self.disk, PLACE, ARCHIVE)

    @invariant()
    def nothing_twice(self) -> None:
        assert len(self.seen) == len(set(self.seen))

    def teardown(self) -> None:
        while entries := self.reader.read():
            self.seen += steps_of(entries)
        assert set(self.written) <= set(self.seen) <= set(self.written) | self.uncertain
        assert len(self.seen) == len(set(self.seen))


TestJournalMachine = JournalMachine.TestCase


def test_a_journal_works_on_a_real_disk(tmp_path) -> None:
    place = JournalPlace(f"{tmp_path}/live", "events-")
    writer = EventWriter(DiskFiles(), place, "w", rotate_bytes=2000, durable=True)
    reader = EventReader(DiskFiles(), place, archive=f"{tmp_path}/kept")
    for step in range(50):
        writer.write(progress(step))
    seen = steps_of(reader.read(limit=20))
    writer.close()
    archive(DiskFiles(), place, f"{tmp_path}/kept")
    assert seen + steps_of(reader.read()) == list(range(50))
