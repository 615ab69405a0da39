"""The site's addresses: the admin, which holds every page of the project, and a health check."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path
from django.views.generic import RedirectView

from aegis_site.health import healthz

admin.site.site_header = "Aegis"
admin.site.site_title = "Aegis"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index", permanent=False)),
    path("healthz", healthz, name="healthz"),
    path("admin/", admin.site.urls),
]
