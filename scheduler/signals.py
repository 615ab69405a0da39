"""What observers of the scheduler may listen to. Sent with ``send_robust``: an observer never changes an outcome."""

from __future__ import annotations

from django.dispatch import Signal

lock_force_released = Signal()
"""An operator ended a lease. ``release``: the ``LockRelease`` row, settled. Sent for ``released`` only."""

# sender: scheduler.models.Alert; ``alert``: the row. Sent outside of any transaction, in the process that looked.
alert_opened = Signal()
# The same, once its condition is gone; for alerts that had been told.
alert_closed = Signal()
