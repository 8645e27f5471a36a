"""Secrets in files of one line: read, and made at the first start, for this account alone."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tenuto.clock import Randomness
from tenuto.errors import InvalidSetting
from tenuto.service.node.packer import private


def made_secret(path: Path, prefix: str, randomness: Randomness) -> str:
    """The secret in a file, which is made if it is not there."""
    part = Path(f"{path}.{randomness.nonce()}")
    try:
        if not path.exists():
            with open(part, "x", encoding="ascii", opener=private) as file:
                file.write(f"{prefix}{randomness.nonce()}{randomness.nonce()}\n")
            with suppress(FileExistsError):  # whole, or not at all; another process may have been faster
                os.link(part, path)
    except OSError as error:
        raise InvalidSetting(f"the secret cannot be kept: {path}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return secret_in(path)


def secret_in(path: Path) -> str:
    """The secret in a file; `InvalidSetting` if there is none."""
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidSetting(f"the secret cannot be read: {path}: {why}") from None
    if not secret or not (secret.isascii() and secret.isprintable()):
        raise InvalidSetting(f"{path} holds no secret of one line: delete it, and another one is made")
    return secret
