"""The version, which the newest tag of the repository decided when this was built."""

from importlib import metadata

try:
    __version__ = metadata.version("tenuto")
except metadata.PackageNotFoundError:  # the folder was put on the import path, and nothing was installed
    __version__ = "0+unknown"
