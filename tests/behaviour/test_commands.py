"""The JSON of every command, exit codes, and help: what scripts of users rely on."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tests.behaviour.conftest import GOLDEN
from tests.behaviour.places import Monitor, Place, held
from tests.behaviour.tables import COMMANDS, EMPTY, UNKNOWN, lines

Golden = Callable[[str, Any], tuple[str, str]]


def answer(command: str, door: str, arguments: str, place: Callable[[str], Place]) -> Any:
    """What a command answers: its exit code and its JSON, or its words where it prints none."""
    holding = door == "holding"
    asked = place("empty" if holding else door)
    script = held(asked) if holding else None
    more = "" if "--json" in arguments else "--json"
    done = asked.tenuto(*command.split(), *shlex.split(arguments), *more.split())
    if script is not None:
        (asked.root / "release").touch()
        script.communicate()
    try:
        return {"code": done.returncode, "json": asked.normal(json.loads(done.stdout))}
    except ValueError:
        return {
            "code": done.returncode,
            "out": asked.normal.text(done.stdout),
            "err": asked.normal.text(done.stderr),
        }


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_answers_as_its_golden_file_says(
    command: str, place: Callable[[str], Place], monitor: Callable[[str], Monitor], golden: Golden
) -> None:
    asked = {
        f"{door}: {given}": place(door).normal(monitor(door).said)  # it serves until it is ended
        if command == "ui"
        else answer(command, door, given, place)
        for door, given in lines(COMMANDS[command])
    }
    found, kept = golden(f"commands/{command.replace(' ', '-')}", asked)
    assert found == kept


def sentence(place: Place, *arguments: str) -> list[Any]:
    """How a command refuses: its exit code, and what it says on standard error."""
    done = place.tenuto(*arguments)
    return [done.returncode, *place.normal.text(done.stderr).splitlines()]


def crawl(place: Place) -> dict[str, tuple[int, str, list[Any]]]:
    """Command -> exit code and text of its help, how it refuses an option; of all that help leads to."""
    found: dict[str, tuple[int, str, list[Any]]] = {}
    left = [""]
    while left:
        command = left.pop()
        done = place.tenuto(*command.split(), "--help")
        found[command] = done.returncode, done.stdout, sentence(place, *command.split(), "--no-such-option")
        _, _, listed = done.stdout.partition("\nCommands:\n")
        left += [f"{command} {name}".strip() for name in re.findall(r"^  (\w+)  ", listed, re.MULTILINE)]
    return found


def test_every_command_has_help_and_a_golden_file_of_its_json(
    place: Callable[[str], Place], golden: Golden
) -> None:
    commands = crawl(place("empty"))
    assert {command: code for command, (code, *_) in commands.items() if code} == {}
    with_json = {name for name, (_, text, _) in commands.items() if re.search(r"(?m)^  --json ", text)}
    assert with_json == set(COMMANDS), "name it in tests/behaviour/tables.py, and make its golden file"
    refused = {name: refusal for name, (*_, refusal) in commands.items()}
    found, kept = golden("commands/options", refused)
    kept_files = {path.stem.replace("-", " ") for path in (GOLDEN / "commands").glob("*.json")}
    assert set(COMMANDS) <= kept_files <= set(COMMANDS) | {"unknown", "empty", "options"}
    assert found == kept
    assert {code for code, *_ in refused.values()} == {2}


@pytest.mark.parametrize(("name", "table"), [("unknown", UNKNOWN), ("empty", EMPTY)])
def test_a_command_refuses_as_its_golden_file_says(
    name: str, table: str, place: Callable[[str], Place], golden: Golden
) -> None:
    refused = {}
    for line in table.split("\n"):
        if command := line.strip():
            door = (
                "empty"
                if name == "empty"
                else "search"
                if command.startswith(("search", "worker"))
                else "experiments"
            )
            refused[command] = sentence(place(door), *command.split())
    found, kept = golden(f"commands/{name}", refused)
    assert found == kept
