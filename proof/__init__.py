"""Owns the proofs: programs that try to break what Tenuto promises, and say how hard they tried.

Run them with ``python -m proof``, or all by ``make prove``. Nothing in src/ imports this package.
"""
