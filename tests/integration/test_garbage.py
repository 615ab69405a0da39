"""Every list and page of the admin, asked for with what no link of ours would say: never an error of the server."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Model
from django.test import Client
from django.urls import NoReverseMatch, reverse

from tests.support.engine import make_schedule, make_tick

pytestmark = pytest.mark.django_db

# Each by itself: what is refused first would hide the others.
NAMES = (
    "window", "from", "to", "schedule", "strategy", "at", "selected", "state", "lock_alias", "name", "p", "o", "q",
    "run", "time_zone", "queue", "overlaps", "worker", "kind",
)  # fmt: skip
# All names at once.
GARBAGE = (
    "-1", "9" * 20, "9" * 5_000, "nan", "x" * 5_000, "é", "' OR 1=1", "<script>", "2027-13-45T99:99:99Z",
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2027-03-27T12:00:00+99:99", "1900-01-01T00:00:00Z",
    "2999-12-31T23:59:59Z",
)  # fmt: skip
OURS = [model for model in admin.site._registry if model._meta.app_label in ("aegis_scheduler", "aegis_locks")]


def addresses(model: type[Model]) -> list[str]:
    found = []
    for view, args in (("changelist", []), ("data", []), ("export", ["csv"])):
        try:
            found.append(reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}", args=args))
        except NoReverseMatch:
            continue
    return found


@pytest.mark.parametrize("model", OURS, ids=lambda model: model._meta.model_name)
def test_no_parameter_is_an_error_of_the_server(model: type[Model]) -> None:
    client = Client()
    client.force_login(get_user_model()._default_manager.create_superuser("root", "", "x"))
    make_tick(make_schedule("one"))
    asked = [{name: "\x00"} for name in NAMES] + [dict.fromkeys(NAMES, value) for value in GARBAGE]
    for address in addresses(model):
        for parameters in asked:
            answer = client.get(address, parameters)
            if answer.streaming:
                b"".join(answer)
            assert answer.status_code < 500, (address, parameters)
