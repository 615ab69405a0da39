"""What a deployment installs is enough: requirements.txt, without what the tests need."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent

IMPORT_ALL = """
import importlib, pkgutil, sys

class Missing:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing)
import django
django.setup()
import aegis_site, locks, scheduler
for package in (aegis_site, locks, scheduler):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda name: None):
        if not found.name.startswith("locks.testing"):
            importlib.import_module(found.name)
            print(found.name)
"""


def named_in(file: str) -> set[str]:
    """The distributions of a requirements file, written as their metadata may write them."""
    names = re.findall(r"^([A-Za-z0-9][\w.-]*)", (PROJECT / file).read_text(), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def test_everything_but_the_suite_for_tests_is_imported_with_what_a_deployment_installs() -> None:
    deployed = named_in("requirements.txt")
    modules = [
        module
        for module, owners in packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} & deployed
    ]
    assert "pytest" in modules
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *modules], cwd=PROJECT, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert "aegis_site.soak.fleet" in run.stdout.split()
    assert "scheduler.runner" in run.stdout.split()
