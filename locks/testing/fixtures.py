"""A pytest fixture for users' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .. import connection


@pytest.fixture
def leases_in_test_transaction(db: None) -> Iterator[None]:
    """Let code under test take database leases inside the transaction of pytest-django's ``db``.

    Without it the leases' own connection would not see what the test made, and both could wait for each
    other's rows. Only for the test's own thread; leases are not renewed meanwhile. Tests of real concurrency
    use ``transactional_db`` and not this.
    """
    with connection.routed_to_django():
        yield
    connection.close_all()
