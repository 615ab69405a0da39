"""Words of the documentation, printed on a page."""

from __future__ import annotations

from django import template
from django.utils.html import format_html, format_html_join

register = template.Library()


@register.filter
def as_code(text: str) -> str:
    """What stands between backticks becomes ``<code>``; everything is escaped."""
    parts = text.split("`")
    return format_html_join(
        "",
        "{}",
        ((format_html("<code>{}</code>", part) if number % 2 else part,) for number, part in enumerate(parts)),
    )
