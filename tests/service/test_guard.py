"""What every request passes first, and rates."""

from __future__ import annotations

import pytest

from tenuto.service.guard import complaint
from tenuto.service.routes.common import MOST_KNOWN, Rates, Strikes
from tenuto.web.hosts import host_names, host_of, is_loopback
from tests.parts.answers import NO_HOSTS

ALLOWED = frozenset({"jobs.example.org"})


def refused(host: str = "localhost:5000", method: str = "GET", query: bytes = b"", **more: str) -> str | None:
    headers = [(b"host", host.encode())]
    headers += [(name.replace("_", "-").encode(), value.encode()) for name, value in more.items()]
    found = complaint(method, query, headers, ALLOWED)
    return found and found.code.value


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:5000", "127.0.0.1:1", "[::1]:5000", "jobs.example.org", "JOBS.example.org:80"],
)
def test_known_hosts_pass(host: str) -> None:
    assert refused(host) is None


@pytest.mark.parametrize(
    "host", [*NO_HOSTS, "jobs.example.org.evil", "jobs.example.org:x", "jobs.example.org:99999"]
)
def test_other_hosts_are_refused(host: str) -> None:
    """H21, U02: also what a name server was made to point here."""
    assert refused(host) == "bad_host"


def test_two_hosts_or_none_are_refused() -> None:
    assert complaint("GET", b"", [], ALLOWED)
    assert complaint("GET", b"", [(b"host", b"localhost"), (b"host", b"localhost")], ALLOWED)


def test_pages_of_other_sites_cannot_post() -> None:
    """H23."""
    assert refused(method="POST", origin="https://evil.example") == "bad_origin"
    assert refused(method="DELETE", sec_fetch_site="cross-site") == "bad_origin"
    assert refused(method="POST", origin="null") == "bad_origin"
    assert refused(method="POST", origin="http://localhost:6000") == "bad_origin"
    assert refused(method="POST", origin="http://localhost:5000", sec_fetch_site="same-origin") is None
    assert refused(method="POST") is None, "curl sends neither"
    assert refused(method="GET", origin="https://evil.example") is None


@pytest.mark.parametrize("query", [b"token=x", b"a=1&access_token=x", b"api_key=", b"TOKEN=x"])
def test_a_token_in_the_url_is_refused(query: bytes) -> None:
    """H19."""
    assert refused(query=query) == "token_in_url"


def test_hosts_are_read_strictly() -> None:
    assert host_of("LOCALHOST:80") == "localhost"
    assert host_of("[::1]") == "::1"
    assert host_of("x?") is None
    assert host_names(["[FD00::1]", "fd00:0::1", "A.b"]) == {"fd00::1", "a.b"}
    assert is_loopback("127.8.8.8")
    assert not is_loopback("127.0.0.1.evil")


def test_rates_allow_a_burst_and_then_so_many_a_second() -> None:
    rates = Rates(per_s=10, burst=3)
    assert [rates.wait_s("ada", 0.0) for _ in range(3)] == [0, 0, 0]
    assert rates.wait_s("ada", 0.0) == pytest.approx(0.1)
    assert rates.wait_s("bob", 0.0) == 0, "each for itself"
    assert rates.wait_s("ada", 0.1) == 0
    assert rates.wait_s("ada", 100.0) == 0


def test_rates_know_a_bounded_number_of_users() -> None:
    rates = Rates(10, 3)
    for n in range(MOST_KNOWN + 100):
        rates.wait_s(str(n), 0.0)
    assert len(rates._buckets) == MOST_KNOWN


def test_strikes_are_forgiven_after_a_while() -> None:
    """H18."""
    strikes = Strikes(most=3, within_s=60)
    assert [strikes.wait_s("1.2.3.4", float(n)) for n in range(3)] == [0, 0, 0]
    assert strikes.wait_s("1.2.3.4", 3.0) == 57
    assert strikes.wait_s("5.6.7.8", 3.0) == 0
    assert strikes.wait_s("1.2.3.4", 60.0) == 0
