"""The input of a cron expression: common ones are suggested by the list that the form's page carries."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.widgets import AdminTextInputWidget


class CronInput(AdminTextInputWidget):
    """Any text may be typed."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs={"list": "cron-presets", "autocomplete": "off", **(attrs or {})})
