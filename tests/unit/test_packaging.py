"""What the wheel carries, and what it does not."""

from __future__ import annotations

import email
import re
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

PROJECT = Path(__file__).resolve().parent.parent.parent
IGNORED = ("__pycache__", ".mypy_cache")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    (built,) = WheelBuilder(str(PROJECT)).build(
        directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"]
    )
    return zipfile.ZipFile(built)


def files_below(folder: str) -> set[str]:
    found = (path for path in (PROJECT / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(PROJECT)) for path in found if not set(IGNORED).intersection(path.parts)}


@pytest.mark.parametrize("package", ["locks", "scheduler"])
def test_every_file_of_the_apps_is_in_it(wheel: zipfile.ZipFile, package: str) -> None:
    assert files_below(package) - set(wheel.namelist()) == set()
    assert {f"{package}/migrations/0001_initial.py", f"{package}/py.typed"} <= set(wheel.namelist())


@pytest.mark.parametrize("folder", ["templates/scheduler", "templates/admin"])
def test_templates_lie_where_an_apps_templates_are_looked_for(wheel: zipfile.ZipFile, folder: str) -> None:
    expected = {f"scheduler/{name}" for name in files_below(folder)}
    assert expected
    assert expected - set(wheel.namelist()) == set()


def test_the_site_and_the_tests_are_not_in_it(wheel: zipfile.ZipFile) -> None:
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"locks", "scheduler"}


def test_it_names_its_pythons_and_djangos(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(wheel.read(name))
    assert metadata["Requires-Python"] == "<3.14,>=3.11"
    assert "django<6.1,>=5.2" in metadata.get_all("Requires-Dist", [])
    named = re.findall(r"dist/([\w.-]+\.whl)", (PROJECT / "docs/tutorial/quickstart.md").read_text())
    assert set(named) == {Path(wheel.filename or "").name}


def test_beat_finds_the_scheduler_by_a_short_name(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    assert wheel.read(name).decode().split() == [
        "[celery.beat_schedulers]", "aegis", "=", "scheduler.beat:CatalogScheduler",
    ]  # fmt: skip
