"""Three roles as groups: who looks, who operates, who decides. A project may use them, or give permissions itself."""

from __future__ import annotations

from django.contrib.auth.models import Group, Permission
from django.db import transaction

# "app.codename" of every permission that a role has; each role has those of the one before.
_VIEWER = (
    "aegis_scheduler.view_dashboard",
    "aegis_scheduler.view_schedule",
    "aegis_scheduler.view_schedulechange",
    "aegis_scheduler.view_lock",
    "aegis_scheduler.view_lockname",
    "aegis_scheduler.view_lockrelease",
    "aegis_scheduler.view_tick",
    "aegis_scheduler.view_execution",
    "aegis_scheduler.view_instance",
    "aegis_scheduler.view_alert",
)
_OPERATOR = (
    "aegis_scheduler.run_schedule",
    "aegis_scheduler.pause_schedule",
    "aegis_scheduler.release_lock",
    "aegis_scheduler.export_execution",
    "aegis_scheduler.change_alert",
    "aegis_scheduler.view_arguments",
)
_ADMIN = (
    "aegis_scheduler.add_schedule",
    "aegis_scheduler.change_schedule",
    "aegis_scheduler.delete_schedule",
    "aegis_scheduler.change_strategy",
    "aegis_locks.view_leaserecord",
    "aegis_locks.view_claimrecord",
    "aegis_locks.view_advisoryrecord",
    "aegis_locks.view_fencerecord",
)
ROLES: dict[str, tuple[str, ...]] = {
    "Aegis viewer": _VIEWER,
    "Aegis operator": (*_VIEWER, *_OPERATOR),
    "Aegis admin": (*_VIEWER, *_OPERATOR, *_ADMIN),
}


def make_groups() -> dict[str, int]:
    """Make the three groups, and give each what its role has; returns how many permissions each was given anew.

    What a group was given besides is left. Raises ``Permission.DoesNotExist`` before ``migrate`` has made them.
    """
    given = {}
    with transaction.atomic():
        for name, wanted in ROLES.items():
            group, _ = Group.objects.get_or_create(name=name)
            known = set(group.permissions.values_list("pk", flat=True))
            missing = [found for one in wanted if (found := _permission(one)).pk not in known]
            group.permissions.add(*missing)
            given[name] = len(missing)
    return given


def _permission(name: str) -> Permission:
    app, codename = name.split(".")
    found: Permission = Permission.objects.get(content_type__app_label=app, codename=codename)
    return found
