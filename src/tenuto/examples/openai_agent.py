"""An agent for searches of programs that asks any OpenAI-compatible endpoint for a change.
A program of its own, in the standard library alone: it runs in a checkout, where it edits files.

    tenuto evolve --repo . --evaluate 'python evaluate.py' --pass OPENAI_API_KEY \\
        --agent '{python} -m tenuto.examples.openai_agent --model gpt-4o-mini --prices 0.15,0.60'
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

URL = "https://api.openai.com/v1"
KEY = "OPENAI_API_KEY"
_LONGEST_FILE = 100_000
_MOST_FILES = 20
_AGAIN = (408, 409, 425, 429, 500, 502, 503, 504, 529)
_LONGEST_WAIT_S = 60.0
_MILLION = 1_000_000
_BLOCK = re.compile(
    r"(?:^(?P<path>[^\n`]*)\n+)?(?:^```[^\n]*\n)?"
    r"^<{5,9} SEARCH\n(?P<old>.*?)^={5,9}\n(?P<new>.*?)^>{5,9} REPLACE",
    re.MULTILINE | re.DOTALL,
)
_FENCE = re.compile(
    r"(?:^(?P<path>[^\n`]*)\n+)?^```(?P<info>[^\n]*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL
)
FORMS = {
    "diff": "Answer with one or more blocks of this form, each after a line with the path of its file:\n\n"
    "path/of/file.py\n<<<<<<< SEARCH\nlines as they are now, copied exactly\n=======\nlines in their place\n"
    ">>>>>>> REPLACE\n\nSay in one line before them what you change and why.",
    "whole": "Answer with every file that you change, whole, each after a line with its path:\n\n"
    "path/of/file.py\n```\nthe whole file\n```\n\nSay in one line before them what you change and why.",
}


class AgentTrouble(Exception):
    """The agent cannot do its work; the message is what the search shows."""


@dataclass(slots=True)
class Spending:
    """The use so far: tokens, and their cost by the prices of a million of them."""

    prices: tuple[float, float]
    tokens_in: int = 0
    tokens_out: int = 0

    def add(self, usage: Any) -> None:
        usage = usage if isinstance(usage, dict) else {}
        self.tokens_in += int(usage.get("prompt_tokens") or 0)
        self.tokens_out += int(usage.get("completion_tokens") or 0)

    @property
    def cost(self) -> float:
        return (self.tokens_in * self.prices[0] + self.tokens_out * self.prices[1]) / _MILLION


class Endpoint:
    """A server that completes chats."""

    def __init__(self, given: argparse.Namespace, key: str, spending: Spending) -> None:
        self._url = f"{given.url.rstrip('/')}/chat/completions"
        self._key = key
        self._model = given.model
        self._timeout_s = given.timeout_s
        self._tries = given.tries
        self._spending = spending

    def ask(self, messages: list[dict[str, str]], more: dict[str, Any]) -> str:
        """The answer to a chat; raises `AgentTrouble` if none can be had."""
        body = json.dumps({"model": self._model, "messages": messages, **more}).encode()
        for attempt in range(1, self._tries + 1):
            request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
            if self._key:
                request.add_header("Authorization", f"Bearer {self._key}")
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_s) as reply:
                    return self._text(json.load(reply))
            except urllib.error.HTTPError as error:
                said = error.read(1000).decode("utf-8", "replace")
                if error.code not in _AGAIN or attempt == self._tries:
                    raise AgentTrouble(f"{self._url} answered {error.code}: {said[:300]}") from None
                _pause(attempt, error.headers.get("Retry-After"))
            except (OSError, ValueError) as error:
                if attempt == self._tries:
                    raise AgentTrouble(f"{self._url} could not be asked: {error}") from None
                _pause(attempt, None)
        raise AssertionError("every try returns or raises")

    def _text(self, answer: Any) -> str:
        self._spending.add(answer.get("usage") if isinstance(answer, dict) else None)
        try:
            return str(answer["choices"][0]["message"]["content"] or "")
        except (KeyError, IndexError, TypeError):
            raise AgentTrouble(f"{self._url} gave no answer: {json.dumps(answer)[:300]}") from None


def _pause(attempt: int, wanted: str | None) -> None:
    try:
        seconds = float(wanted or "")
    except ValueError:
        seconds = 2.0 ** (attempt - 1)
    threading.Event().wait(min(max(seconds, 0.0), _LONGEST_WAIT_S))


def files_here(named: list[str]) -> dict[str, str]:
    """The texts that the model sees and may change: those named, else the files of the checkout."""
    if not named:
        listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=False).stdout
        named = [name for name in listed.split("\0") if name] or sorted(os.listdir())
    found: dict[str, str] = {}
    for name in named:
        path = Path(name)
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= _LONGEST_FILE:
            try:
                found[name] = path.read_text("utf-8")
            except UnicodeDecodeError:
                continue
        if len(found) == _MOST_FILES:
            break
    if not found:
        raise AgentTrouble("there is no text file to change: name one with --file")
    return found


def changed(answer: str, files: dict[str, str], form: str) -> dict[str, str]:
    """The files as an answer wants them; raises `ValueError`, in words for the model, if it cannot be."""
    result = dict(files)
    pattern = _BLOCK if form == "diff" else _FENCE
    blocks = list(pattern.finditer(answer))
    if not blocks:
        raise ValueError("the answer has no block of the form that was asked for")
    for block in blocks:
        path = _path_of(block, files)
        if form == "whole":
            result[path] = block["text"]
            continue
        old, new = block["old"], block["new"]
        if result[path].count(old) != 1 or not old.strip():
            raise ValueError(f"the SEARCH lines are not exactly once in {path}: {old[:200]!r}")
        result[path] = result[path].replace(old, new)
    if result == files:
        raise ValueError("the answer changes nothing")
    return result


def _path_of(block: re.Match[str], files: dict[str, str]) -> str:
    said = (block["path"] or "").strip().strip("*#:` ")
    if said in files:
        return said
    info = block.groupdict().get("info") or ""
    named = [path for path in files if path in info.split() or said.endswith(path)]
    if len(named) == 1 or len(files) == 1:
        return named[0] if named else next(iter(files))
    raise ValueError(f"{said!r:.80} is none of the files: {', '.join(files)}")


def parsed(words: list[str]) -> argparse.Namespace:
    """The options of the agent."""
    parser = argparse.ArgumentParser(prog="openai_agent", description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--url", default=os.environ.get("OPENAI_BASE_URL", URL), help="of the endpoint")
    parser.add_argument("--key-variable", default=KEY, help="the variable that holds the key")
    parser.add_argument("--form", choices=list(FORMS), default="diff", help="what the model answers with")
    parser.add_argument("--file", action="append", default=[], help="what it may change; repeatable")
    parser.add_argument("--prices", default="0,0", help="of a million tokens: IN,OUT")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--tries", type=int, default=4, help="requests, and answers that cannot be used")
    parser.add_argument("--timeout-s", type=float, default=300.0)
    parser.add_argument("--system", default="You improve a program.", help="what the model is told first")
    given = parser.parse_args(words)
    try:
        into, out = (float(price) for price in given.prices.split(","))
    except ValueError:
        parser.error(f"--prices {given.prices}: give two numbers, as in 0.15,0.60")
    given.prices = (into, out)
    return given


def work(given: argparse.Namespace, spending: Spending) -> str:
    """Asks until an answer can be used, and changes the files; what the model says of it."""
    files = files_here(given.file)
    shown = "\n\n".join(f"{name}\n```\n{text}\n```" for name, text in files.items())
    prompt = Path(os.environ["EVOLVE_PROMPT"]).read_text("utf-8")
    messages = [
        {"role": "system", "content": f"{given.system}\n\n{FORMS[given.form]}"},
        {"role": "user", "content": f"{prompt}\n\n# The files\n\n{shown}"},
    ]
    key = os.environ.get(given.key_variable, "")
    endpoint = Endpoint(given, key, spending)
    more = {} if given.temperature is None else {"temperature": given.temperature}
    trouble = ""
    for _ in range(given.tries):
        answer = endpoint.ask(messages, more)
        try:
            result = changed(answer, files, given.form)
        except ValueError as error:
            trouble = str(error)
            again = f"That cannot be used: {trouble}. Answer again, in the form that was asked for."
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": again}]
            continue
        for name, text in result.items():
            if text != files[name]:
                is_windows = b"\r\n" in Path(name).read_bytes()
                Path(name).write_text(text, "utf-8", newline="\r\n" if is_windows else "\n")
        return next((line.strip() for line in answer.splitlines() if line.strip()), given.model)[:200]
    raise AgentTrouble(f"{given.model}: no answer of {given.tries} could be used: {trouble}")


def main(words: list[str]) -> int:
    """Changes the program once; the exit code."""
    given = parsed(words)
    spending = Spending(given.prices)
    notes, code = "", 0
    try:
        notes = work(given, spending)
    except AgentTrouble as trouble:
        print(trouble, file=sys.stderr)
        code = 1
    if spending.tokens_in or spending.tokens_out or not code:
        report = {"cost": spending.cost, "notes": notes}
        Path(os.environ["EVOLVE_REPORT"]).write_text(json.dumps(report), "utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
