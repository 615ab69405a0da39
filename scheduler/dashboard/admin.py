"""The dashboard's pages, registered."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from scheduler.dashboard import collision_page, timeline_page
from scheduler.dashboard.page import PageAdmin
from scheduler.dashboard.schedule_table import COLUMNS, figures_of
from scheduler.models import Dashboard, Timeline


@admin.register(Dashboard)
class OverviewAdmin(PageAdmin):
    template = "scheduler/collisions.html"

    def page(self, request: HttpRequest) -> dict[str, Any]:
        found = collision_page.report(request.GET.dict())
        paths = (self.path_of(Timeline), self.path_of(Dashboard, "data"))
        sums = figures_of(found.figures.total)
        return {**collision_page.context(found, *paths), "columns": COLUMNS, "sums": sums}

    def data(self, request: HttpRequest) -> dict[str, Any]:
        return collision_page.as_json(collision_page.report(request.GET.dict()))


@admin.register(Timeline)
class TimelineAdmin(PageAdmin):
    template = "scheduler/timeline.html"

    def page(self, request: HttpRequest) -> dict[str, Any]:
        found = timeline_page.report(request.GET.dict())
        return timeline_page.context(found, self.path_of(Timeline, "data"))

    def data(self, request: HttpRequest) -> dict[str, Any]:
        return timeline_page.as_json(timeline_page.report(request.GET.dict()))
