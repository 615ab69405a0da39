"""RabbitMQ as the broker, a real one: what it does otherwise than Redis, and what must not differ."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Count, Q
from kombu import pools

from aegis_site.celery import app
from scheduler import publisher
from scheduler.doctor import broker as doctor
from scheduler.doctor import catalog
from scheduler.models import Execution, Tick
from scheduler.models.tick import Delivery
from scheduler.publisher import Published, broadcast_queue, publish
from scheduler.states import ExecutionState
from tests.support import CeleryProcesses, celery_tasks, wait_until
from tests.support.celery_ways import LONG, TASKS, WORKER, bodies, closed, execution_of, inside, let_out, send, states
from tests.support.doors import FOLDER
from tests.support.engine import make_schedule, make_tick
from tests.support.rabbitmq import REMEDY, RabbitServer, rabbitmq

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    program = rabbitmq()
    if program is None:
        pytest.skip(REMEDY)
    made = RabbitServer(tmp_path_factory.mktemp("rabbitmq"), program)
    try:
        made.start()
        yield made
    finally:
        made.end()


def connect_anew() -> None:
    """Forget the connections of this process: the next one is made as the settings say now."""
    pools.reset()
    app._pool = None
    app.amqp._producer_pool = None


@pytest.fixture
def broker(server: RabbitServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[RabbitServer]:
    """The server, empty, as the broker of this process and of those that it starts."""
    server.start()
    with server.connect() as connection:
        connection.channel().queue_delete("celery")
    monkeypatch.setenv("CELERY_BROKER_URL", server.url)
    app.set_current()
    connect_anew()
    yield server
    server.resume()
    connect_anew()


@pytest.fixture
def fleet(broker: RabbitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CeleryProcesses]:
    (doors := tmp_path / "doors").mkdir()
    monkeypatch.setenv(FOLDER, str(doors))
    processes = CeleryProcesses(tmp_path)
    yield processes
    for process in processes.started:
        process.kill()
        assert broker.password not in process.log.read_text(), f"{process.name} logs the password"


def executed(schedule: str) -> int:
    return Tick.objects.filter(schedule_name=schedule, outcome="executed").count()


def await_more(count: int, *schedules: str) -> None:
    wanted = {name: executed(name) + count for name in schedules}
    wait_until(
        lambda: all(executed(name) >= least for name, least in wanted.items()),
        timeout=60,
        message=lambda: f"{wanted} executed, seen: {[(name, executed(name)) for name in schedules]}",
    )


def begun_twice() -> list[Tick]:
    begun = Tick.objects.annotate(bodies=Count("executions", filter=Q(executions__began=True)))
    return list(begun.filter(bodies__gt=1))


def test_ticks_begin_once_and_go_on_after_the_broker_has_crashed(
    broker: RabbitServer, fleet: CeleryProcesses
) -> None:
    workers = [fleet.worker(*WORKER, concurrency=2) for _ in range(2)]
    beat = fleet.beat()
    for name, task, fields in (
        ("early", "early", {}),
        ("late", "late", {}),
        ("every", "early", {"delivery": Delivery.EVERY_WORKER}),
    ):
        make_schedule(name, task=f"{TASKS}.{task}", kwargs={"seconds": 0.0}, every_seconds=1, **fields)
    await_more(2, "early", "late", "every")
    every = Execution.objects.filter(tick__schedule_name="every")
    wait_until(lambda: every.values("worker").distinct().count() == 2, message="both workers hear the broadcast")
    broker.kill()
    broker.start()
    await_more(2, "early", "late", "every")
    assert all(process.running for process in (*workers, beat))
    assert begun_twice() == []


def test_a_worker_killed_in_a_late_acked_body(fleet: CeleryProcesses) -> None:
    """The message is back at once, marked as redelivered, and is refused; the reaper decides."""
    killed = fleet.worker(*WORKER, concurrency=2)
    fleet.beat()
    once = send("late", kwargs={"seconds": LONG})
    twice = send("first_long_late", kwargs={"seconds": LONG}, max_attempts=2)
    for tick in (once, twice):
        inside(tick)
    killed.kill()
    fleet.worker(*WORKER)
    for tick in (once, twice):
        execution_of(tick, ExecutionState.DUPLICATE)
    let_out(once, twice)
    assert closed(once).outcome == "abandoned" and bodies(once) == 1
    assert closed(twice).outcome == "executed" and sorted(states(twice)) == ["abandoned", "duplicate", "executed"]


def patience(server: RabbitServer, **milliseconds: int) -> None:
    """How long a message may be unacknowledged, and how often the server looks."""
    for name, value in milliseconds.items():
        server.ask("eval", f"application:set_env(rabbit, {name}, {value}).")


def test_a_body_that_outlasts_the_consumer_timeout_ends_its_worker(
    broker: RabbitServer, fleet: CeleryProcesses
) -> None:
    """RabbitMQ closes the channel. Celery takes that for a fault, lets the body end, and ends the worker."""
    patience(broker, consumer_timeout=500, channel_tick_interval=200)
    try:
        worker = fleet.worker(*WORKER)
        tick = send("late", kwargs={"seconds": LONG})
        inside(tick)
        wait_until(lambda: "PRECONDITION_FAILED" in worker.log.read_text(), message="the worker hears of it")
        let_out(tick)
        wait_until(lambda: not worker.running, message="the worker has ended")
    finally:
        patience(broker, consumer_timeout=1_800_000, channel_tick_interval=60_000)
    assert worker.returncode == 1 and closed(tick).outcome == "executed"
    with broker.connect() as connection:
        copy = connection.channel().basic_get("celery")
    assert copy is not None and copy.delivery_info["redelivered"]


def queues(server: RabbitServer) -> list[str]:
    return server.ask("list_queues", "name").split()


def test_a_broadcast_queue_that_nobody_reads_goes_away(broker: RabbitServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ends while the broker is down leaves its queue behind, which would fill for ever."""
    monkeypatch.setattr(publisher, "UNREAD", 0.1)
    with app.connection_for_write() as connection:
        queue = broadcast_queue()(connection.default_channel)
        queue.declare()
    wait_until(lambda: queue.name not in queues(broker), message="the queue is gone")


