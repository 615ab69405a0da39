"""``lock_backends``: from an alias in ``settings.LOCKS`` to its backend, as ``caches`` for ``CACHES``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asgiref.local import Local
from django.conf import settings as django_settings
from django.utils.connection import BaseConnectionHandler
from django.utils.module_loading import import_string

from .backends.base import BaseLockBackend
from .exceptions import InvalidLockBackend

DEFAULT_LOCK_ALIAS = "default"


def backend_class(alias: str, params: Mapping[str, Any]) -> type[BaseLockBackend]:
    """The class that ``BACKEND`` names. Raises ``InvalidLockBackend`` if it names none."""
    path = params.get("BACKEND") if isinstance(params, Mapping) else None
    if not isinstance(path, str):
        raise InvalidLockBackend(f"LOCKS[{alias!r}]['BACKEND'] is missing: give the dotted path of a backend class.")
    try:
        found = import_string(path)
    except ImportError as error:
        raise InvalidLockBackend(f"LOCKS[{alias!r}]['BACKEND']: cannot import {path!r}: {error}") from error
    except Exception as error:  # whatever the module raises on its way in
        raise InvalidLockBackend(
            f"LOCKS[{alias!r}]['BACKEND']: importing {path!r} raises {type(error).__name__}."
        ) from error
    if not (isinstance(found, type) and issubclass(found, BaseLockBackend)):
        raise InvalidLockBackend(f"LOCKS[{alias!r}]['BACKEND']: {path!r} is no subclass of BaseLockBackend.")
    return found


if TYPE_CHECKING:  # generic in the stubs only
    _Handler = BaseConnectionHandler[BaseLockBackend]
else:
    _Handler = BaseConnectionHandler


class LockBackendHandler(_Handler):
    """``lock_backends["alias"]`` is the backend of that alias, one object per thread, made on first use."""

    settings_name = "LOCKS"
    exception_class = InvalidLockBackend

    def configure_settings(self, settings: dict[str, Any] | None) -> dict[str, Any]:
        """As given, else ``settings.LOCKS``, else none at all."""
        if settings is None:
            settings = getattr(django_settings, self.settings_name, {})
        if not isinstance(settings, Mapping):
            raise InvalidLockBackend("settings.LOCKS is no mapping: give a dict, shaped like CACHES.")
        return dict(settings)

    def create_connection(self, alias: str) -> BaseLockBackend:
        params = self.settings[alias]
        kind = backend_class(alias, params)
        try:
            return kind(alias, dict(params))
        except InvalidLockBackend:
            raise
        except Exception as error:  # one entry at fault is that entry's, whatever its class raises
            raise InvalidLockBackend(f"LOCKS[{alias!r}]: making it raises {type(error).__name__}.") from error

    def __getitem__(self, alias: str) -> BaseLockBackend:
        if alias not in self.settings:
            known = ", ".join(sorted(self.settings)) or "none"
            raise InvalidLockBackend(f"No lock backend {alias!r}. Add it to settings.LOCKS (there: {known}).")
        return super().__getitem__(alias)

    def aliases(self) -> list[str]:
        """The aliases of ``settings.LOCKS``, in the order of the settings."""
        return list(self.settings)

    def reset(self) -> None:
        """Forget all backends, so that changed settings are read again. Closes this thread's connections."""
        if "settings" in self.__dict__:  # nothing was made before they were read
            self.close_all()
        self._connections = Local(self.thread_critical)
        self._settings = None
        self.__dict__.pop("settings", None)  # a cached property

    def reset_on_change(self, *, setting: str, **kwargs: Any) -> None:
        """Receiver of ``setting_changed``, which is what makes ``override_settings(LOCKS=...)`` work."""
        if setting == self.settings_name:
            self.reset()


lock_backends = LockBackendHandler()
