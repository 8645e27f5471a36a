"""Fakes and contract suites, shipped for authors of plug-ins. Nothing in production imports this."""
