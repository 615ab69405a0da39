"""`locks` knows Django and redis: neither Celery nor the scheduler nor the demo site."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import locks

PACKAGE = Path(locks.__file__).parent
FORBIDDEN = {"celery", "kombu", "billiard", "django_celery_beat", "scheduler", "aegis_site", "tests"}

PROBE = """
import sys
from django.conf import settings
settings.configure(INSTALLED_APPS=["locks"], LOCKS={"x": {"BACKEND": "locks.backends.redlock.RedlockBackend",
    "LOCATION": ["redis://a", "redis://b", "redis://c"]}}, DATABASES={})
import django; django.setup()
from locks import exclusive, lock_backends
lock_backends["x"]
print(sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[1].split(","))))
"""


def test_no_module_names_a_forbidden_one() -> None:
    named = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in imported(node)
        if name.partition(".")[0] in FORBIDDEN
    }
    assert named == set()


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module]
    return []


def test_none_is_loaded_either_and_no_test_tool() -> None:
    names = ",".join(sorted({*FORBIDDEN, "pytest"}))
    probe = subprocess.run(
        [sys.executable, "-c", PROBE, names], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    assert probe.stdout.strip() == "[]"
