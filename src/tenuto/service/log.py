"""The log lines of servers and nodes: an action and its fields, as text or as a JSON object a line.
User text is escaped; tokens, cookies and query strings are never given to it.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

logger = logging.getLogger("tenuto.service")

ACTIONS: Mapping[str, str] = MappingProxyType(
    {
        "ready": "requests are answered from now on",
        "draining": "asked to stop; what was begun may finish",
        "stopped": "the process ends",
        "upload_accepted": "an upload became a job",
        "uploaded": "who uploaded a job: token's id and address, as in the next four",
        "downloaded": "who fetched a result, or one file of it",
        "terminated": "who asked for the end of a job",
        "token_made": "a token was made, on the machine of the server",
        "token_revoked": "a token was made useless, on the machine of the server",
        "upload_refused": "an upload was refused, with the code of the error",
        "claimed": "jobs were taken from the queue to be sent",
        "sent": "a node has a job",
        "send_failed": "a job could not be sent, or the node did not answer",
        "moved": "a job changed its state",
        "retrieved": "a result was fetched from its node",
        "retrieve_failed": "a node could not be asked, or its result was damaged",
        "cleaned": "the files of old jobs were removed",
        "swept": "a directory that belongs to no job was removed",
        "kept": "directories of jobs that this database does not know are kept for now: was it restored?",
        "restored": "the database is older than its data: it was restored; numbers continue after the last",
        "callback_delivered": "the address that wants to know of the end of a job answered with 2xx",
        "callback_waiting": "it did not, and why; it is called again later",
        "callback_given_up": "it did not, and is not called any more",
        "node_up": "a node answers",
        "node_down": "a node is left alone for a while, after failures",
        "node_left": "a node that has jobs is in the settings no more: it is asked for them, and gets none",
        "payload_taken": "the node has the files of a payload",
        "payload_ended": "a payload ended, with its state",
        "packing_waits": "there is no room for a result; packing is tried again",
        "packing_stopped": "files of a payload are not packed: its end was asked for, or the disk is full",
        "disk_full": "the disk of the node is nearly full; the payload with the largest directory is stopped",
        "limits": "what jobs of a service may have here; `memory_of`: all processes of one together, or each",
        "sandbox_failed": "a sandbox did not start; it is tried again, three times in all",
        "reloaded": "the settings were read anew: services, their nodes and quotas",
        "reload_failed": "the settings could not be read anew; nothing was changed",
        "drained": "the node takes no more payloads, until it is told to; so many have not ended",
        "resumed": "the node takes payloads again",
        "client_gone": "a client went away before its request was answered",
        "clock_jumped": "the clock of the database ran ahead; nothing is cleaned for as long as that",
        "token_refused": "a request came without a valid token, from this address",
        "stage_failed": "a stage raised; it continues",
        "not_sandboxed": "programs run without a sandbox",
        "insecure": "the node takes jobs without its secret",
    }
)
"""Every action and its meaning; the documentation lists them."""

_PLAIN = re.compile(r"[A-Za-z0-9_./:@+-]{1,200}")


def log(action: str, level: int = logging.INFO, /, **fields: Any) -> None:
    """Logs an action of the table with its fields."""
    if logger.isEnabledFor(level):
        record = logging.LogRecord(logger.name, level, "", 0, ACTIONS[action], None, None)
        record.__dict__.update(action=action, fields=fields)
        logger.handle(record)  # not `log()`: it looks for the file and line of the caller, for each line


class TextLines(logging.Formatter):
    """`time level action name=value ...`, one line each."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", None)
        action = getattr(record, "action", record.name)
        if fields is None:
            fields = {"message": record.getMessage()}
        parts = [_time(record), record.levelname.lower(), action]
        parts += [f"{name}={_shown(value)}" for name, value in fields.items()]
        if record.exc_info:
            parts.append(f"error={_shown(self.formatException(record.exc_info))}")
        return " ".join(parts)


class JsonLines(logging.Formatter):
    """One JSON object a line, with `time`, `level`, `action` and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "action": getattr(record, "action", record.name),
        }
        fields = getattr(record, "fields", None)
        line |= fields if fields is not None else {"message": record.getMessage()}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_to_stderr(form: str) -> None:
    """Sends the lines of this program to its standard error, in one of the two forms."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.lastResort = handler  # of every library: a line in another form is no line for a program
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # `upload_refused` has its words
    levels = {"tenuto": logging.WARNING, "tenuto.service": logging.INFO, "uvicorn.error": logging.WARNING}
    for name, level in levels.items():
        one = logging.getLogger(name)
        one.handlers[:] = [handler]
        one.setLevel(level)
        one.propagate = False


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
