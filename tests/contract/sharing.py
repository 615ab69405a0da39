"""What two projects share that keep their locks in the same Redis: nothing but what has the same prefix."""

from __future__ import annotations

from typing import Any, cast

from locks.testing import LockBackendContract


class SharedRedis(LockBackendContract):
    """Mixed in by the contracts of the strategies whose keys have a prefix."""

    def another(self, **params: Any) -> Any:
        """A backend with parameters of its own, at the same servers; None: without that one."""
        backend = cast("Any", self.backend)
        given = {key: value for key, value in {**backend.params, **params}.items() if value is not None}
        return type(backend)(self.alias, given)

    def test_key_prefixes_share_a_server_and_nothing_else(self, name: str) -> None:
        other = self.another(KEY_PREFIX="other")
        mine, lease = self.acquired(name), self.acquired(name, other)
        for backend, held in ((self.backend, mine), (other, lease)):
            assert [(info.name, info.lease_id) for info in backend.list(name)] == [(name, held.lease_id)]
        assert other.release(lease) is True
        assert (self.backend.inspect(name) or mine).lease_id == mine.lease_id

    def test_projects_that_name_no_prefix_share_their_lock_names(self, name: str) -> None:
        one, two = (self.another(KEY_PREFIX=None) for _ in range(2))
        self.acquired(name, one)
        assert two.acquire(name) is None
