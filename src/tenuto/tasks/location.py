"""Where a class lives: its id, and how another process finds it again.
The only module that imports by name. It imports nothing but files that declare the class, and outside of jobs
nothing but what the import path has.
"""

import functools
import os.path
import re
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tenuto.errors import ClassNotFound
from tenuto.light import NamedTuple, import_module, importlib_util, late

if TYPE_CHECKING:
    from tenuto.tasks import notebook
else:
    notebook = late("tenuto.tasks.notebook")

_OF_THE_SCRIPT = ("__main__", "__mp_main__")
"""What the interpreter calls the script itself: where it was started, and in a child of multiprocessing."""

_process_of_a_job = False


class Location(NamedTuple):
    """What a file must record to find a class again."""

    module: str
    qualname: str
    file: str


def module_name(module: str) -> str:
    """The name a module has in every process: the script itself is not called ``__main__``."""
    if module not in _OF_THE_SCRIPT:
        return module
    main = sys.modules.get(module)
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in _OF_THE_SCRIPT:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if file:
        return name_of_script(file)
    if "IPython" in sys.modules and (shell := notebook.notebook_shell()) is not None:
        return notebook.notebook_module(shell)
    return module


@functools.cache
def name_of_script(script: str) -> str:
    """``pkg.sub.script`` for a file in packages, its stem otherwise.

    The same name as ``python -m pkg.sub.script`` gives, so that an identity does not
    depend on how the script was started. A ``__main__.py`` is named with its folder.
    """
    folder, file = os.path.split(os.path.realpath(script))
    parts = [os.path.splitext(file)[0]]
    if parts == ["__main__"]:
        folder, name = os.path.split(folder)
        parts.append(name)
    while os.path.isfile(f"{folder}/__init__.py"):
        folder, name = os.path.split(folder)
        parts.append(name)
    return ".".join(reversed(parts))


def class_id(cls: type) -> str:
    """``module.qualname``, whatever started the process."""
    return f"{module_name(cls.__module__)}.{cls.__qualname__}"


_kept: dict[type, Location] = {}
"""Classes of a notebook, by the files that their sources are kept in."""


def keep_class(cls: type, file: str) -> None:
    """From now on a job finds a class of a notebook in a file."""
    if kept_file(cls) != file:
        _kept[cls] = Location(module_name(cls.__module__), cls.__qualname__, file)
        _notebooks[file] = known_file(cls)
        _Kept.changes += 1


_notebooks: dict[str, str] = {}
"""By a file with the source of classes of a notebook, the notebook."""


class _Kept:
    changes = 0


def kept_versions() -> int:
    """How often a class of a notebook was kept in another file than before."""
    return _Kept.changes


def shown_file(file: str) -> str:
    """The file that a person knows: of the kept source of a notebook, the notebook."""
    return _notebooks.get(file, file)


def kept_file(cls: type) -> str | None:
    """The file that the source of a class of a notebook is kept in; None for any other class."""
    known = _kept.get(cls)
    return None if known is None else known.file


def is_of_notebook(cls: type) -> bool:
    """True for a class of a cell, whose source must be kept before a job can find it."""
    is_main = cls.__module__ == "__main__" and "IPython" in sys.modules
    return is_main and notebook.notebook_shell() is not None


def nameless_source(cls: type) -> str | None:
    """The source of a class of a notebook that does not know its own name; None for any other class."""
    if not is_of_notebook(cls) or notebook.has_name(shell := notebook.notebook_shell()):
        return None
    source: str = notebook.definition_of(cls, shell)
    return source


def known_file(cls: type) -> str:
    """The file that a person knows a class by: of a cell, the notebook."""
    if is_of_notebook(cls):
        return notebook.notebook_path(notebook.notebook_shell())
    return locate(cls).file


def locate(cls: type) -> Location:
    """Where another process will find the class; refuses a class it could not find."""
    return _kept.get(cls) or _locate(cls)


@functools.cache
def _locate(cls: type) -> Location:
    name = module_name(cls.__module__)
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if "<locals>" in cls.__qualname__:
        raise ClassNotFound(
            f"{cls.__qualname__} is defined inside a function, so a job could not import it: "
            f"move the class to the top of a module"
        )
    if not file or not os.path.isfile(file):
        raise ClassNotFound(
            f"{cls.__qualname__} is defined at a prompt, so a job could not import it: "
            f"move the class to a .py file, or to a notebook (instance() works without)"
        )
    found = _found_in(module, cls.__qualname__)
    if found is not None and found is not cls and isinstance(found, type):
        raise ClassNotFound(
            f"{file} has two classes called {cls.__qualname__}, and a job would run the later one: "
            f"rename one of them (or, if the module was reloaded, make the config anew)"
        )
    return Location(name, cls.__qualname__, os.path.realpath(file))


