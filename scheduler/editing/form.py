"""The schedule form: every mistake is told beside its field, with the value and the remedy.

What is declared in code goes through it as well (``declaring``), so there is one place that says what is valid.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.forms.utils import ErrorList
from django.utils import timezone

from locks import InvalidLockBackend, lock_backends
from locks.base import validate_name
from scheduler import recurrence as recurrences
from scheduler.advice import Advice, advice
from scheduler.dashboard.latest import p95_of
from scheduler.editing import meanwhile, naming
from scheduler.editing.arguments import ArgumentsField, cut
from scheduler.editing.cron_input import CronInput
from scheduler.editing.instants import InstantField, InstantInput
from scheduler.explain import FireTimePreview
from scheduler.models import LockName, Schedule
from scheduler.registry import exclusive_tasks
from scheduler.retargeting import ttl_problem

PREVIEWED = 5
LISTED = 20  # choices that an error names
INSTANTS = frozenset({"anchor", "once_at", "start_at", "end_at"})
# Where the recurrence names its arguments otherwise than the form its fields.
_FORM_FIELDS = {
    "expression": "cron_expression", "zone": "time_zone", "every": "every_seconds", "at": "once_at",
    "anchor": "anchor", "start_at": "start_at", "end_at": "end_at",
}  # fmt: skip


def can_be_stored(value: Any) -> bool:
    """Whether PostgreSQL takes what Python's parser took for JSON."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()  # half of a surrogate pair is refused here
    except ValueError:
        return False
    return "\\u0000" not in text.replace("\\\\", "")


