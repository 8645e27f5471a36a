"""A list of 100,000 jobs, and a server elsewhere: the terminal asks for what is in sight, and no more."""

from __future__ import annotations

import asyncio
from typing import Any

from tenuto.clock import SystemClock
from tenuto.jobs.row import plain_row
from tenuto.lifecycle.states import JobState
from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.remote import RemoteProvider
from tenuto.testing.fake_source import fake_row
from tests.monitor.conftest import Served
from tests.monitor.tui.conftest import Terminal, provided, show
from tests.monitor.tunnel import Tunnel

GROUP = "experiments:large/1"
TOTAL = 100_000


class LargeProvider(LocalProvider):
    """A provider whose list of jobs is as long as it says; rows are made when they are asked for."""

    def __init__(self) -> None:
        super().__init__([], workspace="/large")
        self.asked: list[tuple[int, int]] = []

    def jobs(self, *given: Any, **named: Any) -> Any:
        _, _, _, offset, limit = given
        self.asked.append((offset, limit))
        now = SystemClock().now()
        numbers = range(offset, min(offset + limit, TOTAL))
        rows = [fake_row(GROUP, "my.Train", f"{number:08d}", JobState.DONE) for number in numbers]
        stamp = {"epoch": self.epoch, "seq": 0, "now": now.isoformat(), "group": GROUP, "offset": offset}
        jobs = [plain_row(row, now) for row in rows]
        return {**stamp, "total": TOTAL, "known": TOTAL, "matched": TOTAL, "jobs": jobs}


def test_100_000_rows_are_scrolled_by_windows_of_200() -> None:
    provider = LargeProvider()

    async def scenario(terminal: Terminal) -> None:
        await terminal.until("00000000 Train")
        assert "100,000 of 100,000" in terminal.text
        await terminal.press("G")
        await terminal.until(">00099999 Train")
        await terminal.press("pageup", "k")
        await terminal.until(">00099977 Train")
        await terminal.press("g")
        await terminal.until(">00000000 Train")
        await terminal.press("j", "j", "down", "up")
        await terminal.until(">00000002 Train")
        await terminal.press("g")
        await terminal.press(*["pagedown"] * 20)
        await terminal.until(">00000420 Train")
        assert all(limit <= 200 for _, limit in provider.asked)
        assert len(provider.asked) < 40
        assert len(terminal.app.view.listing.rows) <= 200  # type: ignore[attr-defined]

    try:
        show(provider, scenario, group=GROUP)
    finally:
        provider.close()


def test_a_server_elsewhere_is_shown_and_steered_as_one_here() -> None:
    with provided() as provider:
        served = Served(provider)
        try:
            remote = RemoteProvider(f"http://127.0.0.1:{served.port}/", served.server.sessions.new_code())

            async def scenario(terminal: Terminal) -> None:
                await terminal.until("evo packing")
                await terminal.until("live ●")
                await terminal.press("down", "enter")
                await terminal.until("88ad934f Prepare")
                for key, shows in (
                    ("3", "token gpu"),
                    ("4", "┌Train"),
                    ("5", "ACCURACY"),
                    ("6", "nodes"),
                    ("7", "cell"),
                ):
                    await terminal.press(key)
                    await terminal.until(shows)
                await terminal.press("2", "/")
                await terminal.type("id=00000006aaaaaaaa")
                await terminal.press("enter")
                await terminal.until(">00000006 Train")
                await terminal.press("K")
                await terminal.until("attempt 2")
                await terminal.press("y")
                await terminal.until("was asked to stop")
                assert "▶ running" not in await terminal.until("✗ error")

            show(remote, scenario)
            remote.close()
        finally:
            served.close()


def test_a_server_elsewhere_that_was_started_again_is_logged_into_again() -> None:
    """By itself where a new code can be had, else by a code that the person gives."""
    with provided() as first, provided() as second, provided() as third:
        servers = [Served(first)]
        tunnel = Tunnel(servers[0].port)  # its port stays the same, as that of a server that is started again
        codes: list[str] = []
        remote = RemoteProvider(
            f"http://127.0.0.1:{tunnel.port}/",
            servers[0].server.sessions.new_code(),
            lambda: codes.pop() if codes else None,
        )

        def start_again(provider: LocalProvider) -> str:
            tunnel.cut()
            servers[-1].close()
            servers.append(Served(provider))
            tunnel.target = servers[-1].port
            code = servers[-1].server.sessions.new_code()
            tunnel.open()
            return code

        async def scenario(terminal: Terminal) -> None:
            await terminal.until("live ●")
            codes.append(await asyncio.to_thread(start_again, second))
            await terminal.until(lambda: not codes)
            await terminal.until("live ●")
            code = await asyncio.to_thread(start_again, third)
            await terminal.until("logged out: c takes a new code")
            await terminal.press("c")
            await terminal.until("code:")
            await terminal.type(code)
            await terminal.press("enter")
            assert "logged out" not in await terminal.until("live ●")

        try:
            show(remote, scenario, (120, 24), login=remote.login)
            remote.close()
        finally:
            servers[-1].close()
            tunnel.close()


def test_a_server_that_is_gone_is_said_and_harms_nothing() -> None:
    with provided() as provider:

        async def scenario(terminal: Terminal) -> None:
            await terminal.until("live ●")
            provider.close()
            await terminal.until("reconnecting")
            await terminal.press("2", "?", "q")
            assert not terminal.app.is_running

        show(provider, scenario)
