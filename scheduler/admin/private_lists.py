"""Lists that do not tell by their filters what their user may not see."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from locks.plain_lists import PlainList
from scheduler import private

_NEVER_FILTERED = private.FIELDS | {"before", "after"}  # what a change row tells of may be an argument


class PrivateList(PlainList):
    """Django lets any field be asked for in the address, and the number of rows answers.

    ``?kwargs__card__startswith=4``, ``?kwargs__card__startswith=41`` and so on would read a secret digit by digit.
    """

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        if not _NEVER_FILTERED.isdisjoint(lookup.split("__")) and not private.may_see(request.user):
            return False
        return super().lookup_allowed(lookup, value, request)
