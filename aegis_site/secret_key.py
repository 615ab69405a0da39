"""The signing key of an embedded demo: made once, kept under `.aegis/`, readable by its owner only."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from django.core.management.utils import get_random_secret_key


def demo_secret_key(folder: Path) -> str:
    """Return the key in `folder`, making it first where there is none.

    Two processes may come here at once. Each writes a file of its own and links it to the common name; the
    link fails for the second, which then reads the first one's key. Where the folder cannot be written (a
    read-only image), the key lives as long as this process.
    """
    path = folder / "secret-key"
    try:
        return path.read_text()
    except FileNotFoundError:
        pass
    key = get_random_secret_key()
    try:
        folder.mkdir(mode=0o755, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix="secret-key-") as file:  # made with mode 0600
            file.write(key)
            file.flush()
            os.link(file.name, path)
    except FileExistsError:
        return path.read_text()
    except OSError:
        return key
    return key
