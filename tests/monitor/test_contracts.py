"""Line 25: one suite for every provider, another for every source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.remote import RemoteProvider
from tenuto.testing.contracts.providers import GROUP, ProviderContract
from tenuto.testing.contracts.sources import SourceContract

from .conftest import Served


class TestLine25LocalProvider(ProviderContract):
    @pytest.fixture
    def provider(self, local: LocalProvider) -> LocalProvider:
        return local


class TestLine25RemoteProvider(ProviderContract):
    @pytest.fixture
    def provider(self, served: Served) -> Iterator[RemoteProvider]:
        made = RemoteProvider(served.server.address.url, served.server.sessions.new_code())
        yield made
        made.close()


class TestLine25FakeSource(SourceContract):
    @pytest.fixture
    def group(self) -> str:
        return GROUP
