"""The lists of executions and ticks, and their export: the filter's rows, names that stay, nothing that runs."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from io import StringIO
from subprocess import PIPE
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from scheduler.exporting import EXPORTS, neutral
from scheduler.models import Schedule
from tests.browser import seed
from tests.support.engine import make_schedule
from tests.support.processes import PROJECT, database_url

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "admin:aegis_scheduler_execution_changelist"


@pytest.fixture
def exporter(client: Client) -> Client:
    client.force_login(staff("view_execution", "view_tick", "export_execution"))
    return client


def staff(*codenames: str) -> User:
    user = User.objects.create_user("-".join(codenames)[:30], is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def export(client: Client, form: str, kind: str = "execution", **query: str) -> str:
    response = client.get(reverse(f"admin:aegis_scheduler_{kind}_export", args=[form]), query)
    assert response.status_code == 200
    assert response.streaming
    return b"".join(response.streaming_content).decode()  # type: ignore[arg-type]


def table(text: str) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(text, newline=""))]


def few(name: str = "cleanup", number: int = 3) -> Schedule:
    schedule = make_schedule(name, lock_name="few")
    for ago in range(number):
        holder = seed.ran(seed.tick(schedule, -60 * ago), "worker@1", 0.25, 3.0, token=ago + 1)
        seed.refused(holder.tick, "worker@2", 0.5, "prevented", holder=holder)
    return schedule


def test_csv_has_the_documented_header_and_the_rows_of_the_filter(exporter: Client) -> None:
    few()
    few("other", 2)
    rows = table(export(exporter, "csv", state__exact="prevented"))
    assert [*rows[0]] == EXPORTS["executions"].header()
    assert len(rows) == 5
    assert {row["outcome"] for row in rows} == {"prevented"}
    one = table(export(exporter, "csv", worker="worker@1", q="cleanup"))
    assert sorted(row["due"] for row in one) == [
        f"2027-03-27T{at}.000Z" for at in ("11:58:00", "11:59:00", "12:00:00")
    ]
    assert {(row["rivals"], row["manual"], row["tick_guard"]) for row in one} == {("1", "false", "true")}


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_name_of_any_alphabet_is_exported_as_it_is(exporter: Client, form: str) -> None:
    name = "gęślą 每晚 💶 تقرير"
    few(name, 1)
    text = export(exporter, form)
    rows = table(text) if form == "csv" else [json.loads(line) for line in text.splitlines()]
    assert {row["schedule"] for row in rows} == {name}


def test_json_parses_line_by_line(exporter: Client) -> None:
    schedule = few(number=2)
    rows = [json.loads(line) for line in export(exporter, "json").splitlines()]
    assert len(rows) == 4
    assert {row["schedule"] for row in rows} == {schedule.name}
    assert [row["token"] for row in rows if row["outcome"] == "executed"] == [2, 1]
    ticks = [json.loads(line) for line in export(exporter, "json", "tick").splitlines()]
    assert [*ticks[0]] == EXPORTS["ticks"].header()
    assert len(ticks) == 2


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_a_cell_that_looks_like_a_formula_is_neutralised_in_csv_only(exporter: Client, start: str) -> None:
    name = f"{start}1+1|'x'!A0".strip() if start in "=+-@" else "plain"
    few(name, 1)
    reason = f"{start}cmd"
    connection.cursor().execute("UPDATE aegis_scheduler_execution SET reason = %s", [reason])
    rows = table(export(exporter, "csv"))
    assert {row["reason"] for row in rows} == {f"'{reason}"}
    assert all(not row["schedule"].startswith(("=", "+", "-", "@")) for row in rows)
    assert json.loads(export(exporter, "json").splitlines()[0])["reason"] == reason
    assert neutral(-1.5) == -1.5


def test_more_rows_than_fit_are_cut_and_it_says_so(exporter: Client, settings: Any) -> None:
    settings.AEGIS = {"EXPORT_ROWS": 3}
    few(number=4)
    *_, last = export(exporter, "csv").splitlines()
    assert last == "\"Cut after 3 rows: narrow the filter, or raise AEGIS['EXPORT_ROWS'].\""
    *rows, notice = map(json.loads, export(exporter, "json").splitlines())
    assert (len(rows), [*notice]) == (3, ["notice"])


def test_export_needs_its_permission_and_a_list_that_is_there(client: Client, exporter: Client) -> None:
    assert exporter.get(reverse("admin:aegis_scheduler_execution_export", args=["xml"])).status_code == 404
    assert exporter.post(reverse("admin:aegis_scheduler_execution_export", args=["csv"])).status_code == 405
    client.force_login(staff("view_execution"))
    assert client.get(reverse("admin:aegis_scheduler_execution_export", args=["csv"])).status_code == 403
    assert "Export CSV" not in client.get(reverse(LIST)).content.decode()
    client.force_login(staff("export_execution"))
    assert client.get(reverse("admin:aegis_scheduler_execution_export", args=["csv"])).status_code == 403


def test_the_links_carry_the_filter_and_what_is_kept_is_said(exporter: Client, settings: Any) -> None:
    few()
    page = exporter.get(reverse(LIST), {"state__exact": "prevented"}).content.decode()
    assert "/export/csv/?state__exact=prevented" in page
    assert "aegis prune" in page
    settings.AEGIS = {"KEEP_DAYS": 30}
    page = exporter.get(reverse(LIST)).content.decode()
    assert "Beats delete what ended more than 30 days ago." in page and "aegis prune" not in page


def test_the_list_asks_the_same_number_of_queries_for_few_rows_and_for_many(exporter: Client) -> None:
    few(number=1)
    with CaptureQueriesContext(
        connection,
    ) as one:
        exporter.get(reverse(LIST))
    few("more", number=15)
    with CaptureQueriesContext(connection) as many:
        page = exporter.get(reverse(LIST)).content.decode()
    assert "worker@2" in page
    assert len(many) == len(one)
    distinct = [query["sql"] for query in many if "SELECT DISTINCT" in query["sql"]]
    assert not [
        sql for sql in distinct if "execution" in sql and "DATE_TRUNC" not in sql
    ]  # the date hierarchy is Django's


def test_an_export_is_one_query_however_many_rows(exporter: Client) -> None:
    few(number=20)
    with CaptureQueriesContext(connection) as asked:
        export(exporter, "csv")
    assert len([query for query in asked if "aegis_scheduler_execution" in query["sql"]]) <= 3


def test_filters_of_schedule_worker_and_strategy(exporter: Client) -> None:
    seed.fleet()
    schedule, other = few(), few("other", 1)
    for query, number in (
        ({"tick__schedule__id__exact": str(schedule.pk)}, 6),
        ({"tick__schedule__id__exact": str(other.pk), "worker": "worker@1"}, 1),
        ({"lock_alias": "database"}, 8),
        ({"lock_alias": "redis"}, 0),
        ({"tick__schedule__id__exact": "x"}, 0),
    ):
        assert len(table(export(exporter, "csv", **query))) == number, query


def test_the_command_writes_the_same_from_an_instant_on() -> None:
    few()
    out = StringIO()
    call_command("aegis", "export", "executions", "--since", "2027-03-27T11:59:00Z", stdout=out)
    rows = table(out.getvalue())
    assert [*rows[0]] == EXPORTS["executions"].header()
    assert len(rows) == 4
    out = StringIO()
    call_command("aegis", "export", "ticks", "--format", "json", "--schedule", "cleanup", stdout=out)
    assert [json.loads(line)["due"] for line in out.getvalue().splitlines()] == [
        f"2027-03-27T{at}.000Z" for at in ("11:58:00", "11:59:00", "12:00:00")
    ]
    with pytest.raises(CommandError, match="no schedule"):
        call_command("aegis", "export", "ticks", "--schedule", "nobody", stdout=StringIO())


def test_a_reader_that_has_seen_enough_ends_the_command_without_a_word() -> None:
    """As ``aegis export executions | head -1`` does: more is written than a pipe holds."""
    few(number=400)
    command = [sys.executable, "manage.py", "aegis", "export", "executions"]
    environment = {**os.environ, "DATABASE_URL": database_url()}
    with subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("id,due,")
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(60), said) == (141, "")
