"""Writes the bundle of a workspace: one file with the modules that the runners of its jobs load.
Where it cannot be written, jobs run without it.
"""

from __future__ import annotations

import os
from _frozen_importlib_external import SourceFileLoader
from collections.abc import Iterator
from contextlib import suppress

from tenuto.launchers.bundle import ROOT, STANDARD, encode_bundle, identity
from tenuto.light import sha256
from tenuto.workspace.layout import Layout
from tenuto.workspace.ports import Files

_WHOLE = ("tenuto/launchers/payload", "tenuto/launchers/runner")
"""Packages of which a job may load every module."""
_PARTS = {
    "tenuto": "__init__ clock errors light",
    "tenuto/launchers": "__init__ instructions kernel leftovers manifest",
    "tenuto/lifecycle": "__init__ owners states",
    "tenuto/tasks": "__init__ arguments base config containers deprecation deserialization graph hints "
    "identity live location methods ports progress saving schema sealing serialization tags task types "
    "validity values",
    "tenuto/workspace": "__init__ attempt_files claims files flags json_bytes layout locks machine markers "
    "modes ports processes records",
}
"""Packages of which every job loads some modules."""
_LIBRARY = """
collections/__init__ collections/abc contextlib contextvars copyreg datetime enum functools keyword operator
re/__init__ re/_casefix re/_compiler re/_constants re/_parser reprlib struct types typing warnings
""".split()
"""Of the standard library: what every job loads."""


def bundle_of(files: Files, layout: Layout) -> str | None:
    """The path of the workspace's bundle, which is written if there is none of these modules as they are."""
    directory = f"{layout.launchers}/code"
    try:
        modules = dict(_modules())
        path = f"{directory}/{_key(modules)}"
        if files.stat(path) is None:
            files.make_directory(directory)
            former = files.list(directory)
            files.replace(path, _bundle(modules), durable=False)
            for name in former:
                files.remove(f"{directory}/{name}")
    except (OSError, SyntaxError):
        return None
    return path


def _modules() -> Iterator[tuple[str, str]]:
    """Name and file of each module."""
    for root, stem in _stems():
        file = f"{root}/{stem}.py"
        if os.path.exists(file):  # other versions of Python have other modules
            yield stem.removesuffix("/__init__").replace("/", "."), file


def _stems() -> Iterator[tuple[str, str]]:
    """Where modules lie: below which directory, and the path there without its ending."""
    for package in _WHOLE:
        names = sorted(os.listdir(f"{ROOT}/{package}"))
        yield from ((ROOT, f"{package}/{name[:-3]}") for name in names if name.endswith(".py"))
    for package, parts in _PARTS.items():
        yield from ((ROOT, f"{package}/{name}") for name in parts.split())
    yield from ((STANDARD, stem) for stem in _LIBRARY)


def _key(modules: dict[str, str]) -> str:
    """A name that no other bundle has."""
    found = [(name, file, os.stat(file)) for name, file in modules.items()]
    stamps = [(name, file, stat.st_mtime_ns, stat.st_size) for name, file, stat in found]
    return sha256(identity() + repr(stamps).encode()).hexdigest()[:32]


def _bundle(modules: dict[str, str]) -> bytes:
    codes = {}
    for name, file in modules.items():
        with suppress(ImportError):
            code = SourceFileLoader(name, file).get_code(name)
            if code is not None:
                codes[name] = file, code
    return encode_bundle(codes)
