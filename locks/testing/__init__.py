"""For tests of backends and of code that uses locks. Needs pytest; nothing here is imported by the rest of
the package.

- ``LockBackendContract``: what every backend keeps, as a mixin. A third-party backend runs it too.
- ``FrozenClock``: time that stands still until it is told to move.
- ``TcpProxy``: a wire that can be cut, slowed down, or swallow answers.
- ``count_overlaps``, ``count_lost_updates``: contention by real processes and by threads.
- ``fork_child``, ``exit_status``: a real child process.
- ``admit_nodes``: lets freshly started quorum nodes vote at once.
- ``wait_until``: waits for a condition, with a bound.
- ``leases_in_test_transaction``: a pytest fixture for code under test in a ``TestCase`` transaction; import
it in a
  ``conftest.py``.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("locks.testing.contract")

from ..proxy import TcpProxy  # noqa: E402
from .clock import FrozenClock, answer_late  # noqa: E402
from .contention import count_lost_updates, count_overlaps  # noqa: E402
from .contract import LockBackendContract, Outage  # noqa: E402
from .fixtures import leases_in_test_transaction  # noqa: E402
from .processes import exit_status, fork_child  # noqa: E402
from .quorum import admit_nodes  # noqa: E402
from .waiting import wait_until  # noqa: E402

__all__ = [
    "FrozenClock",
    "LockBackendContract",
    "Outage",
    "TcpProxy",
    "admit_nodes",
    "answer_late",
    "count_lost_updates",
    "count_overlaps",
    "exit_status",
    "fork_child",
    "leases_in_test_transaction",
    "wait_until",
]
