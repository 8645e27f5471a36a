"""Owns the model of cleaning: two cleaners against a download, an upload, crashes and a clock that jumps.
When a cleaner rests is decided by the real `CleanerRest`; a job must show what lies on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from proof.models.checker import Step
from tenuto.service.decisions import CleanerRest

PLANTED = {
    "opened late": "a download answers 200 by the row alone, and opens the file afterwards",
    "gone is an error": "a result that is gone when it is opened is an error inside",
    "truncated": "a result is emptied before it is deleted, while a download reads it",
    "files first": "the files go before the row says Cleaned",
    "no sweep": "a directory that a killed cleaner left is never looked at again",
    "young is swept": "a directory without a row is swept, though its upload is not over",
    "no rest": "a cleaner continues after the clock jumped",
    "twice": "two cleaners both count a job as cleaned, since the move is not compared",
}
TICK_S = 100.0
MAX_AGE_TICKS = 2
_WHOLE = 2
"""Pieces of a result."""


class Cleaner(NamedTuple):
    pc: str = "idle"
    """idle, found, cleaned, down"""
    rest_until: int = 0
    """In ticks of the monotonic clock."""
    seen_ahead: int = 0
    """By how much the wall clock was ahead in its last round."""
    has_swept: bool = True


class State(NamedTuple):
    cleaners: tuple[Cleaner, ...] = (Cleaner(), Cleaner())
    row: str = ""
    """"" (not inserted yet), Completed or Cleaned"""
    files: str = "files"
    """files, trash, gone"""
    is_empty: bool = False
    """The result was emptied."""
    read: int = -1
    """Pieces that a download has; -1 before it asked."""
    is_open: bool = False
    answer: str = ""
    """200, 410, 500, or nothing yet"""
    monotonic: int = 0
    ahead: int = 0
    """By how much the wall clock, and the database's, runs ahead, in ticks."""
    ended_at: int = 0
    """When the job ended, on the wall clock."""
    ended_monotonic: int = 0
    cleaned: int = 0
    """How often the job was counted as cleaned."""
    faults: int = 0
    wrong: str | None = None


