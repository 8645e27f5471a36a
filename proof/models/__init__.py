"""Owns the model checks: small models of the protocols, explored completely, crashes at every step included.

Each model is checked as it is, then with bugs planted in it; a bug that stays unseen is a violation too.
"""

from proof.models.proving import run

__all__ = ["run"]
