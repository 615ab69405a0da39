"""What is heard on a wire: one whole answer to what was asked on it, or nothing."""

from __future__ import annotations

import signal
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from redis.exceptions import InvalidResponse, NoScriptError, ReadOnlyError, RedisError, ResponseError

from aegis_site.embedded import Services
from locks.backends.clients import disconnect, line_to
from locks.backends.question import Question
from locks.backends.replies import packed, parsed
from locks.backends.wires import Line, Wire
from locks.testing import wait_until

TIMEOUT = 0.5


class InterruptedByTest(BaseException):
    pass


@contextmanager
def server_that_says(*answers: tuple[bytes, ...]) -> Iterator[Line]:
    """A line to a server that answers each command with the next of ``answers``, each in the pieces given. It greets
    like one of before RESP3 and hangs up when it has nothing more to say.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, iter(answers)), daemon=True)
        thread.start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        try:
            yield line_to(url, TIMEOUT)
        finally:
            disconnect(url, TIMEOUT)
            socket.create_connection(listener.getsockname()).close()  # ends a server that still waits for somebody
            thread.join(10)


def _serve(listener: socket.socket, answers: Iterator[tuple[bytes, ...]]) -> None:
    while True:
        ours, _ = listener.accept()
        with ours:
            ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            command = ours.recv(4096)
            if not command:
                return
            while command:
                if b"CLIENT" in command:  # the library introduces itself, in one go
                    ours.sendall(b"+OK\r\n" * command.count(b"SETINFO"))
                else:
                    for piece in next(answers):
                        ours.sendall(piece)
                command = ours.recv(4096)


def test_an_answer_that_comes_in_pieces_is_heard_whole() -> None:
    with server_that_says((b"*2\r\n$5", b"\r\nhel", b"lo\r", b"\n:-2", b"\r\n"), (b":1\r\n",)) as line:
        assert line.exchange(["ANY"]) == [b"hello", -2]
        assert line.exchange(["ANY"]) == 1


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b":1\r\n:2\r\n", InvalidResponse),
        (b"$5\r\nhel", redis.TimeoutError),
        (b"HTTP/1.1 400 Bad Request\r\n", InvalidResponse),
        (b"-NOAUTH Authentication required.\r\n", redis.ConnectionError),
        (b"-READONLY it is a replica now\r\n", ReadOnlyError),
    ],
    ids=["one too many", "half of one", "none", "wants a login", "reads only"],
)
def test_after_what_is_no_answer_to_go_on_from_the_next_question_has_a_new_wire(
    said: bytes, error: type[RedisError]
) -> None:
    with server_that_says((said,), (b":3\r\n",)) as line:
        with pytest.raises(error):
            line.exchange(["ANY"])
        assert line.idle() is None
        assert line.exchange(["ANY"]) == 3


def test_an_error_is_the_librarys_and_ends_no_wire() -> None:
    with server_that_says(
        (b"-NOSCRIPT No such\r\n",), (b"-MISCONF no disk\r\n",), (b"-MOVED nowhere\r\n",), (b":1\r\n",)
    ) as line:
        with pytest.raises(NoScriptError):
            line.exchange(["ANY"])
        with pytest.raises(ResponseError, match=r"^MISCONF no disk"):
            line.exchange(["ANY"])
        with pytest.raises(ResponseError, match="MOVED"):  # which the library cannot read to its end
            line.exchange(["ANY"])
        wire = line.idle()
        assert wire is not None
        line.give_back(wire, None)
        assert line.exchange(["ANY"]) == 1


def test_an_answer_that_goes_on_and_on_ends_with_the_time() -> None:
    with server_that_says((b"*3\r\n:1\r\n",)) as line:
        wire = Wire(line.client)
        wire.send(packed(["ANY"]))
        wait_until(wire.has_gone, what="something has arrived")
        with pytest.raises(redis.TimeoutError, match="no whole answer"):
            wire.receive(0.0)
        wire.close()


def test_what_is_raised_in_the_middle_of_a_question_closes_the_wires_that_were_asked() -> None:
    """As the loss of a lease is, or a soft time limit: by a signal, while nobody answers."""
    with server_that_says((b":1\r\n",), ()) as line, server_that_says((b":1\r\n",), ()) as other:
        for asked in (line, other):
            assert asked.exchange(["ANY"]) == 1
        question: Question[str] = Question(packed(["ANY"]))
        assert question.put([("line", line), ("other", other)]) == []
        wires = [wire for _, _, wire in question._asked]
        with pytest.raises(InterruptedByTest), ended_by_a_signal():
            question.answers(30.0)
        assert all(wire.has_gone() for wire in wires)
        assert line.idle() is None and other.idle() is None


@contextmanager
def ended_by_a_signal() -> Iterator[None]:
    def end(number: int, frame: object) -> None:
        raise InterruptedByTest

    before = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_url_may_ask_for_either_protocol(services: Services, protocol: int) -> None:
    url = f"{services.redis['locks'].url}?protocol={protocol}"
    line, key = line_to(url, TIMEOUT), f"wires:{uuid.uuid4()}"
    try:
        assert b"resp=2" in line.exchange(["CLIENT", "INFO"]), "nothing is said unasked"
        assert line.exchange(["GET", key]) is None
        assert line.exchange(["EVAL", "return {KEYS[1], 1, {}}", 1, key]) == [key.encode(), 1, []]
        with pytest.raises(NoScriptError):
            line.exchange(["EVALSHA", "0" * 40, 0])
    finally:
        disconnect(url, TIMEOUT)


@pytest.mark.parametrize(
    ("said", "value"),
    [
        (b":-7\r\n", -7),
        (b"+OK\r\n", b"OK"),
        (b"$0\r\n\r\n", b""),
        (b"$4\r\n\r\n:1\r\n", b"\r\n:1"),
        (b"$-1\r\n", None),
        (b"*-1\r\n", None),
        (b"*0\r\n", []),
        (b"*2\r\n*1\r\n:1\r\n$1\r\na\r\n", [[1], b"a"]),
    ],
)
def test_each_kind_of_answer_and_where_it_ends(said: bytes, value: object) -> None:
    assert parsed(said + b":9\r\n") == (value, len(said))
    assert all(parsed(said[:end]) is None for end in range(len(said)))


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n", b":one\r\n", b"$many\r\n", b"*?\r\n", b">1\r\n"])
def test_what_is_no_answer_is_an_error_of_redis(said: bytes) -> None:
    with pytest.raises(RedisError):
        parsed(said)


def test_a_command_is_counted_in_bytes() -> None:
    assert packed(["ANY", "Köln", 30000, ""]) == b"*4\r\n$3\r\nANY\r\n$5\r\nK\xc3\xb6ln\r\n$5\r\n30000\r\n$0\r\n\r\n"
