"""A piece of a log, read from the result of a job that has ended.
Unpacks no more than is asked for, and nothing to the disk.
"""

from __future__ import annotations

import zipfile

from tenuto.service.names import OWN_DIRECTORY


def read_archived(result: str, stream: str, offset: int, limit: int) -> bytes | None:
    """What a job printed, from an offset on; None if the result is not there."""
    try:
        with zipfile.ZipFile(result) as archive, archive.open(f"{OWN_DIRECTORY}/{stream}") as log:
            log.seek(offset)
            return log.read(limit)
    except FileNotFoundError:
        return None
    except KeyError:  # it printed nothing, and has no such log
        return b""
