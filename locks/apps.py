from __future__ import annotations

from django.apps import AppConfig
from django.core.signals import setting_changed
from django.utils.translation import gettext_lazy as _


class LocksConfig(AppConfig):
    """Leases over named resources. The label differs from the module name, which is a common one."""

    name = "locks"
    label = "aegis_locks"
    verbose_name = _("Aegis locks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401  (registers the system checks)
        from .handler import lock_backends

        setting_changed.connect(lock_backends.reset_on_change, dispatch_uid="aegis_locks.settings")
