"""Classes that are declared in cells of a notebook: the source from which a job makes them again.
Runs nothing, and keeps nothing: the caller puts the source into a file, and says where.
"""

from __future__ import annotations

import ast
import builtins
import os.path
import re
import symtable
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from tenuto.errors import ClassNotFound
from tenuto.tasks.base import ConfigBase

_DEFINING = (
    *(ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.Assign, ast.AnnAssign, ast.If, ast.Try),
)
"""Statements of a cell that a job may need; others, as the block of an experiment, are never run there."""


class _Definition(NamedTuple):
    """A statement of a cell that gives names a meaning."""

    text: str
    uses: frozenset[str]
    texts: frozenset[str]
    """Texts in it, which may be annotations that name a class."""


def notebook_shell() -> Any:
    """The shell of IPython whose cells are the script here; None in any other process."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    main = sys.modules.get("__main__")
    is_its_own = shell is not None and getattr(main, "__dict__", None) is shell.user_ns
    return shell if is_its_own and not hasattr(main, "__file__") else None


def notebook_path(shell: Any) -> str:
    """The file of the notebook, as far as it is known; else one of that name where the kernel runs."""
    return os.path.abspath(_told_path(shell) or "notebook.ipynb")


def has_name(shell: Any) -> bool:
    """False for a notebook that a program runs which does not tell its file: nbclient, papermill."""
    return bool(_told_path(shell))


def _told_path(shell: Any) -> Any:
    known = shell.user_ns.get("__vsc_ipynb_file__")  # by VS Code; Jupyter's server tells it by a variable
    return known or shell.run_line_magic("env", "").get("JPY_SESSION_NAME")


def definition_of(cls: type, shell: Any) -> str:
    """The statements of cells that make a class, with all that they use of other cells."""
    stars, definitions = _definitions(shell.user_ns.get("In", ()))
    imported = frozenset(name for module in stars.values() for name in vars(sys.modules.get(module, object)))
    return "\n\n".join(_collected(cls.__qualname__.partition(".")[0], definitions, imported, shell))


def notebook_module(shell: Any) -> str:
    """The name of the module that the cells of a notebook make up."""
    stem = os.path.splitext(os.path.basename(notebook_path(shell)))[0]
    return re.sub(r"\W", "_", stem) or "notebook"


def source_of(classes: Iterable[type], shell: Any) -> str:
    """A module with classes of cells and all that they use of other cells, as those are now.

    All other configs and tasks of the notebook are in it, too, as far as they can be, so that jobs which use
    different classes are made from one source. Raises `ClassNotFound` if a class was declared again since, or
    uses what no cell defines.
    """
    stars, definitions = _definitions(shell.user_ns.get("In", ()))
    imported = frozenset(name for module in stars.values() for name in vars(sys.modules.get(module, object)))
    ordered: dict[str, None] = {}
    for cls in classes:
        name = cls.__qualname__.partition(".")[0]
        if cls.__qualname__ == name and shell.user_ns.get(name) is not cls:
            raise ClassNotFound(
                f"{name} was declared again since this config was made: make it anew, of the class of now"
            )
        ordered |= _collected(name, definitions, imported, shell)
    for name, value in list(shell.user_ns.items()):
        if isinstance(value, type) and issubclass(value, ConfigBase) and value.__module__ == "__main__":
            with suppress(ClassNotFound):  # these jobs need none of it
                ordered |= _collected(name, definitions, imported, shell)
    return "\n\n".join([*stars, *ordered]) + "\n"


def _collected(
    name: str, definitions: dict[str, _Definition], imported: frozenset[str], shell: Any
) -> dict[str, None]:
    """The statement that defines a name, after the statements that define the names in it.

    `imported`: names that come from modules of which all is imported.
    """
    ordered: dict[str, None] = {}
    pending: list[tuple[str, bool]] = [(name, False)]
    entered: set[str] = set()
    while pending:
        wanted, is_ready = pending.pop()
        found = definitions.get(wanted)
        if found is None:
            _refuse_unknown(wanted, imported, shell, name)
        elif is_ready:
            ordered[found.text] = None
        elif wanted not in entered:
            entered.add(wanted)
            pending.append((wanted, True))
            uses = found.uses | (found.texts & definitions.keys())
            pending += [(used, False) for used in sorted(uses - {wanted})]
    return ordered


def _refuse_unknown(name: str, imported: frozenset[str], shell: Any, user: str) -> None:
    is_of_cells = name in shell.user_ns and name not in shell.user_ns_hidden
    if is_of_cells and not (hasattr(builtins, name) or name.startswith("_") or name in imported):
        made = f"{user} is made by a cell" if name == user else f"{user} uses {name}, which a cell makes"
        raise ClassNotFound(
            f"{made} in a way that a job cannot repeat: make it "
            f"by an import, a def, a class or an assignment outside of blocks, or move the class to a file"
        )


def _definitions(cells: Any) -> tuple[dict[str, str], dict[str, _Definition]]:
    """Imports of all names of a module, with the module; and by name, the last statement that defines it."""
    stars: dict[str, str] = {}
    found: dict[str, _Definition] = {}
    for cell in cells:
        try:
            statements = ast.parse(cell).body
        except (SyntaxError, ValueError):
            continue  # it did not run
        lines = cell.splitlines()
        for statement in statements:
            if not isinstance(statement, _DEFINING):
                continue
            text = _text(statement, lines)
            names = set(_bound(statement))
            if "*" in names:
                stars[text] = getattr(statement, "module", None) or ""
            table = symtable.symtable(text, "<cell>", "exec")
            definition = _Definition(text, frozenset(_used(table)), frozenset(_texts(statement)))
            found.update(dict.fromkeys(names - {"*"}, definition))
    return stars, found


def _text(statement: ast.stmt, lines: list[str]) -> str:
    decorators = getattr(statement, "decorator_list", [])
    first = min(node.lineno for node in (statement, *decorators))
    return "\n".join(lines[first - 1 : statement.end_lineno])


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement defines for its module."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def _used(table: symtable.SymbolTable) -> Iterator[str]:
    """The names that a statement asks of its module, in whatever function or class it does."""
    is_module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (is_module or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _used(inner)


def _texts(statement: ast.stmt) -> Iterator[str]:
    """Texts that may be annotations, and then name a class."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value
