"""Owns a rule of how we write: a docstring, a comment and the name of a test name their actor."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import tenuto
import tenuto.search

ROOT = Path(__file__).parents[2]
UNNAMED = re.compile(r"\b(whoever|somebody|someone|anybody|who (waits|asks|reads|looks))\b", re.IGNORECASE)
VAGUE = re.compile(
    r"\b(business|everybody|everyone|anyone|those who"
    r"|(?<!person )(?<!member )who (has|uses|needs|holds|starts|started|asked|runs))\b",
    re.IGNORECASE,
)
"""What no room of the house says either."""
HOUSE = re.compile(
    r"\b(thrice|go(?:es)? on|mend(?:s|ed)?|doors?|faces?|strays|playhead|unless told|wish(?:es)?)\b",
    re.IGNORECASE,
)
"""Words that are read twice; the plain ones: three times, continue, fix, kind, page, terminal, request."""
NAMELESS = re.compile(
    r"\b(whoever|somebody|someone|anybody|anyone|everybody|everyone|(?<!person )(?<!user )who)\b"
    r"|^(it|nobody) |^what (is|was|has|had|can|cannot|may|must|came|comes|changes|ended|failed|fails|left"
    r"|makes|matters|names|needs|passes|ran|runs|steers|used|waits) ",
)
"""A test whose name has no subject: ``what is done``, ``it works``."""


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Each line of a comment or a docstring, with its number."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT)
        if token.type == tokenize.COMMENT or is_docstring:
            yield from enumerate(token.string.splitlines(), token.start[0])
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING):
            before = token.type


def unnamed(text: str, pattern: re.Pattern[str] = UNNAMED) -> list[int]:
    if not pattern.search(text):
        return []  # nothing to be found: a source is taken apart in a hundred times the time of a search
    return [number for number, line in sentences(text) if pattern.search(line)]


def test_a_sentence_names_its_actor() -> None:
    files = [path for room in ("src", "proof", "bench") for path in sorted((ROOT / room).rglob("*.py"))]
    found = [
        f"{path.relative_to(ROOT)}:{line}" for path in files for line in unnamed(path.read_text("utf-8"))
    ]
    assert not found, "write scheduler, runner, owner, job, caller: " + ", ".join(found)


def test_a_sentence_of_the_house_names_what_decides() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "src" / "tenuto").rglob("*.py"))
        for line in unnamed(path.read_text("utf-8"), VAGUE)
    ]
    assert not found, "name the one that has, uses or decides it: " + ", ".join(found)


def test_a_source_says_it_in_plain_words() -> None:
    pattern = re.compile(HOUSE.pattern.replace(r"doors?|", ""), re.IGNORECASE)  # `Door` is a class
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "src" / "tenuto").rglob("*.py"))
        for line in unnamed(path.read_text("utf-8"), pattern)
    ]
    assert not found, "write continue, repair, view, request, by default: " + ", ".join(found)


def house_words(text: str) -> list[int]:
    """The lines of a page that have such a word outside of code."""
    prose = re.sub(
        r"^ *```(?!console).*?^ *```\s*$|`[^`\n]*`",
        lambda code: "\n" * code[0].count("\n"),
        text,
        flags=re.MULTILINE | re.DOTALL,
    )
    return [number for number, line in enumerate(prose.splitlines(), 1) if HOUSE.search(line)]


def house_words_of_messages(text: str) -> list[int]:
    """The lines of a source whose strings, the help of commands among them, have such a word."""
    if not HOUSE.search(text):
        return []
    nodes = list(ast.walk(ast.parse(text)))
    notes = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    commands = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.FunctionDef) and isinstance(node.body[0], ast.Expr)
        if any("command" in ast.unparse(one) or "group" in ast.unparse(one) for one in node.decorator_list)
    }
    return [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
        if (id(node) not in notes or id(node) in commands) and HOUSE.search(node.value)
    ]


def test_a_page_and_a_message_say_it_in_plain_words() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "bench" / "README.md"]
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in pages
        if path.name != "CHANGELOG.md"
        for line in house_words(path.read_text("utf-8"))
    ]
    found += [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "src" / "tenuto").rglob("*.py"))
        for line in house_words_of_messages(path.read_text("utf-8"))
    ]
    assert not found, "write continue, fix, three times, kind, page or terminal: " + ", ".join(found)


def documented() -> Iterator[tuple[str, str]]:
    """What the reference of the site shows: each public name with its docstring."""
    for package in (tenuto, tenuto.search):
        for name in sorted(set(package.__all__) - {"__version__"}):
            value = getattr(package, name)
            inner = vars(value).items() if inspect.isclass(value) else ()
            public = [(f"{name}.{one}", of) for one, of in inner if not one.startswith("_")]
            for dotted, of in [(name, value), *public]:
                yield dotted, (inspect.getdoc(of) or "") if callable(of) or isinstance(of, property) else ""


def test_the_reference_says_it_in_plain_words() -> None:
    found = [name for name, text in documented() if HOUSE.search(text)]
    assert not found, "write continue, fix, three times, kind, page or terminal: " + ", ".join(found)


def test_the_rule_reads_prose_and_messages_only() -> None:
    page = "It `goes on`.\n\n```python\ngo on\n```\n\nIt goes on, thrice.\n"
    assert house_words(page) == [7]
    source = 'def f(door):\n    """It goes on."""\n    raise ValueError(f"{door} goes on")\n'
    assert house_words_of_messages(source) == [3]


def nameless(text: str) -> list[str]:
    """The tests of a source whose names have no subject."""
    names = [found.replace("_", " ") for found in re.findall(r"def test_(?:\d+_)?(\w+)", text)]
    return [name for name in names if NAMELESS.search(name)]


def test_a_test_and_its_sentences_name_their_actor() -> None:
    files = [path for room in ("tests", "src/tenuto/testing") for path in sorted((ROOT / room).rglob("*.py"))]
    files.remove(Path(__file__))
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in files}
    sentences_found = [
        f"{name}:{line}"
        for name, text in texts.items()
        for pattern in (UNNAMED, VAGUE)
        for line in unnamed(text, pattern)
    ]
    names_found = [f"{name}: {found}" for name, text in texts.items() for found in nameless(text)]
    assert not sentences_found, "write scheduler, runner, owner, job, caller: " + ", ".join(sentences_found)
    assert not names_found, "begin with the noun that the test is about: " + ", ".join(names_found)


def test_a_name_without_a_subject_is_seen() -> None:
    names = (
        "what_is_done_is_kept it_works 07_what_runs_is_spared nobody_waits a_job_that_somebody_has "
        "who_waits_is_told what_a_job_says_is_kept a_user_who_waits_is_told a_job_says_what_is_done"
    )
    text = "".join(f"def test_{name}(): ...\n" for name in names.split())
    assert len(nameless(text)) == 6


def test_the_rule_reads_comments_and_docstrings_only() -> None:
    text = (
        '"""Whoever reads."""\n\nX = "somebody"  # anybody\n\ndef f():\n    """The caller."""\n    return 1\n'
    )
    assert unnamed(text) == [1, 3]