class _Shown(forms.CharField):
    """What the form showed, by ``meanwhile``; nobody types it, so it is no change."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        return False


class ScheduleForm(forms.ModelForm):
    """One schedule, with the name of its lock and the strategy that guards it.

    The preview is computed by the recurrence that the ticker fires, from the values in the form.
    """

    may_change_strategy = True  # of a lock name that exists; by the user's permission
    stores = False  # what is valid is stored in the same transaction, so the rows are locked
    keeps_task = True  # a stored schedule may keep a task that is not declared any more

    task = forms.ChoiceField(help_text="Tasks declared with @exclusive_task.")
    lock_name = forms.CharField(
        max_length=200,
        required=False,
        help_text="What must not run twice at once. Empty: the lock name that the task declares, else the schedule's "
        "name. Schedules that share it exclude each other and share the strategy. Calls of the task, such as "
        "delay(), run under the lock name that it declares, else one made of the task's name.",
    )
    strategy = forms.ChoiceField(help_text="A change comes into force when nothing under the lock name is open.")
    reason = forms.CharField(
        max_length=500, required=False, help_text="Why this change is made; kept in the change history."
    )
    shown = _Shown(required=False, widget=forms.HiddenInput(attrs={"autocomplete": "off"}))

    class Meta:
        model = Schedule
        fields = (
            "name", "notes", "task", "args", "kwargs", "queue", "priority", "cron_expression", "time_zone",
            "every_seconds", "anchor", "once_at", "start_at", "end_at", "jitter_seconds", "ttl", "once_per_tick",
            "delivery", "overlap", "misfire", "misfire_grace", "catch_up_window", "max_attempts", "enabled",
        )  # fmt: skip
        field_classes: ClassVar = {
            "args": ArgumentsField, "kwargs": ArgumentsField, **dict.fromkeys(INSTANTS, InstantField),
        }  # fmt: skip
        widgets: ClassVar = {**dict.fromkeys(INSTANTS, InstantInput), "cron_expression": CronInput}  # not the admin's

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in INSTANTS & set(self.fields):  # a viewer's form has none
            self.fields[name].label = f"{self.fields[name].label} (UTC)"
        self._choices("task", self._task_choices())
        self._choices("strategy", [(alias, alias) for alias in lock_backends.aliases()])
        self._say_what_is_known()
        if self.instance.pk:
            self.fields["lock_name"].initial = self.instance.lock_id
            self.fields["strategy"].initial = self.instance.lock.alias_wanted
            self.fields["shown"].initial = meanwhile.shown(self.instance, _COMPARED)

    def _task_choices(self) -> list[tuple[str, str]]:
        names = list(exclusive_tasks())
        if self.keeps_task and self.instance.pk and self.instance.task not in names:
            names.append(self.instance.task)
        return [(name, name) for name in names]

    def _choices(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", "---------"), *choices]

    def _say_what_is_known(self) -> None:
        for field in self.fields.values():
            if isinstance(field, forms.ChoiceField):
                choices: Any = field.choices
                known = [str(value).replace("%", "%%") for value, _ in choices if value != ""]
                more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
                told = f"{', '.join(known[:LISTED])}{more}" if known else "none yet"
                field.error_messages["invalid_choice"] = f'"%(value)s" is not known here. Known: {told}.'

    def recurrence(self) -> recurrences.Recurrence | None:
        """The recurrence that the form's values name, or None where they name none that is valid."""
        try:
            return self.instance.recurrence()
        except (recurrences.InvalidRecurrence, TypeError, ValueError):
            return None

    def preview(self) -> list[FireTimePreview]:
        """The next fire times of the values in the form."""
        recurrence = self.recurrence()
        return recurrence.preview(timezone.now(), PREVIEWED) if recurrence else []

    def jitter(self) -> float:
        """Up to how many seconds after its fire time a run is published; 0 where the form says none that is valid."""
        return getattr(self.instance, "jitter_seconds", 0) if "jitter_seconds" not in self.errors else 0

    def surprises(self) -> list[recurrences.RecurrenceWarning]:
        """What may surprise in the recurrence."""
        recurrence = self.recurrence()
        return recurrences.warnings(recurrence, timezone.now()) if recurrence else []

    def alias(self) -> str:
        """The strategy as the form has it."""
        chosen = self.data.get("strategy") if self.is_bound else self.fields["strategy"].initial
        return str(chosen or "")

    def advice(self) -> list[Advice]:
        """What is valid and will surprise all the same, beside its field."""
        p95 = p95_of([self.instance.pk])[self.instance.pk] if self.instance.pk else None
        given = self.cleaned_data.get("lock_name") if self.is_bound else self.fields["lock_name"].initial
        told = advice(self.instance, self.alias(), p95, lock_name=given or "")
        return [one for one in told if one.field not in self.errors]

    def clean_args(self) -> list[Any]:
        return self._json("args", list, "[]", 'a JSON list, for example ["north"]')

    def clean_kwargs(self) -> dict[str, Any]:
        return self._json("kwargs", dict, "{}", 'a JSON object, for example {"region": "north"}')

    def _json(self, field: str, kind: type, empty: str, wanted: str) -> Any:
        value = self.cleaned_data[field]
        value = json.loads(empty) if value in (None, "") else value
        if not isinstance(value, kind):
            raise ValidationError(f"This must be {wanted}; you gave {cut(json.dumps(value))}.")
        if not can_be_stored(value):
            raise ValidationError(
                "NaN, infinity, the character NUL and half a surrogate pair cannot be stored; write null, or a text."
            )
        return value

    def clean_lock_name(self) -> str:
        name: str = self.cleaned_data["lock_name"]
        try:
            if name:
                return validate_name(name)
            return naming.derived(self._name(), self.instance.pk, self.cleaned_data.get("task"))
        except ValueError as refusal:
            raise ValidationError(str(refusal)) from refusal

    def _name(self) -> str:
        return str(self.cleaned_data.get("name") or self.data.get("name") or "")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        self._check_stored(cleaned)
        self._check_strategy(cleaned)
        self._check_permission(cleaned)
        self._check_arguments(cleaned)
        return cleaned

    def _check_stored(self, cleaned: dict[str, Any]) -> None:
        """Nothing of it is open under a name that it is to leave, and nothing that others changed would be undone."""
        if not self.instance.pk:
            return
        name = cleaned.get("lock_name") or self.instance.lock_id
        stored = meanwhile.hold(self.instance.pk, name) if self.stores else self.instance
        if stored is None:
            self.add_error(None, "Nothing was stored: it was deleted while this form was open.")
            return
        if name != stored.lock_id and (refusal := naming.refusal(stored, self.may_change_strategy)):
            self.add_error("lock_name", refusal)
        told = cleaned.get("shown") or ""
        fields = meanwhile.moved(told, stored, cleaned, _COMPARED) if self.stores else []
        if fields:
            self.add_error(None, meanwhile.said(told, stored, fields))
            # The next one is compared with what this one told.
            self.data = {**self.data.dict(), "shown": meanwhile.shown(stored, _COMPARED)}  # type: ignore[attr-defined]

    def _check_strategy(self, cleaned: dict[str, Any]) -> None:
        """The strategy exists here, its store is configured, and it can honour the TTL and the task's limit."""
        alias, ttl = cleaned.get("strategy"), cleaned.get("ttl")
        if not alias:
            return
        try:
            backend = lock_backends[alias]
        except InvalidLockBackend as problem:
            self.add_error("strategy", f"{problem} Correct LOCKS or choose another strategy.")
            return
        # An edit that touches nothing of this is let through: a schedule stored by code can be switched off here.
        if self.instance.pk and not {"task", "lock_name", "strategy", "ttl"}.intersection(self.changed_data):
            return
        refusal = ttl_problem(backend, cleaned.get("task"), ttl)
        if refusal:
            self.add_error("ttl", refusal)

    def _check_permission(self, cleaned: dict[str, Any]) -> None:
        """A strategy is the lock name's: whoever changes it changes it for every schedule that shares the name."""
        if self.may_change_strategy or "strategy" in self.errors:
            return
        stored = LockName.objects.filter(name=cleaned.get("lock_name") or "").first()
        if stored is not None and stored.alias_wanted != cleaned.get("strategy"):
            self.add_error(
                "strategy",
                f'Lock name "{stored.name}" has strategy {stored.alias_wanted}. To change it you need the permission '
                "change_strategy; keep it, or ask somebody who has it.",
            )

    def _check_arguments(self, cleaned: dict[str, Any]) -> None:
        """The task would accept these arguments: told here instead of failing at every tick."""
        task = exclusive_tasks().get(cleaned.get("task") or "")
        if task is None or "args" in self.errors or "kwargs" in self.errors:
            return
        try:
            task.__header__(*(cleaned.get("args") or []), **(cleaned.get("kwargs") or {}))
        except TypeError as refusal:
            self.add_error("kwargs", f"{task.name} does not take these arguments: {refusal}.")

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # Django's hook for checks that need the instance
        recurrence_fields = ("cron_expression", "every_seconds", "once_at")
        given = [name for name in recurrence_fields if self._is_given(name)]
        if len(given) != 1:
            self.errors.pop(NON_FIELD_ERRORS, None)  # the same, told by the name of a constraint
            told = "none is given" if not given else f"{len(given)} are given"
            self.add_error("cron_expression", f"Give exactly one of cron, every and once at; {told}.")
            return
        if given[0] in self.errors:
            return
        try:
            recurrence = self.instance.recurrence()
            if recurrence.next_after(timezone.now()) is None and not self.instance.pk:
                self.add_error(given[0], "This never fires: its last fire time has passed. Give a later time.")
        except recurrences.InvalidRecurrence as problem:
            field = _FORM_FIELDS.get(problem.field, "cron_expression")
            if field not in self.errors:
                self.add_error(field, problem.message)
        else:
            self._check_jitter()

    def _is_given(self, name: str) -> bool:
        """Also where what was given is refused."""
        return name in self.errors or self.cleaned_data.get(name) not in (None, "")

    def _check_jitter(self) -> None:
        try:
            self.instance.check_jitter()
        except ValueError as problem:
            self._drop_error("jitter")  # the same, told by the name of a constraint
            self.add_error("jitter_seconds", str(problem))

    def _drop_error(self, code: str) -> None:
        kept = [e for e in self.errors.get(NON_FIELD_ERRORS, ErrorList()).as_data() if e.code != code]
        self.errors.pop(NON_FIELD_ERRORS, None)
        for error in kept:
            self.add_error(None, error)

    def store_lock(self) -> LockName:
        """Make or change the row of the lock name; the ticker puts the strategy in force when it is safe."""
        lock, _ = LockName.objects.update_or_create(
            name=self.cleaned_data["lock_name"], defaults={"alias_wanted": self.cleaned_data["strategy"]}
        )
        return lock


# What a form stores, and what may have been changed by others meanwhile.
_COMPARED = (*ScheduleForm.Meta.fields, "lock_name", "strategy")
