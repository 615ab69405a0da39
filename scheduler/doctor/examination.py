"""All topics in one examination."""

from __future__ import annotations

from collections.abc import Iterator

from django.apps import apps
from django.core import checks

from locks import Finding, lock_backends
from locks.findings import fail, ok, warn
from scheduler.doctor import broker, code, database, leases, life, schedules, stores
from scheduler.doctor.bounded import PATIENCE, Asked, NotAnswered, Question, answers
from scheduler.doctor.database import Clock
from scheduler.doctor.known import Known, known
from scheduler.doctor.report import Report, together
from scheduler.pruning import kept_days

TOPICS = ("settings", "broker", "leases", "locks", "redis", "redlock", "postgres", "code", "schedules", "life")


def examine(patience: float = PATIENCE) -> Report:
    """Look at everything: three rounds of questions, each for ``patience`` seconds at most.

    Raises nothing of a store: what a question raises is a finding.
    """
    try:
        clock: Clock | str = Asked(database.reach).answer(patience)
    except NotAnswered as why:
        clock = str(why)
    reachable = isinstance(clock, Clock)
    base = known(patience, reachable=reachable)
    found = [database.judge_reach(clock), *answers(_questions(base, reachable=reachable), patience)]
    return Report(findings=together(sorted(found, key=_place)), reachable=reachable)


def _place(finding: Finding) -> int:
    """Where its topic stands; what comes from backends made elsewhere is last."""
    return TOPICS.index(finding.topic) if finding.topic in TOPICS else len(TOPICS)


def _questions(base: Known, *, reachable: bool) -> Iterator[Question]:
    """``reachable``: whether the database is asked at all."""
    yield Question("settings", "manage.py check", _settings)
    yield Question("broker", "the broker", lambda: broker.judge(broker.ask(), base.scheduled))
    yield Question(
        "leases", "leases", lambda: base.needing("leases", lambda s, f: [*leases.judge(s, base.strategies, f)])
    )
    yield from stores.questions()
    yield Question("redis", "who else uses these servers", stores.neighbours)
    yield Question("code", "code", lambda: base.needing("code", lambda s, f: [*code.judge(s, f, base.strategies)]))
    yield Question("schedules", "schedules", lambda: base.needing("schedules", lambda s, f: [*_schedules(s)]))
    yield Question("life", "life", lambda: base.needing("life", lambda s, f: [*life.judge(f, s, *life.ask())]))
    if reachable:
        yield Question("schedules", "rows of django-celery-beat", _ordinary)
        yield Question("postgres", "migrations", database.migrations)
        yield Question("postgres", "age", lambda: database.judge_age(database.age(), kept_days()))
        yield Question("postgres", "connections", lambda: base.needing("postgres", lambda s, f: _room(base)))


def _schedules(scheduled: schedules.Catalog) -> Iterator[Finding]:
    rows, waiting = schedules.ask()
    return schedules.judge(rows, waiting, scheduled, lock_backends.aliases())


def _ordinary() -> Iterator[Finding]:
    if apps.is_installed("django_celery_beat"):
        from scheduler.doctor import ordinary  # its models cannot be imported where it is not installed

        yield from ordinary.judge()


def _room(base: Known) -> list[Finding]:
    assert base.fleet is not None
    assert base.scheduled is not None
    return [database.judge_room(*database.room(), base.fleet, base.scheduled, base.strategies)]


def _settings() -> Iterator[Finding]:
    """What ``manage.py check`` says about Aegis."""
    problems = checks.run_checks(tags=["aegis"])
    for problem in problems:
        said, step = f"{problem.msg} ({problem.id})", str(problem.hint or "See docs/reference/checks.md.")
        yield (fail if problem.is_serious() else warn)("settings", said, step)
    if not problems:
        yield ok("settings", "manage.py check finds nothing wrong with LOCKS, AEGIS and Celery's settings")
