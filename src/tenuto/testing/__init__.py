"""Fakes and contract suites, shipped for authors of plug-ins. Nothing in production imports this."""

from tenuto.testing.clock import FakeClock, FakeRandomness
from tenuto.testing.disk import Crash, FakeDisk
from tenuto.testing.host import FakeHost
from tenuto.testing.locks import FakeLocks
from tenuto.testing.processes import FakeProcesses

__all__ = ["Crash", "FakeClock", "FakeDisk", "FakeHost", "FakeLocks", "FakeProcesses", "FakeRandomness"]
