"""The protocol of Redis (RESP2), as far as scripts speak it: a command as bytes, and an answer from bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from redis.connection import DefaultParser
from redis.exceptions import InvalidResponse, RedisError, ResponseError

Word = str | int


def packed(words: Sequence[Word]) -> bytes:
    """A command as it is sent, the same to every server."""
    parts = [b"*%d" % len(words)]
    for word in words:
        encoded = str(word).encode()
        parts += (b"$%d" % len(encoded), encoded)
    return b"\r\n".join((*parts, b""))


def parsed(data: bytes, at: int = 0) -> tuple[Any, int] | None:
    """The answer that begins at ``at``, and where it ends. ``None``: it has not arrived whole.

    An error is returned as the library's exception for it. Raises ``InvalidResponse`` for what is no answer.
    """
    end = data.find(b"\r\n", at)
    if end < 0:
        return None
    kind, word, end = data[at : at + 1], data[at + 1 : end], end + 2
    if kind == b":":
        return _number(word), end
    if kind == b"$":
        return _bulk(data, end, _number(word))
    if kind == b"*":
        return _array(data, end, _number(word))
    if kind == b"-":
        return _error(word.decode(errors="replace")), end
    if kind == b"+":
        return word, end
    raise InvalidResponse(f"no answer begins with {kind!r}")


def _error(text: str) -> RedisError:
    try:
        return cast("RedisError", DefaultParser.parse_error(text))  # type: ignore[no-untyped-call]
    except ValueError:  # the library knows the word and not what follows
        return ResponseError(text)


def _number(word: bytes) -> int:
    try:
        return int(word)
    except ValueError:
        raise InvalidResponse(f"{word[:20]!r} is no number") from None


def _bulk(data: bytes, at: int, length: int) -> tuple[bytes | None, int] | None:
    if length < 0:
        return None, at
    end = at + length
    return (data[at:end], end + 2) if len(data) >= end + 2 else None


def _array(data: bytes, at: int, length: int) -> tuple[list[Any] | None, int] | None:
    if length < 0:
        return None, at
    items = []
    for _ in range(length):
        if (reply := parsed(data, at)) is None:
            return None
        item, at = reply
        items.append(item)
    return items, at
