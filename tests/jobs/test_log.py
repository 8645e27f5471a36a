"""Owns the tails of logs, and what a follower reads after them."""

from __future__ import annotations

from pathlib import Path

from tenuto.jobs.log import Follower, read_tail

from .workspaces import MACHINE


def test_a_tail_is_bounded_and_begins_with_a_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    tail = read_tail(MACHINE.files, str(log), limit=100)
    assert tail is not None
    assert not tail.is_whole
    assert tail.text.splitlines()[0].startswith("line ")
    assert tail.text.endswith("line 9999\n")


def test_the_hole_in_a_log_that_reached_its_limit_is_not_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"head\n" + b"\0" * 5000 + b"tail\n")
    tail = read_tail(MACHINE.files, str(log))
    assert tail is not None
    assert tail.text == "head\ntail\n"


def test_a_follower_goes_on_in_the_file_of_a_new_attempt(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\n")
    follower = Follower(MACHINE.files, str(log), read_tail(MACHINE.files, str(log)))
    assert follower.read() == b""
    log.rename(tmp_path / "log.1")
    assert follower.read() == b""
    log.write_text("second, and longer than the first\n")
    assert follower.read() == b"second, and longer than the first\n"
    assert follower.read() == b""
