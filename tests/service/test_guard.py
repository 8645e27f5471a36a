"""What every request passes first, and rates."""

from __future__ import annotations

import pytest
from starlette.types import Scope

from tenuto.errors import InvalidSetting
from tenuto.service.guard import Proxies, complaint
from tenuto.service.routes.common import MOST_KNOWN, RateLimits, Strikes
from tenuto.web import host_names, host_of, is_loopback
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
    for no_url in ("http://[", "http://[::1", "localhost:5000", "://", ""):
        assert refused(method="POST", origin=no_url) == "bad_origin"
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
    rates = RateLimits(per_s=10, burst=3)
    assert [rates.wait_s("ada", 0.0) for _ in range(3)] == [0, 0, 0]
    assert rates.wait_s("ada", 0.0) == pytest.approx(0.1)
    assert rates.wait_s("bob", 0.0) == 0, "each for itself"
    assert rates.wait_s("ada", 0.1) == 0
    assert rates.wait_s("ada", 100.0) == 0


def test_rates_know_a_bounded_number_of_users() -> None:
    rates = RateLimits(10, 3)
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


def _seen(proxies: Proxies, client: str = "127.0.0.1", path: str = "/jobs", **said: str) -> Scope:
    headers = [(b"host", b"inside:5000")]
    headers += [(f"x-forwarded-{name}".encode(), value.encode()) for name, value in said.items()]
    return proxies.seen_through(
        {"type": "http", "scheme": "http", "path": path, "client": (client, 1), "headers": headers}
    )


def _told(scope: Scope) -> tuple[str, str, list[bytes]]:
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    return scope["client"][0], scope["scheme"], hosts


def test_a_trusted_proxy_names_the_client_and_the_host() -> None:
    proxies = Proxies(trusted=["127.0.0.1", "10.0.0.0/8", "::1"])
    public = {"proto": "https", "host": "jobs.example.org"}
    as_said = ("192.0.2.7", "https", [b"jobs.example.org"])
    for client in ("127.0.0.1", "::ffff:127.0.0.1", "::1", "10.1.2.3"):
        assert _told(_seen(proxies, client, **{"for": "192.0.2.7"}, **public)) == as_said
    # What a client wrote itself stands before what the nearest proxy that is no friend's wrote.
    assert _told(_seen(proxies, **{"for": "6.6.6.6, 192.0.2.7, 10.0.0.1"}, **public)) == as_said
    assert _told(_seen(proxies, **{"for": "nobody, 10.0.0.1"}))[0] == "10.0.0.1"
    assert _told(_seen(proxies, proto="gopher")) == ("127.0.0.1", "http", [b"inside:5000"])


def test_other_senders_are_not_believed() -> None:
    public = {"for": "192.0.2.7", "proto": "https", "host": "jobs.example.org"}
    for proxies in (Proxies(), Proxies(trusted=["10.0.0.1"])):
        assert _told(_seen(proxies, "203.0.113.1", **public)) == ("203.0.113.1", "http", [b"inside:5000"])


def test_a_prefix_may_be_there_or_cut_off_by_the_proxy() -> None:
    proxies = Proxies("/tenuto/")
    for path in ("/jobs", "/tenuto/jobs"):
        seen = _seen(proxies, path=path)
        assert (seen["root_path"], seen["path"]) == ("/tenuto", "/tenuto/jobs")
    assert _seen(proxies, path="/tenutox")["path"] == "/tenuto/tenutox"


@pytest.mark.parametrize(("prefix", "trusted"), [("tenuto", ""), ("/a b", ""), ("//x", ""), (None, "proxy")])
def test_settings_of_proxies_that_cannot_be_are_refused(prefix: str | None, trusted: str) -> None:
    with pytest.raises(InvalidSetting, match=r"service\.(prefix|trusted_proxies)"):
        Proxies(prefix, [trusted] if trusted else [])