def _found_in(module: ModuleType | None, qualname: str) -> Any:
    """What a module has under a name; None if there is nothing of that name."""
    found: Any = module
    for part in qualname.split("."):
        # Not getattr: that would run the code of properties and of modules that import on demand.
        found = vars(found).get(part) if isinstance(found, type | ModuleType) else None
    return found


def find_loaded(name: str) -> type | None:
    """The class that a module of this process has by now under ``module.qualname``; None if there is none."""
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:count])
        loaded = sys.modules["__main__"] if module == module_name("__main__") else sys.modules.get(module)
        found = _found_in(loaded, ".".join(parts[count:]))
        if isinstance(found, type):
            return found
    return None


def source_of(cls: type) -> str:
    """The file of a class's module, as far as it has one."""
    return os.path.realpath(getattr(sys.modules.get(cls.__module__), "__file__", None) or cls.__module__)


def same_source(one: type, other: type) -> bool:
    """True for a class and its copy in a module that was imported under two names."""
    return one.__qualname__ == other.__qualname__ and source_of(one) == source_of(other)


def be_process_of_a_job() -> None:
    """From now on `find_class` may run the file that a location names, which the job is there to run."""
    global _process_of_a_job  # noqa: PLW0603  tasks that are filled on first use are read in any thread
    _process_of_a_job = True


def find_class(location: Location) -> Any:
    """The object that a location names, importing its module if need be.

    A stored file may be hostile, so nothing is imported before its source was seen to declare a class of
    that name; and outside of jobs nothing but what the import path has.
    """
    module = sys.modules.get(location.module)
    if module is None and location.module == module_name("__main__"):
        module = sys.modules["__main__"]
    if module is None:
        module = _import_declaring(location)
    found = _found_in(module, location.qualname)
    if found is None:
        raise ClassNotFound(f"module {location.module} has no class {location.qualname}")
    return found


def _import_declaring(location: Location) -> ModuleType:
    importable = _source_of(location.module)
    stored = location.file
    try:
        if importable and _declares(importable, location.qualname):
            return import_module(location.module)
        if _process_of_a_job and _declares(stored, location.qualname):
            return _import_file(location.module, stored)
    except Exception as error:
        raise ClassNotFound(
            f"the module {location.module} of {location.qualname} cannot be imported "
            f"({type(error).__name__}: {error})"
        ) from error
    if importable is None and os.path.isfile(stored):
        raise ClassNotFound(
            f"module {location.module} of {location.qualname} is not on the import path, and only a job "
            f"runs a file because a stored config names it: import the module first, or add "
            f"{_root_of(location)} to PYTHONPATH"
        )
    raise ClassNotFound(
        f"no class {location.qualname} is declared in module {location.module} "
        f"({importable or location.file or 'not on the import path'}): "
        f"was it renamed, or is its folder missing from PYTHONPATH?"
    )


def _root_of(location: Location) -> str:
    """The folder from which a module would be imported by its name."""
    folder = os.path.dirname(location.file)
    for _ in range(location.module.count(".")):
        folder = os.path.dirname(folder)
    return folder


def _source_of(name: str) -> str | None:
    """The source file of a module, found as the interpreter would, but without running any code.

    The interpreter's own finder cannot do this: it imports a package to look into it.
    """
    *packages, last = name.split(".")
    folders = [entry or "." for entry in sys.path]
    for package in packages:
        inside = [f"{folder}/{package}" for folder in folders if os.path.isdir(f"{folder}/{package}")]
        regular = [folder for folder in inside if os.path.isfile(f"{folder}/__init__.py")]
        folders = regular[:1] or inside
    for folder in folders:
        for source in (f"{folder}/{last}/__init__.py", f"{folder}/{last}.py"):
            if os.path.isfile(source):
                return source
    return None


def _declares(source: str, qualname: str) -> bool:
    """Whether a source file has a class of that name, with a base, as every class that is stored has.

    A function of a module counts, too: `@task` makes a class of it.
    """
    if not source.endswith(".py") or not os.path.isfile(source):
        return False
    try:
        with open(source, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return False
    *outer, name = qualname.split(".")
    if not outer and re.search(rf"^(async\s+)?def\s+{name}\s*\(", text, re.MULTILINE):
        return True
    return bool(re.search(rf"^\s*class\s+{name}\b\s*[(\[]", text, re.MULTILINE)) and all(
        re.search(rf"^\s*class\s+{part}\b", text, re.MULTILINE) for part in outer
    )


def _import_file(name: str, file: str) -> ModuleType:
    spec = importlib_util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ClassNotFound(f"{file} cannot be imported as a module")
    module = importlib_util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
