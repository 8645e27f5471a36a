"""Owns what is counted of the whole tree: sizes, names, importers, settings and sentences.
Judges nothing: the tests of this folder and ``python -m bench.walk --size`` do.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.architecture.statements import statements
from tests.architecture.test_english import UNNAMED, VAGUE, sentences

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "tenuto"
LATE = re.compile(r"""["'](tenuto(?:\.\w+)+)["':]""")
"""The name of a module in a string: `late("tenuto.x")`, or an entry point."""
LOOSE = re.compile(
    r"\b(nobody|one that|those (that|who|of)|who (is|has|had|was|wants|removes|submits)"
    r"|what (is|was|has|had|can|cannot|may|must|came|comes|changes|ended|failed|fails|left|lies|makes|matters"
    r"|names|needs|passes|ran|runs|used|waits|it))\b",
    re.IGNORECASE,
)
"""Beside what no sentence of the house may say: the actor has to be guessed."""
PATTERNS = (UNNAMED, VAGUE, LOOSE)


@dataclass(frozen=True, slots=True)
class Counts:
    """What is counted of `src/tenuto`; the budgets' table of the design has a line for each."""

    files: int
    lines: int
    lone_modules: int
    shared_class_names: int
    shared_file_names: int
    divided_classes: int
    settings: int
    nameless_percent: float


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SRC.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def sources() -> dict[Path, tuple[str, ast.Module]]:
    """Every file of the house, with its text and its tree."""
    texts = {path: path.read_text("utf-8") for path in sorted(SRC.rglob("*.py"))}
    return {path: (text, ast.parse(text)) for path, text in texts.items()}


def imported(tree: ast.Module) -> set[str]:
    """What a module imports, by whole names: modules, and names that may be modules."""
    found: set[str] = set()
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@cache
def lone_modules() -> dict[str, str]:
    """Module -> its only importer, of modules that are no seam.

    A seam has a fake (a module of `testing` imports it), or is loaded late or by its name, as commands are.
    A module whose names the face of its room offers is imported by all that import the face.
    """
    importers: dict[str, set[Path]] = defaultdict(set)
    late: set[str] = set()
    for path, (text, tree) in sources().items():
        late |= set(LATE.findall(text))
        for name in imported(tree):
            importers[name].add(path)
    found = {}
    for path in sources():
        name = module_name(path)
        users = importers[name] - {path}
        is_part = path.stem not in ("__init__", "__main__") and not {"migrations", "commands"} & {*path.parts}
        if is_part and len(users) == 1 and name not in late:
            (user,) = users
            if "testing" not in user.relative_to(SRC).parts and user.name != "__init__.py":
                found[name] = module_name(user)
    return found


def classes() -> Iterable[tuple[str, Path, ast.ClassDef]]:
    for path, (_, tree) in sources().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                yield node.name, path, node


@cache
def shared_class_names() -> dict[str, list[str]]:
    """Public class name -> the files that have a class of that name, where they are several."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, path, _ in classes():
        if not name.startswith("_"):
            places[name].append(str(path.relative_to(SRC)))
    return {name: found for name, found in places.items() if len(found) > 1}


@cache
def shared_file_names() -> dict[str, list[str]]:
    """File name -> where, of names that several files have."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sources():
        if path.stem not in ("__init__", "__main__") and "migrations" not in path.parts:
            places[path.name].append(str(path.relative_to(SRC)))
    return {name: found for name, found in places.items() if len(found) > 1}


@cache
def divided_classes() -> dict[str, str]:
    """Class -> its only heir, in the only other file that names the class: one class in two files.

    A class that its own file makes, inherits from or has as a metaclass is one by itself.
    """
    heirs: dict[str, set[str]] = defaultdict(set)
    homes = {name: path for name, path, _ in classes() if name not in shared_class_names()}
    for heir, path, node in classes():
        for base in node.bases:
            name = base.id if isinstance(base, ast.Name) else ""
            if name in homes and homes[name] != path:
                heirs[name].add(heir)
    found = {}
    for name, (heir, *more) in ((name, sorted(found)) for name, found in heirs.items()):
        users = [
            path
            for path, (text, _) in sources().items()
            if path != homes[name] and re.search(rf"\b{name}\b", text)
        ]
        if not more and len(users) == 1 and not _is_used_at_home(name, homes[name]):
            found[name] = heir
    return found


def _is_used_at_home(name: str, home: Path) -> bool:
    """Whether the file of a class calls it, or has a class made of it."""
    used: list[ast.expr] = []
    for node in ast.walk(sources()[home][1]):
        if isinstance(node, ast.Call):
            used.append(node.func)
        elif isinstance(node, ast.ClassDef):
            used += [*node.bases, *(keyword.value for keyword in node.keywords)]
    return any(isinstance(one, ast.Name) and one.id == name for one in used)


def settings() -> int:
    """The rows of the table of settings."""
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    _, _, rest = page.partition("<!-- begin: settings -->")
    table, _, _ = rest.partition("<!-- end: settings -->")
    return len(re.findall(r"^\| `", table, re.MULTILINE))


def nameless_percent() -> float:
    """Of all lines of comments and docstrings, those that name no actor."""
    total = nameless = 0
    for text, _ in sources().values():
        for _, line in sentences(text):
            if line.strip("#\"' "):
                total += 1
                nameless += any(pattern.search(line) for pattern in PATTERNS)
    return round(100 * nameless / total, 1)


def counts() -> Counts:
    """All counts of the tree as it is."""
    return Counts(
        len(sources()),
        sum(text.count("\n") for text, _ in sources().values()),
        len(lone_modules()),
        len(shared_class_names()),
        len(shared_file_names()),
        len(divided_classes()),
        settings(),
        nameless_percent(),
    )