class Cleaning:
    """One upload that becomes a completed job, one download of it, two servers that clean."""

    name = "cleaning against downloads"

    def __init__(self, *, faults: int = 2, planted: str | None = None) -> None:
        assert planted is None or planted in PLANTED
        self._faults = faults
        self._planted = planted

    def initial(self) -> State:
        return State()

    def broken(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        if state.answer == "500":
            return "a download ended in an error inside"
        if state.answer == "410" and state.row != "Cleaned":
            return "a download was told that the files are gone, and the job is not cleaned"
        if state.row == "Completed" and state.files != "files":
            return "the job is Completed, and its files are gone"
        if state.row == "Cleaned" and state.monotonic - state.ended_monotonic < MAX_AGE_TICKS:
            return "the job was cleaned before its time"
        if state.cleaned > 1:
            return "the job was counted as cleaned twice"
        return None

    def at_rest(self, state: State) -> bool:
        """Cleaned, nothing left on the disk, and the download has an end."""
        over = state.answer == "410" or (state.answer == "200" and state.read == _WHOLE)
        return state.row == "Cleaned" and state.files == "gone" and over

    def show(self, state: State) -> str:
        cleaners = [f"C{i}:{c.pc}" for i, c in enumerate(state.cleaners)]
        clock = f"t{state.monotonic}+{state.ahead}"
        download = f"download:{state.answer or '-'}/{state.read}"
        return " ".join([f"{state.row or '-'}/{state.files}", *cleaners, download, clock])

    def steps(self, state: State) -> Iterator[Step[State]]:
        if state.row == "":
            done = state._replace(
                row="Completed", ended_at=state.monotonic + state.ahead, ended_monotonic=state.monotonic
            )
            lost = state._replace(wrong="an upload was answered, and its files are gone")
            yield Step("the row is inserted", done if state.files == "files" else lost)
        if state.monotonic < (state.ended_monotonic + MAX_AGE_TICKS if state.row else 1):
            yield Step("time passes", state._replace(monotonic=state.monotonic + 1))
        if state.faults == 0 and state.monotonic - state.ended_monotonic < MAX_AGE_TICKS:
            # A cleaner that starts cannot know of a jump before: a jump and a kill are not combined.
            jumped = state._replace(faults=self._faults, ahead=state.ahead + MAX_AGE_TICKS)
            yield Step("the clock jumps", jumped, True)
        if state.faults < self._faults:
            worse = state._replace(faults=state.faults + 1)
            for i, cleaner in enumerate(state.cleaners):
                if cleaner.pc != "down":
                    yield Step(f"C{i} is killed", _with(worse, i, Cleaner("down")), True)
        for i, cleaner in enumerate(state.cleaners):
            yield from getattr(self, f"_{cleaner.pc}")(state, i, cleaner)
        yield from self._download(state)

    # A cleaner, in its round

    def _down(self, state: State, i: int, c: Cleaner) -> Iterator[Step[State]]:
        fresh = Cleaner("idle", 0, state.ahead, has_swept=self._planted == "no sweep")
        yield Step(f"C{i} starts again", _with(state, i, fresh))

    def _idle(self, state: State, i: int, c: Cleaner) -> Iterator[Step[State]]:
        if not c.has_swept:
            # What belongs to a cleaned job goes; what has no row stays, since it is young.
            is_left = state.files != "gone" and (
                state.row == "Cleaned" or (self._planted == "young is swept" and state.row == "")
            )
            swept = state._replace(files="gone") if is_left else state
            yield Step(f"C{i} sweeps", _with(swept, i, c._replace(has_swept=True)))
            return
        wall, now_s = state.monotonic + state.ahead, state.monotonic * TICK_S
        before = CleanerRest((state.monotonic + c.seen_ahead) * TICK_S, now_s, c.rest_until * TICK_S)
        after, _ = before.round(wall * TICK_S, now_s, MAX_AGE_TICKS * TICK_S)
        # Time stands still once the job is old: from then on every rest is over.
        is_old = state.row != "" and state.monotonic >= state.ended_monotonic + MAX_AGE_TICKS
        is_resting = after.is_resting(now_s) and not is_old
        seen = Cleaner("idle", int(after.until // TICK_S) if is_resting else 0, state.ahead)
        if is_resting and self._planted != "no rest":
            if seen != c:
                yield Step(f"C{i} rests", _with(state, i, seen))
        elif state.row == "Completed" and state.ended_at + MAX_AGE_TICKS <= wall:
            yield Step(f"C{i} finds it old", _with(state, i, seen._replace(pc="found")))
        elif seen != c:
            yield Step(f"C{i} finds nothing", _with(state, i, seen))

    def _found(self, state: State, i: int, c: Cleaner) -> Iterator[Step[State]]:
        if self._planted == "files first":
            after = (
                state._replace(files="gone")
                if state.files == "files"
                else state._replace(row="Cleaned", cleaned=state.cleaned + (state.row == "Completed"))
            )
            pc = "found" if state.files == "files" else "idle"
            yield Step(f"C{i} deletes first", _with(after, i, c._replace(pc=pc)))
        elif state.row == "Completed" or self._planted == "twice":
            moved = state._replace(row="Cleaned", cleaned=state.cleaned + 1)
            yield Step(f"C{i} moves the row", _with(moved, i, c._replace(pc="cleaned")))
        else:
            yield Step(f"C{i} was too late", _with(state, i, c._replace(pc="idle")))

    def _cleaned(self, state: State, i: int, c: Cleaner) -> Iterator[Step[State]]:
        if self._planted == "truncated" and not state.is_empty:
            yield Step(f"C{i} empties it", state._replace(is_empty=True))
        elif state.files == "files":
            yield Step(f"C{i} renames it into the trash", state._replace(files="trash"))
        else:
            gone = state._replace(files="gone")
            yield Step(f"C{i} deletes it", _with(gone, i, c._replace(pc="idle")))

    # A download

    def _download(self, state: State) -> Iterator[Step[State]]:
        if state.answer == "":
            yield from self._ask(state)
        elif state.answer == "200" and 0 <= state.read < _WHOLE:
            if not state.is_open:  # only with a planted bug
                opened = state._replace(is_open=True)
                lost = state._replace(wrong="a download that was answered 200 has no file")
                yield Step("the download opens the file", opened if state.files == "files" else lost)
            elif state.is_empty:
                yield Step("the download reads", state._replace(wrong="a download got half of the file"))
            else:
                yield Step("the download reads", state._replace(read=state.read + 1))

    def _ask(self, state: State) -> Iterator[Step[State]]:
        if state.read < 0:
            if state.row == "Completed":
                yield Step("the download sees Completed", state._replace(read=0))
            elif state.row == "Cleaned":
                yield Step("the download sees Cleaned", state._replace(read=0, answer="410"))
        elif self._planted == "opened late":
            yield Step("the download answers 200", state._replace(answer="200"))
        elif state.files == "files":
            yield Step("the download opens the file", state._replace(answer="200", is_open=True))
        else:
            code = "500" if self._planted == "gone is an error" else "410"
            yield Step(f"the download finds no file: {code}", state._replace(answer=code))


def _with(state: State, i: int, cleaner: Cleaner) -> State:
    return state._replace(cleaners=(*state.cleaners[:i], cleaner, *state.cleaners[i + 1 :]))
