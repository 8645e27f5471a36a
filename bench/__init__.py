"""Owns the benchmark suite: Tenuto's workloads, each against its target and against its peers.

Run it with ``python -m bench``. It is not part of the tests, and nothing in src/ imports it.
"""
