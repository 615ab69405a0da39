"""What a task is given and what a body raised: for those who may see it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from scheduler.changes import note
from scheduler.models import Execution, Schedule
from scheduler.runner import run
from tests.support.engine import delivery_of, make_schedule, make_tick
from tests.support.pages import staff

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "4111-1111"
VIEWS = ("view_schedule", "view_schedulechange", "view_tick", "view_execution")


def raises(context: Any) -> None:
    raise ValueError(f"card {SECRET} was refused")


def pages() -> list[str]:
    schedule = make_schedule(kwargs={"card": SECRET})
    tick = make_tick(schedule)
    run(delivery_of(tick), raises)
    change = note(schedule, {"kwargs": [{"card": SECRET}, {"card": f"{SECRET}!"}]}, why="moved", who="ada")
    rows = {
        "schedule": schedule,
        "tick": tick,
        "execution": Execution.objects.get(tick=tick),
        "schedulechange": change,
    }
    return [
        *(reverse(f"admin:aegis_scheduler_{kind}_change", args=[row.pk]) for kind, row in rows.items()),
        *(reverse(f"admin:aegis_scheduler_{kind}_changelist") for kind in rows),
        reverse("admin:aegis_scheduler_schedule_page", args=[schedule.pk]),
    ]


def showing(client: Client, user: User) -> set[str]:
    client.force_login(user)
    answers = {page: client.get(page) for page in pages()}
    assert {page for page, answer in answers.items() if answer.status_code != 200} == set()
    return {page for page, answer in answers.items() if SECRET in answer.content.decode()}


def test_a_viewer_sees_neither_arguments_nor_errors(client: Client) -> None:
    assert showing(client, staff("vera", *VIEWS)) == set()


ASKED = (
    ("tick", "kwargs__card__startswith=4"),
    ("tick", "args__contains=4"),
    ("tick", "call_options__has_key=link"),
    ("schedule", "kwargs__card__startswith=4"),
    ("execution", "error__contains=4"),
    ("execution", "tick__kwargs__card=4"),
    ("schedulechange", "before__kwargs__card__startswith=4"),
    ("schedulechange", "after__kwargs__icontains=4"),
    ("tick/export/csv", "kwargs__card__startswith=4"),
    ("execution/export/csv", "error__contains=4"),
)


def asked(client: Client, user: User) -> dict[tuple[str, str], int]:
    client.force_login(user)
    pages()
    lists = reverse("admin:app_list", args=["aegis_scheduler"])
    return {(page, query): client.get(f"{lists}{page}/?{query}").status_code for page, query in ASKED}


def test_a_viewer_learns_nothing_by_filters(client: Client) -> None:
    assert {*asked(client, staff("vera", *VIEWS, "export_execution")).values()} == {400}


def test_neither_a_search_nor_an_order_reaches_what_is_private(client: Client) -> None:
    client.force_login(staff("vera", *VIEWS))
    pages()
    for page in ("tick", "schedule", "execution", "schedulechange"):
        address = reverse(f"admin:aegis_scheduler_{page}_changelist")
        shown = client.get(address, {"q": SECRET}).context["cl"]
        assert shown.result_count == 0
        ordered = {str(shown.get_ordering_field(column)) for column in shown.list_display}
        assert ordered.isdisjoint({"args", "kwargs", "call_options", "error", "before", "after"})


def test_whoever_may_see_them_may_filter_by_them(client: Client) -> None:
    answers = asked(client, staff("otto", *VIEWS, "export_execution", "view_arguments"))
    # Django itself lets nobody ask for a field of another table that is no filter of the list.
    assert {one for one, status in answers.items() if status != 200} == {("execution", "tick__kwargs__card=4")}


def test_with_the_permission_they_are_on_the_pages_of_single_rows(client: Client) -> None:
    shown = showing(client, staff("otto", *VIEWS, "view_arguments"))
    assert {page.split("/")[3] for page in shown} == {"schedule", "tick", "execution", "schedulechange"}


def test_whoever_may_change_a_schedule_sees_and_keeps_its_arguments(client: Client) -> None:
    shown = showing(client, staff("carl", *VIEWS, "change_schedule"))
    pk = Schedule.objects.get().pk
    assert shown == {reverse("admin:aegis_scheduler_schedule_change", args=[pk])}
