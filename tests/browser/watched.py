"""What a page does that nobody sees: refused by the policy, asked of another host, written to the console."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, ConsoleMessage, Page

# Runs before anything of the page does.
LISTEN = """
window.refusedByPolicy = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.refusedByPolicy.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""


@dataclass
class Watched:
    """Filled while the pages of one context are used. All of it stays empty on a good page."""

    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)


def watch(context: BrowserContext, host: str) -> Watched:
    """Watch every page of the context; ``host`` with its port is the only one that may be asked."""
    found = Watched()
    context.add_init_script(LISTEN)
    context.on("console", lambda said: _note(found, said))
    context.on("weberror", lambda thrown: found.errors.append(str(thrown.error)))
    context.on(
        "request",
        lambda asked: None if urlsplit(asked.url).netloc in (host, "") else found.strangers.append(asked.url),
    )
    return found


def _note(found: Watched, said: ConsoleMessage) -> None:
    if said.type == "error" and not said.location["url"].endswith(
        "/favicon.ico"
    ):  # asked by the browser, not the page
        found.errors.append(f"{said.text} {said.location['url']}")


def refused_by_policy(page: Page) -> list[str]:
    """What the Content-Security-Policy stopped on this page."""
    found: list[str] = page.evaluate("window.refusedByPolicy")
    return found


def inaccessible(page: Page, *, rules: tuple[str, ...] = ()) -> list[str]:
    """The rules of axe that the page breaks, each with the elements; of ``rules`` only, if some are given."""
    # The admin fades its links from one theme to the other.
    page.evaluate("Promise.allSettled(document.getAnimations().map((fading) => fading.finished)).then(() => null)")
    only = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else {}
    found = Axe().run(page, options={"resultTypes": ["violations"], **only}).response["violations"]
    return [f"{rule['id']}: {[node['html'][:200] for node in rule['nodes']]}" for rule in found]


def inaccessible_in_the_dark(page: Page) -> list[str]:
    """The same page in its dark colours, as far as colours matter."""
    page.emulate_media(color_scheme="dark")
    return inaccessible(page, rules=("color-contrast", "link-in-text-block"))


def wider_than_the_screen(page: Page) -> int:
    """By how many pixels the page scrolls sideways."""
    over: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return over
