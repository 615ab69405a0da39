"""How a test lets a body out that would be inside for long.

By a file, not by a row: a body that asked the database again and again could be cut short in the middle of a
statement, and would then end with the trouble of its connection instead of what cut it short.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

FOLDER = "AEGIS_TEST_DOORS"  # the environment variable; each test has a folder of its own


def _door(schedule: str) -> Path:
    return Path(os.environ[FOLDER]) / f"open-{quote(schedule, safe='')}"  # a call has no schedule


def open_door(schedule: str) -> None:
    """Let every body of the schedule out, those that come later too."""
    _door(schedule).touch()


def is_open(schedule: str) -> bool:
    return _door(schedule).exists()
