"""The dashboard's pages, registered."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from scheduler.dashboard import matrix_page, overview_page, strategies_page, timeline_page, workers_page
from scheduler.dashboard.links import Links, lists_of
from scheduler.dashboard.page import PageAdmin
from scheduler.models import Dashboard, FailureMatrix, Strategies, Timeline, Workers


@admin.register(Dashboard)
class OverviewAdmin(PageAdmin):
    template = "scheduler/overview.html"

    def page(self, request: HttpRequest) -> dict[str, Any]:
        found = overview_page.report(request.GET.dict())
        links = Links(
            lists=lists_of(request, self.admin_site),
            timeline=self.path_of(Timeline),
            workers=self.path_of(Workers),
        )
        return overview_page.context(found, links, self.path_of(Dashboard, "data"))

    def data(self, request: HttpRequest) -> dict[str, Any]:
        return overview_page.as_json(overview_page.report(request.GET.dict()))


@admin.register(Timeline)
class TimelineAdmin(PageAdmin):
    template = "scheduler/timeline.html"

    def page(self, request: HttpRequest) -> dict[str, Any]:
        found = timeline_page.report(request.GET.dict())
        return timeline_page.context(found, self.path_of(Timeline, "data"))

    def data(self, request: HttpRequest) -> dict[str, Any]:
        return timeline_page.as_json(timeline_page.report(request.GET.dict()))


@admin.register(Workers)
class WorkersAdmin(PageAdmin):
    template = "scheduler/workers.html"

    def page(self, request: HttpRequest) -> dict[str, Any]:
        links = Links(timeline=self.path_of(Timeline))
        return workers_page.context(workers_page.report(request.GET.dict()), links, self.path_of(Workers, "data"))

    def data(self, request: HttpRequest) -> dict[str, Any]:
        return workers_page.as_json(workers_page.report(request.GET.dict()))


@admin.register(Strategies)
class StrategiesAdmin(PageAdmin):
    template = "scheduler/strategies.html"

    def page(self, request: HttpRequest) -> dict[str, Any]:
        found = strategies_page.report(request.GET.dict())
        return strategies_page.context(found, self.path_of(Timeline), self.path_of(Strategies, "data"))

    def data(self, request: HttpRequest) -> dict[str, Any]:
        return strategies_page.as_json(strategies_page.report(request.GET.dict()))


@admin.register(FailureMatrix)
class MatrixAdmin(PageAdmin):
    template = "scheduler/matrix.html"

    def page(self, request: HttpRequest) -> dict[str, Any]:
        return matrix_page.context(matrix_page.report(request.GET.dict()), self.path_of(FailureMatrix, "data"))

    def data(self, request: HttpRequest) -> dict[str, Any]:
        return matrix_page.as_json(matrix_page.report(request.GET.dict()))
