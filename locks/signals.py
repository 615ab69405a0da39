"""What observers may listen to. Sent with ``send_robust``: an observer never changes an outcome.

Each carries ``alias``, ``name`` and what is listed; the sender is the backend's class.
"""

from __future__ import annotations

from django.dispatch import Signal

lease_acquired = Signal()  # lease
lease_refused = Signal()  # nothing more: the name is held by another
lease_released = Signal()  # lease_id
lease_lost = Signal()  # lease, error; sent in a thread of its own, after ``on_lost``
lease_force_released = Signal()  # lease_id
