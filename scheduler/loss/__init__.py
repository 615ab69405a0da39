"""What happens to a body whose lease is lost, and what such a body can still write.

``policy``     the choice that a task makes: check, interrupt or kill
``interrupt``  LeaseLost is raised in the main thread, outside of guarded commits only
``kill``       a kernel timer ends the process at the end of the trust window
``guard``      transactions that a former holder cannot commit
"""

from __future__ import annotations

from scheduler.loss.guard import CommitGuards
from scheduler.loss.interrupt import shield
from scheduler.loss.policy import OnLost, cannot, reaction_to
from scheduler.loss.reaction import Reaction

__all__ = ["CommitGuards", "OnLost", "Reaction", "cannot", "reaction_to", "shield"]
