"""Ctrl-C is a wish that is looked at: it cannot fall between two statements."""

from __future__ import annotations

import os
import signal

import pytest

from aegis_site.demo.interrupts import Interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_ends_a_wait(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        os.kill(os.getpid(), number)
        interrupts.sleep(3600)
        assert interrupts.asked
    assert signal.getsignal(number) is before


def test_a_second_one_is_not_to_be_put_off() -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        interrupts.sleep(3600)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
