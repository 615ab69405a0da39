"""What happens to a body whose lease is lost, and what such a body can still write.

``policy``       the choice that a task makes: check, interrupt or kill
``main_thread``  when a handler of a signal may raise: inside a body, outside of guarded commits
``interrupt``    LeaseLost is raised in the main thread
``kill``         a kernel timer ends the process at the end of the trust window
``guard``        transactions that a former holder cannot commit
"""

from __future__ import annotations

from scheduler.loss.guard import CommitGuards
from scheduler.loss.main_thread import must_stop, shield, told_to_end
from scheduler.loss.policy import OnLost, cannot, reaction_to
from scheduler.loss.reaction import Reaction

__all__ = ["CommitGuards", "OnLost", "Reaction", "cannot", "must_stop", "reaction_to", "shield", "told_to_end"]
