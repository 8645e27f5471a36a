"""The `tenuto` command: builds the parts and holds no logic."""

from tenuto.cli.main import main

__all__ = ["main"]
