"""Instants in forms: in UTC, whatever the zone of the site, in one input."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone

from scheduler.recurrence_rules import InvalidRecurrence, check_year


class InstantInput(forms.DateTimeInput):
    """One input; its value is as browsers read it, in any language of the site."""

    input_type = "datetime-local"

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs={"step": "1", **(attrs or {})}, format="%Y-%m-%dT%H:%M:%S")


class InstantField(forms.DateTimeField):
    """An instant in UTC; the label has to say so."""

    widget = InstantInput
    default_error_messages: ClassVar = {
        "invalid": "This is no date and time; write for example 2027-01-31 06:00.",
    }

    def to_python(self, value: Any) -> datetime | None:
        with timezone.override(UTC):
            found: datetime | None = super().to_python(value)
        try:
            check_year("instant", found)
        except InvalidRecurrence as problem:
            raise ValidationError(problem.message) from problem
        return found

    def prepare_value(self, value: Any) -> Any:
        with timezone.override(UTC):
            return super().prepare_value(value)
