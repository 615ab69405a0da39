"""The doctor: everything that can be known about a running project, one line each, with the next step.

``examine()`` asks each store and process for a bounded time and judges what it heard. Asking and judging are apart:
each topic's ``judge`` is a pure function of facts. A question that is not answered is a warning of its own and
never good news; without the database the other topics are still looked at.
"""

from __future__ import annotations

from scheduler.doctor.examination import examine
from scheduler.doctor.report import EX_UNAVAILABLE, Report

__all__ = ["EX_UNAVAILABLE", "Report", "examine"]
