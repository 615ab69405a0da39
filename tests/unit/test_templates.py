"""Templates under a strict Content-Security-Policy: nothing inline, nothing from elsewhere, nothing unescaped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
TEMPLATES = sorted((PROJECT / "templates").rglob("*.html"))
SCRIPTS = sorted((PROJECT / "scheduler/static").rglob("*.js"))
STYLES = sorted((PROJECT / "scheduler/static").rglob("*.css"))

WRONG = {
    "an inline script": re.compile(r"<script(?![^>]*\ssrc=)[^>]*>", re.I),
    "an inline style sheet": re.compile(r"<style\b", re.I),
    "a style attribute": re.compile(r"\sstyle\s*=", re.I),
    "a handler": re.compile(r"\son[a-z]+\s*=\s*[\"']", re.I),
    "a javascript: address": re.compile(r"javascript:", re.I),
    "another host": re.compile(r"(?:src|href|action)=[\"'](?:https?:)?//", re.I),
    "text that is not escaped": re.compile(r"\|\s*safe\b|autoescape\s+off"),
}
# A tag of ours loads what the policy lets in by its host or by its nonce.
TAGS = re.compile(r"<(?:script|link rel=\"stylesheet\")[^>]*>(?:</script>)?")


def wrong(text: str) -> list[str]:
    return [name for name, pattern in WRONG.items() if pattern.search(text)]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_a_template_holds_nothing_that_the_policy_refuses(path: Path) -> None:
    text = path.read_text()
    assert wrong(text) == []
    assert [tag for tag in TAGS.findall(text) if "static" in tag and "csp_nonce" not in tag] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_makes_no_markup_of_text_and_evaluates_none(path: Path) -> None:
    text = path.read_text()
    forbidden = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "http:")
    assert [word for word in forbidden if word in text] == []


@pytest.mark.parametrize("path", STYLES, ids=lambda path: path.name)
def test_a_style_sheet_loads_nothing(path: Path) -> None:
    assert re.findall(r"@import|url\((?!#)[^)]*\)", path.read_text()) == []


@pytest.mark.parametrize(
    ("markup", "found"),
    [
        ("<script>x</script>", "an inline script"),
        ('<script type="module">x</script>', "an inline script"),
        ('<p style="color: red">', "a style attribute"),
        ('<a onclick="x()">', "a handler"),
        ("<style>", "an inline style sheet"),
        ('<script src="https://cdn.example.com/x.js">', "another host"),
        ("{{ name|safe }}", "text that is not escaped"),
    ],
)
def test_what_is_wrong_is_found(markup: str, found: str) -> None:
    assert found in wrong(markup)


def test_a_script_of_our_own_is_not_wrong() -> None:
    assert wrong('<script type="module" src="{% static "aegis/live.js" %}"></script>') == []
