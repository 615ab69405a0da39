from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections, transaction

from locks import LockUnavailable, StaleToken, connection, fencing
from locks.base import MAX_TTL
from locks.testing import wait_until
from tests.contract.rows import WAITING
from tests.contract.wires import WIRED, wired_database

RAISE = """
UPDATE aegis_locks_fence SET token = token + 1, lease_id = %(lease_id)s WHERE name = %(name)s RETURNING token
"""


@pytest.fixture
def name() -> str:
    return f"fence.{uuid.uuid4().hex}"


def raise_fence(name: str, lease_id: uuid.UUID) -> int:
    token: int = connection.execute(RAISE, {"name": name, "lease_id": lease_id})[0][0]
    return token


@pytest.mark.django_db
def test_seed_makes_the_row_once(name: str) -> None:
    assert fencing.current(name) is None
    fencing.seed(name)
    assert fencing.current(name) == 0
    raise_fence(name, uuid.uuid4())
    fencing.seed(name)
    assert fencing.current(name) == 1


@pytest.mark.django_db(transaction=True)
def test_only_the_latest_token_with_its_lease_is_proven(name: str) -> None:
    fencing.seed(name)
    old, new = uuid.uuid4(), uuid.uuid4()
    first = raise_fence(name, old)
    with transaction.atomic():
        fencing.prove(name, first, old)
    second = raise_fence(name, new)
    for token, lease_id in ((first, old), (first, new), (second, old)):
        with pytest.raises(StaleToken) as caught, transaction.atomic():
            fencing.prove(name, token, lease_id)
        assert caught.value.name == name
    with transaction.atomic():
        fencing.prove(name, second, new)


@pytest.mark.django_db
def test_a_missing_row_proves_nothing(name: str) -> None:
    with pytest.raises(StaleToken), transaction.atomic():
        fencing.prove(name, 0, uuid.uuid4())


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_is_a_mistake(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"inside transaction\.atomic"):
        fencing.prove(name, 1, uuid.uuid4())


@pytest.mark.django_db(transaction=True)
def test_a_later_start_waits_for_the_proven_transaction(name: str) -> None:
    fencing.seed(name)
    lease_id = uuid.uuid4()
    token = raise_fence(name, lease_id)
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            fencing.prove(name, token, lease_id)
            later = pool.submit(raise_fence, name, uuid.uuid4())
            wait_until(lambda: connection.execute(WAITING) != [(0,)], what="the later start waits")
            assert not later.done()
        assert later.result() == token + 1


@pytest.mark.django_db(transaction=True)
def test_a_proof_waits_for_a_start_that_is_raising_the_fence(name: str) -> None:
    fencing.seed(name)
    lease_id = uuid.uuid4()
    token = raise_fence(name, lease_id)

    def prove() -> None:
        try:
            with transaction.atomic():
                fencing.prove(name, token, lease_id)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic(), connections["default"].cursor() as cursor:
            cursor.execute(RAISE, {"name": name, "lease_id": uuid.uuid4()})
            proof = pool.submit(prove)
            wait_until(lambda: connection.execute(WAITING.replace("'aegis'", "''")) != [(0,)] or proof.done())
            assert not proof.done()
        with pytest.raises(StaleToken):
            proof.result()


@pytest.mark.django_db
def test_a_database_that_refuses_at_once_is_asked_a_few_times(name: str) -> None:
    proof = fencing.Proof(name=name, token=1, lease_id=uuid.uuid4(), ttl=1.0)
    with wired_database() as proxy:
        proxy.cut()
        with pytest.raises(LockUnavailable, match="could not be raised"):
            fencing.carry(proof, using=WIRED, check=lambda: None)
        assert 2 <= proxy.dropped <= 20


@pytest.mark.django_db(transaction=True)
def test_the_longest_lease_can_be_proven(name: str) -> None:
    fencing.seed(name)
    lease_id = uuid.uuid4()
    token = raise_fence(name, lease_id)
    with fencing.proven(fencing.Proof(name=name, token=token, lease_id=lease_id, ttl=MAX_TTL)):
        pass
