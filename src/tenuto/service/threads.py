"""Threads in which a server does what blocks: SQL in some of them, files in others.
A database that does not answer must not keep a result from being read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """A few threads that calls are made in, awaited on the event loop."""

    def __init__(self, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)

    async def __call__(self, function: Callable[..., T], *arguments: object) -> T:
        """What the function returns; it goes on if the caller is cancelled."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def close(self) -> None:
        """Takes no more calls; those that were begun end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)
