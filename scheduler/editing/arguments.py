"""The JSON of a schedule's arguments, as a form reads it."""

from __future__ import annotations

from json import JSONDecodeError
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.fields import InvalidJSONInput

from scheduler.models.readable import depth

DEEPEST = 100  # levels: whoever reads them again has calls of its own on its stack
SHOWN = 60  # characters of a value in an error


def cut(text: str) -> str:
    """The beginning of what was given, for an error."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


class ArgumentsField(forms.JSONField):
    """JSON that every process can read again: not too deep, and no number too long for Python's parser."""

    def to_python(self, value: Any) -> Any:
        try:
            found = super().to_python(value)
        except RecursionError:
            raise self._too_deep(value) from None
        except ValidationError as refusal:
            raise self._no_json(refusal, value) from refusal
        except ValueError as refusal:  # a number with more digits than sys.get_int_max_str_digits()
            raise ValidationError(
                f"A number in this has too many digits; write it as a text. You gave {cut(value)}", code="number"
            ) from refusal
        if depth(found) > DEEPEST:
            raise self._too_deep(value)
        return found

    def bound_data(self, data: Any, initial: Any) -> Any:
        """What was typed is shown again as it was typed where it cannot be read."""
        try:
            found = super().bound_data(data, initial)
        except (RecursionError, ValueError):
            return InvalidJSONInput(data)
        return InvalidJSONInput(data) if depth(found) > DEEPEST else found

    @staticmethod
    def _no_json(refusal: ValidationError, value: Any) -> ValidationError:
        """Where it stops to be JSON, which Django leaves out."""
        cause = refusal.__context__
        if not isinstance(cause, JSONDecodeError):
            return refusal
        where = f"line {cause.lineno}, column {cause.colno}"
        return ValidationError(
            f"This is no JSON from {where} on: {cause.msg}. You gave {cut(str(value))}", code="invalid"
        )

    @staticmethod
    def _too_deep(value: Any) -> ValidationError:
        return ValidationError(
            f"Lists and objects are nested more than {DEEPEST} deep; nest them less. You gave {cut(str(value))}",
            code="depth",
        )
