"""The verbs of ``manage.py aegis``. Any installed app may add some: modules of its ``cli`` package.

A verb is a module with ``HELP``, ``add_arguments(parser)`` and ``run(command, **options) -> int | None``; its name
is the module's.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from django.apps import apps
from django.utils.module_loading import module_has_submodule


def offers(verb: str) -> bool:
    """Whether an installed app has this verb: some are in a clone of Aegis and not in its wheel. Imports none."""
    return any(
        module_has_submodule(config.module, f"cli.{verb}") for config in apps.get_app_configs() if config.module
    )


def verbs() -> dict[str, ModuleType]:
    """Verb -> module, of every installed app; apps that are named earlier win."""
    found: dict[str, ModuleType] = {}
    for config in apps.get_app_configs():
        if module_has_submodule(config.module, "cli"):
            package = import_module(f"{config.name}.cli")
            for info in iter_modules(package.__path__):
                found.setdefault(info.name, import_module(f"{package.__name__}.{info.name}"))
    return {name: module for name, module in sorted(found.items()) if hasattr(module, "HELP")}
