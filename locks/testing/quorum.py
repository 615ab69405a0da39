"""Help with quorum nodes."""

from __future__ import annotations

from ..backends.redlock import RedlockBackend


def admit_nodes(backend: RedlockBackend) -> None:
    """Let every node vote at once, without sitting out its quarantine. Only when no lease of theirs can be
    alive.

    For nodes that a test or a demo has just started empty. On nodes that have restarted while leases were
    held this is exactly what makes two holders possible.
    """
    for node in backend.nodes:
        run_id = node.client.info("server")["run_id"]
        node.client.set(backend.marker, f"{run_id}:0:0")  # known since 1970
