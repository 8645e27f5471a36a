"""What a job needs of a warm parent: the modules its parameters name, and what decides how they are imported.
Reads `params.json` and the environment; starts nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from tenuto.errors import FileTooLarge
from tenuto.launchers.instructions import Instructions
from tenuto.workspace.json_bytes import from_json
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import Files

PREFIXES = (
    *("LD_", "OMP_", "OPENBLAS_", "MKL_", "CUDA_", "PYTHON"),
    *("BLIS_", "GOMP_", "GOTO_", "KMP_", "NUMEXPR_", "VECLIB_", "NVIDIA_", "HIP_", "ROCR_"),
    *("GLIBC_", "MALLOC_", "LANG", "LC_", "TZ"),
)
"""Variables that an interpreter or a library reads when it is loaded, past Python: too late for a child."""
_LARGEST_PARAMS = 1 << 20
"""Reading more takes as long as starting an interpreter."""


class ProcessVariables(NamedTuple):
    """The variables of this process at one moment."""

    variables: Mapping[str, str]
    decisive: tuple[tuple[str, str], ...]
    """Those with one of the `PREFIXES`, in the order of their names."""

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> ProcessVariables:
        decisive = sorted(item for item in variables.items() if item[0].startswith(PREFIXES))
        return cls(dict(variables), tuple(decisive))


class Surroundings:
    """The variables of this process, decoded anew only after a change: there are many, and most never do."""

    def __init__(self) -> None:
        self._encoded: dict[bytes, bytes] | None = None
        self._known = ProcessVariables({}, ())

    def now(self) -> ProcessVariables:
        encoded = getattr(os.environ, "_data", None)
        if encoded is None or encoded != self._encoded:
            self._known = ProcessVariables.of(os.environ)
            self._encoded = None if encoded is None else dict(encoded)
        return self._known


class ParentSpec(NamedTuple):
    """Two jobs with equal needs can be forked from the same parent."""

    classes: tuple[tuple[str, str, str], ...] = ()
    """Module, qualified name and file of every class in the parameters that is to be imported."""
    import_path: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    """What the job adds to the environment before anything of the user's is imported."""
    variables: tuple[tuple[str, str], ...] = ()
    """Of this process: those with one of the `PREFIXES`."""

    def modules(self) -> list[str]:
        return list(dict.fromkeys(module for module, _, _ in self.classes))

    def changed(self) -> tuple[int, ...]:
        """When the files of the modules were last changed."""
        times = []
        for file in dict.fromkeys(file for _, _, file in self.classes):
            try:
                times.append(os.stat(file).st_mtime_ns)
            except OSError:
                times.append(0)
        return tuple(times)


LEAN = ParentSpec()
"""For payloads that are programs of their own: commands, and tasks in a fresh interpreter."""


def spec_of(
    files: Files,
    paths: JobPaths,
    instructions: Instructions,
    environment: ProcessVariables,
    params: bytes | None = None,
) -> ParentSpec:
    """The needs of a job that is ready to start; `LEAN` if a fresh interpreter is better.

    `params`: the content of `params.json`, if that is known.
    """
    if instructions.program is not None or len(params or b"") > _LARGEST_PARAMS:
        return LEAN
    try:
        document = from_json(params or files.read(paths.params, _LARGEST_PARAMS))
        classes = dict.fromkeys(_class(entry) for entry in document["objects"])
        import_path = tuple(document["import_path"])
    except (FileTooLarge, OSError, ValueError, KeyError, TypeError):
        return LEAN  # too much, or a job that will itself name the error
    return ParentSpec(
        tuple(classes), import_path, tuple(sorted(instructions.environment.items())), environment.decisive
    )


def _class(entry: Any) -> tuple[str, str, str]:
    module, name, file = entry["class"]
    return str(module), str(name), os.fspath(file)
