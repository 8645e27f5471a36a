"""Questions of the terminal off its loop, in threads that do not keep the process alive.
It knows neither the provider nor the views.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """The answer of a function that blocks; a thread that hangs does not keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(answer: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(answer)

    def run() -> None:
        answer: Any = None
        error: BaseException | None = None
        try:
            answer = function()
        except Exception as raised:  # noqa: BLE001 - handed to the loop, which raises it
            error = raised
        call(loop, settle, answer, error)

    threading.Thread(target=run, name="tenuto-top-question", daemon=True).start()
    return await future


def call(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *given: Any) -> None:
    """Call a function in the loop, unless that has ended."""
    try:
        loop.call_soon_threadsafe(function, *given)
    except RuntimeError:  # the loop was closed while a thread still asked
        return
