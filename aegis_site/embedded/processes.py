"""Child processes that end with their starter: a process group and a log file each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from aegis_site.embedded.errors import EmbeddedError
from aegis_site.embedded.identity import Identity
from aegis_site.embedded.marks import ProcessMark

LAUNCHER = Path(__file__).with_name("launch.py")


class ChildProcess:
    """A process started by `spawn()`. What it prints is in `log`."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], log: Path, stop_signal: signal.Signals) -> None:
        self.name = name
        self.log = log
        self.mark = ProcessMark.of(popen.pid)
        self._popen = popen
        self._stop_signal = stop_signal

    @property
    def pid(self) -> int:
        """The process id, which is the process group's id as well."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, a signal's number negated, None while the process runs."""
        return self._popen.poll()

    @property
    def running(self) -> bool:
        return self.returncode is None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, `timeout` seconds at most; the exit status. Raises subprocess.TimeoutExpired."""
        return self._popen.wait(timeout)

    def ask_to_stop(self) -> None:
        """Send the stop signal and return at once. A paused process is woken, else it would never see it."""
        if self.running:
            self.resume()
            self._popen.send_signal(self._stop_signal)

    def stop(self, timeout: float = 15) -> int:
        """Ask the process to stop, kill it with its group after `timeout` seconds; its exit status."""
        self.ask_to_stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(timeout)
        return self.kill()

    def kill(self) -> int:
        """End the process and what is left of its group at once (SIGKILL); its exit status."""
        self.signal_group(signal.SIGKILL)
        return self.wait()

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process and to the children that stayed in its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def pause(self) -> None:
        """Freeze the process and all its descendants (SIGSTOP), until `resume()`."""
        self._signal_tree(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        self._signal_tree(signal.SIGCONT)

    def last_line(self) -> str:
        """The last line of the log that is not empty; an empty string when there is none."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _signal_tree(self, number: signal.Signals) -> None:
        """Signal the process first, so that it makes no child meanwhile, then its descendants."""
        if not self.running:
            return
        self._popen.send_signal(number)
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.send_signal(number)


def spawn(
    name: str,
    command: Sequence[str | Path],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stop_signal: signal.Signals = signal.SIGTERM,
    death_signal: signal.Signals = signal.SIGKILL,
    identity: Identity | None = None,
) -> ChildProcess:
    """Start `command` in a session of its own, with no input and its output appended to `log`.

    `env` replaces the environment (None: as it is). On Linux the child gets `death_signal` when this
    process ends, also by kill -9. The kernel ties that to the thread which started the child, so call this
    from the main thread; RuntimeError elsewhere. A program that cannot be run shows as exit status 1, the
    reason in its log.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "spawn() must be called from the main thread: a child ends with the thread that started it"
        )
    uid, gid = (identity.uid, identity.gid) if identity else (-1, -1)
    launch = [sys.executable, "-I", "-S", LAUNCHER, os.getpid(), int(death_signal), uid, gid, "--"]
    try:
        with log.open("ab") as output:
            popen = subprocess.Popen(
                [str(part) for part in (*launch, *command)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
    except OSError as error:
        raise EmbeddedError(f"{name} could not be started: {error}.") from error
    return ChildProcess(name, popen, log, stop_signal)
