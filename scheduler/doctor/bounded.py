"""Questions that may hang, each asked in a thread of its own for a bounded time. Not answered is "could not look"."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.db import connections

from locks import Finding
from locks.findings import could_not_look
from scheduler.error_text import describe, storable

T = TypeVar("T")

PATIENCE = 3.0  # seconds for one question
REMEDY = "Look at the store or process that was asked, then run the doctor again."


class NotAnswered(Exception):
    """There is no answer; the message says why, without passwords."""


class Asked(Generic[T]):
    """``ask()`` running in a daemon thread: one that hangs does not keep the process from ending."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._answers: list[T] = []
        self._trouble = ""
        self._asked_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="aegis-doctor", daemon=True)
        self._thread.start()

    def answer(self, patience: float = PATIENCE) -> T:
        """What it returned. Raises ``NotAnswered`` if it raised, or runs for more than ``patience`` seconds."""
        self._thread.join(max(0.0, self._asked_at + patience - time.monotonic()))
        if self._thread.is_alive():
            raise NotAnswered(f"no answer within {patience:g} s")
        if not self._answers:
            raise NotAnswered(self._trouble)
        return self._answers[0]

    def _run(self) -> None:
        try:
            self._answers.append(self._ask())
        except Exception as trouble:
            self._trouble = storable((describe(trouble).splitlines() or [""])[0], 200)
        finally:
            connections.close_all()  # this thread's


@dataclass(frozen=True, slots=True)
class Question:
    """Something to look at. ``ask`` gives findings."""

    topic: str
    what: str
    ask: Callable[[], Iterable[Finding]]


def answers(questions: Iterable[Question], patience: float = PATIENCE) -> list[Finding]:
    """Ask all at once; the findings in the order of the questions, "could not look" where there are none."""
    asked = [(question, Asked(lambda ask=question.ask: list(ask()))) for question in questions]  # type: ignore[misc]
    found: list[Finding] = []
    for question, one in asked:
        try:
            found += one.answer(patience)
        except NotAnswered as why:
            found.append(could_not_look(question.topic, f"{question.what}: {why}", REMEDY))
    return found
