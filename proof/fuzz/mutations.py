"""Owns the making of garbage: bytes flipped, cut and spliced, and JSON whose values are exchanged.
Deterministic: the same random numbers give the same garbage.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from proof.fuzz.targets import CANARY

LONGEST = 8192
WORDS = [
    b"null",
    b"true",
    b"false",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"-0",
    b"0.1",
    b"1" * 400,
    b"{}",
    b"[]",
    b'""',
    b"\\u0000",
    b"\\ud800",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\0",
    b"\n",
    b"\r\n",
    b"[" * 30_000,  # cut to the longest garbage, which Python 3.11 and 3.12 do not follow to its end
    b'{"a":' * 1500,
    b'"attempt":1',
    b'"nonce"',
    b'"version":99',
    b'"reason":"FAILED"',
    b"2026-01-01",
    b"9999-12-31T23:59:59+00:00",
    b"0001-01-01T00:00:00+23:59",
    b'"class"',
    b'"$ref":0',
    b"../../etc/passwd",
    b"!!python/object:os.system",
    b"&a *a",
    b"<<: *a",
    b"'''",
    b'"""',
    b"# x",
    b"[tool.tenuto]",
    b" and ",
    b" or not ",
    b"((((",
    b"~/x/",
    CANARY.encode(),
    CANARY.encode() + b".x",
    b"__import__",
    b"\x1b[31m",
    b"%s%n",
    b"${HOME}",
    b"e+308",
    b"12:34:56",
    b"0o17",
    b"1_0",
]
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    2**70,
    10**400,
    0.5,
    -0.0,
    float("inf"),
    float("-inf"),
    float("nan"),
    "",
    "x",
    "\0",
    "\ud800",
    "é",
    "DONE",
    "FAILED",
    "TIMEOUT",
    "2026-01-01T00:00:00+00:00",
    "2026-01-01",
    "x" * 5000,
    [],
    {},
    [[]],
    {"": {}},
    [None] * 50,
    {"$ref": 0},
    {"$ref": -1},
    ["../x"],
    CANARY,
    [CANARY, "x", "x.py"],
    {"attempt": 1},
    [1, "a", None],
    "../../../x",
    "/etc/passwd",
    "\x1b]0;x\x07",
]


def mutated(data: bytes, random: Random, others: list[bytes]) -> bytes:
    """Something like `data`, but not quite."""
    for _ in range(1 + int(random.expovariate(0.7))):
        if random.random() < 0.5:
            changed = _json(data, random)
            data = _bytes(data, random, others) if changed is None else changed
        else:
            data = _bytes(data, random, others)
    return data[:LONGEST]


def _bytes(data: bytes, random: Random, others: list[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + 1 + int(random.expovariate(0.1)))
    match random.randrange(8):
        case 0:
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:at]
        case 3:
            return data[:at] + random.choice(WORDS) + data[at:]
        case 4:
            return data[:at] + random.choice(WORDS) + data[end:]
        case 5:
            return data[:end] + data[at:]
        case 6:
            other = random.choice(others)
            return data[:at] + other[random.randrange(len(other) + 1) :]
        case _:
            flipped = bytearray(data)
            for _ in range(random.randrange(1, 4)):
                if flipped:
                    flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
            return bytes(flipped)


def _json(data: bytes, random: Random) -> bytes | None:
    """The same JSON with one value exchanged, removed, doubled or renamed; None if it is no JSON."""
    try:
        content = json.loads(data)
        places = _places(content)
    except (ValueError, RecursionError):
        return None
    if not places:
        return None
    holder, key = random.choice(places)
    match random.randrange(5):
        case 0 | 1:
            holder[key] = random.choice(VALUES)
        case 2:
            del holder[key]
        case 3 if isinstance(holder, dict):
            holder[random.choice(["", "x", "version", "class", "type", "c", "unknown"])] = holder[key]
        case _:
            other_holder, other = random.choice(places)
            if isinstance(other_holder, dict) and other in other_holder and other_holder is not holder[key]:
                holder[key] = json.loads(json.dumps(other_holder[other]))
    try:
        return json.dumps(content).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return None


def _places(content: Any) -> list[tuple[Any, Any]]:
    places: list[tuple[Any, Any]] = []
    waiting = [content]
    while waiting and len(places) < 500:
        holder = waiting.pop()
        if isinstance(holder, dict):
            keys: list[Any] = list(holder)
        elif isinstance(holder, list):
            keys = list(range(len(holder)))
        else:
            continue
        places += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys]
    return places
