"""The direction of imports, and the size of files and functions, read from the source.

aegis_site -> scheduler -> locks -> django. `locks` knows nothing of Celery; `scheduler` uses the public API
of `locks` only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
FORBIDDEN = {
    "locks": ("scheduler", "aegis_site", "tests", "celery", "kombu", "billiard", "django_celery_beat"),
    "scheduler": ("aegis_site", "tests", "locks.backends"),
    "aegis_site": ("tests",),
    "aegis_site/embedded": (
        "django",
        "scheduler",
        "locks",
        "celery",
        "aegis_site.demo",
        "aegis_site.settings",
    ),
}
PURE = (
    "locks/base.py",
    "locks/clock.py",
    "locks/exceptions.py",
    "scheduler/states.py",
    "scheduler/recurrence.py",
)
CONSTANTS = "django.db.models.TextChoices"  # an enumeration; it needs no store
IMPURE = ("django.db", "django.conf", "django.utils.timezone", "celery", "psycopg", "redis")
LINES_OF_FILE = 300
LINES_OF_FUNCTION = 40
UNMEASURED = ("migrations", "testing", "testing.py")  # the suite of the contract is one long list of cases


def sources(folder: str) -> list[Path]:
    return sorted((PROJECT / folder).rglob("*.py"))


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """The full names that a file imports, in functions as well, with lines; `from a import b` gives a.b."""
    package = path.relative_to(PROJECT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*start, *([node.module] if node.module else [])))
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def wrong_imports(path: Path, forbidden: tuple[str, ...]) -> list[str]:
    return [
        f"{path.relative_to(PROJECT)}:{line} imports {name}"
        for line, name in imported(path)
        if name != CONSTANTS and any(name == module or name.startswith(f"{module}.") for module in forbidden)
    ]


def own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without its decorators and its docstring."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        assert docstring.end_lineno is not None
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


def long_functions(path: Path) -> list[str]:
    return [
        f"{path.relative_to(PROJECT)}:{node.lineno} {node.name} has {own_lines(node)} lines"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and own_lines(node) > LINES_OF_FUNCTION
    ]


def measured() -> list[Path]:
    return [
        path
        for folder in ("locks", "scheduler", "aegis_site")
        for path in sources(folder)
        if not set(UNMEASURED).intersection(path.relative_to(PROJECT).parts)
    ]


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_no_import_goes_the_wrong_way(folder: str) -> None:
    assert sources(folder)
    assert [found for path in sources(folder) for found in wrong_imports(path, FORBIDDEN[folder])] == []


@pytest.mark.parametrize("path", PURE)
def test_pure_modules_use_no_store_and_no_settings(path: str) -> None:
    assert wrong_imports(PROJECT / path, IMPURE) == []


def test_a_file_is_one_concept() -> None:
    lengths = {path.relative_to(PROJECT): len(path.read_text().splitlines()) for path in measured()}
    assert {str(path): lines for path, lines in lengths.items() if lines > LINES_OF_FILE} == {}


def test_a_function_fits_a_screen() -> None:
    assert [found for path in measured() for found in long_functions(path)] == []


def test_a_wrong_import_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: names within functions, renamed ones and sub-modules are seen."""
    monkeypatch.setattr("tests.unit.test_imports.PROJECT", tmp_path)
    module = tmp_path / "locks" / "module.py"
    module.parent.mkdir()
    lines = ("import celery.app as fine", "def f():", "    from . import backends", "    import locksmith")
    module.write_text("\n".join(lines))
    assert wrong_imports(module, ("celery", "locks.backends")) == [
        "locks/module.py:1 imports celery.app",
        "locks/module.py:3 imports locks.backends",
    ]