def test_a_queue_that_is_declared_otherwise_holds_up_no_other_tick(
    broker: RabbitServer, caplog: pytest.LogCaptureFixture
) -> None:
    with broker.connect() as connection:
        connection.channel().queue_declare(
            "reports", durable=True, auto_delete=False, arguments={"x-max-priority": 9}
        )
    ticks = [make_tick(make_schedule(name, queue=queue)) for name, queue in (("a", ""), ("b", "reports"), ("c", ""))]
    for _ in range(2):
        assert publish(ticks) == Published([ticks[0].id, ticks[2].id])
    assert f"tick {ticks[1].id} of b cannot be published" in caplog.text
    assert "inequivalent arg 'x-max-priority'" in caplog.text


def test_the_next_server_of_a_list_is_asked_in_the_same_pass(
    broker: RabbitServer, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Though the first, which swallows everything, took longer than a pass waits for a free connection."""
    settings.AEGIS = {**settings.AEGIS, "PUBLISH_TIMEOUT": 0.5}
    tick = make_tick(make_schedule("one"))
    with socket.create_server(("127.0.0.1", 0)) as swallowing:
        first = f"amqp://127.0.0.1:{swallowing.getsockname()[1]}//"
        monkeypatch.setitem(app.conf, "broker_connection_timeout", 1.0)
        monkeypatch.setitem(app.conf, "broker_write_url", f"{first};{broker.url}")
        connect_anew()
        assert publish([tick]).ids == [tick.id]


def test_a_broker_that_refuses_is_tried_once_a_pass(
    broker: RabbitServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = [make_tick(make_schedule(name)) for name in ("a", "b")]
    for url, trouble in (
        (broker.url.replace(str(broker.port), "1"), "ConnectionRefusedError"),
        (broker.url.replace(broker.password, "hunter2"), "AccessRefused"),
        (f"{broker.url}nowhere", "NotAllowed"),
    ):
        monkeypatch.setenv("CELERY_BROKER_URL", url)
        connect_anew()
        assert publish(ticks) == Published([], broker_failed=True)
        assert f"published 0 of 2 ticks, the broker failed: {trouble}" in caplog.text
    assert "hunter2" not in caplog.text and broker.password not in caplog.text


@pytest.mark.parametrize("delivery", Delivery.values)
def test_a_broker_that_swallows_everything_does_not_hold_up_a_pass(
    delivery: str, broker: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the time-outs of the site's settings, here shorter: nothing else bounds the driver."""
    options = {
        name: 0.5 if name.endswith("_timeout") else value for name, value in app.conf.broker_transport_options.items()
    }
    monkeypatch.setitem(app.conf, "broker_transport_options", options)
    connect_anew()
    first, then = [make_tick(make_schedule(name, delivery=delivery)) for name in ("a", "b")]
    assert publish([make_tick(make_schedule("one"))]).ids
    broker.pause()
    published: list[Any] = []
    thread = threading.Thread(target=lambda: published.append(publish([first, then])), daemon=True)
    thread.start()
    try:
        wait_until(lambda: published, timeout=20, message="the pass is over")
    finally:
        broker.resume()
        thread.join(20)
    assert published == [Published([], broker_failed=True)]
    assert publish([first, then]).ids == [first.id, then.id]


def test_the_doctor(broker: RabbitServer, monkeypatch: pytest.MonkeyPatch) -> None:
    make_schedule("unbounded", task=celery_tasks.late.name)
    at = f"amqp at 127.0.0.1:{broker.port}"
    found = {one.sentence: one.level for one in doctor.judge(doctor.ask(), catalog.read())}
    assert found[f"{at} answers"] == found["0 schedules ack early, 1 late"] == "ok"
    (said,) = [sentence for sentence in found if "consumer_timeout" in sentence]
    assert said.startswith("unbounded ack late and may take longer than RabbitMQ's consumer_timeout, 1800 s")
    assert said.endswith("it delivers a copy, and the worker ends when the body has ended")
    monkeypatch.setenv("CELERY_BROKER_URL", broker.url.replace(broker.password, "hunter2"))
    (answer, *_) = doctor.judge(doctor.ask(), [])
    assert answer.level == "fail" and answer.sentence.startswith(f"{at}: no connection (AccessRefused)")
