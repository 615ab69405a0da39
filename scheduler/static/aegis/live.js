/*
 * Live pages: the regions of a page are asked for again, at the page's own address, and put in their places.
 *
 * Nothing is asked while the tab is hidden, while somebody works in a region (focus in a form or menu, ticked rows,
 * selected text), after a while without input, or when it was switched off. Where the server does not answer, the old
 * figures stay and their age is told. Without this script the page stays as it was sent.
 */

const SWITCH = "aegis.live"; // in sessionStorage: "off" for this tab
const SECOND = 1000;
const PATIENCE_OF_A_REQUEST = 10 * SECOND;
const QUIET = 30 * SECOND; // between two messages to screen readers
const SLOWEST = 6; // intervals between two tries while the server does not answer
const BUSY = "form, menu, [role=menu], input, select, textarea";

const panel = document.querySelector("[data-aegis-live]");
const every = Number(panel?.dataset.aegisLive) * SECOND;
const patience = Number(panel?.dataset.aegisLivePatience) * SECOND;
const regions = () => document.querySelectorAll("[data-live-region]");
const part = (name) => panel.querySelector(`[data-aegis-live-${name}]`);

let timer = 0;
let version = null; // of the regions as they stand
let failures = 0;
let freshAt = new Date();
let touchedAt = Date.now();
let saidAt = 0;
let news = [];

function time(at) {
  return at.toLocaleTimeString("en-GB", { timeZoneName: "short" });
}

/* What holds the page back, as a sentence; empty where nothing does. */

function held() {
  if (sessionStorage.getItem(SWITCH) === "off") return "Live: off";
  if (Date.now() - touchedAt > patience) return `Paused after ${patience / SECOND / 60} minutes without input, resume?`;
  for (const region of regions()) {
    if (region.querySelector("input[type=checkbox]:checked")) return "Live: waits while rows are ticked";
    if (document.activeElement?.closest(BUSY) && region.contains(document.activeElement)) {
      return "Live: waits while a form is used";
    }
    const selection = getSelection();
    if (!selection.isCollapsed && region.contains(selection.anchorNode)) return "Live: waits while text is selected";
  }
  return "";
}

function show(text, { stale = false, resume = false } = {}) {
  part("state").textContent = text;
  part("switch").textContent = resume ? "Resume" : "Pause";
  panel.classList.toggle("aegis-warning", stale);
  for (const region of regions()) region.classList.toggle("aegis-stale", stale);
}

function tell() {
  const reason = held();
  if (failures) show(`Stale since ${time(freshAt)}, retrying`, { stale: true });
  else show(reason || `Live: every ${every / SECOND} s`, { resume: /off|resume/.test(reason) });
  return reason;
}

/* Putting a region in place: focus, scroll and opened tables survive. */

function pathOf(element, root) {
  const path = [];
  for (let at = element; at !== root; at = at.parentElement) path.unshift([...at.parentElement.children].indexOf(at));
  return path;
}

function remember(region) {
  const focused = region.contains(document.activeElement) ? document.activeElement : null;
  return {
    open: [...region.querySelectorAll("details")].map((details) => details.open),
    scrolled: [...region.querySelectorAll(".aegis-scroll")].map((box) => [box.scrollLeft, box.scrollTop]),
    focused: focused && {
      id: focused.id,
      href: focused.getAttribute("href"),
      text: focused.textContent,
      path: pathOf(focused, region),
    },
  };
}

function found(region, { id, href, text, path }) {
  if (id) return document.getElementById(id);
  if (href) {
    const links = [...region.querySelectorAll("a[href]")].filter((link) => link.getAttribute("href") === href);
    if (links.length) return links.find((link) => link.textContent === text) ?? links[0];
  }
  return path.reduce((at, index) => at?.children[index], region);
}

function restore(region, was) {
  region.querySelectorAll("details").forEach((details, index) => {
    details.open = was.open[index] ?? details.open;
  });
  region.querySelectorAll(".aegis-scroll").forEach((box, index) => {
    [box.scrollLeft, box.scrollTop] = was.scrolled[index] ?? [box.scrollWidth, 0];
  });
  if (was.focused) found(region, was.focused)?.focus({ preventScroll: true });
}

function figures(root) {
  const known = new Map();
  for (const tile of root.querySelectorAll(".aegis-tile")) {
    const value = tile.querySelector(".aegis-tile-value")?.textContent.trim();
    known.set(tile.querySelector(".aegis-tile-label")?.textContent.trim(), value);
  }
  for (const caption of root.querySelectorAll("figcaption")) {
    known.set(
      caption.querySelector(".aegis-title")?.textContent.trim(),
      caption.querySelector(".aegis-summary")?.textContent.trim(),
    );
  }
  return known;
}

/** What changed, for those who do not see it: at most one polite message each half minute. */
function announce(before, after) {
  for (const [label, value] of after) {
    if (before.get(label) !== value) news = [...news.filter(([known]) => known !== label), [label, value]];
  }
  if (news.length && Date.now() - saidAt > QUIET) {
    part("said").textContent = news.slice(0, 3).map((one) => one.join(": ")).join(". ");
    saidAt = Date.now();
    news = [];
  }
}

function place(text) {
  const sent = new DOMParser().parseFromString(text, "text/html");
  const before = figures(document);
  for (const region of regions()) {
    const fresh = sent.querySelector(`[data-live-region="${region.dataset.liveRegion}"]`);
    if (!fresh) continue;
    const was = remember(region);
    region.replaceChildren(...document.adoptNode(fresh).childNodes);
    restore(region, was);
    region.dispatchEvent(new CustomEvent("aegis:placed", { bubbles: true }));
  }
  announce(before, figures(document));
}

/* Asking. */

async function ask() {
  const address = location.href.split("#")[0];
  const answer = await fetch(address, {
    headers: { "X-Aegis-Live": "1", ...(version ? { "If-None-Match": version } : {}) },
    cache: "no-store",
    redirect: "error", // to the login, after the session has ended
    signal: AbortSignal.timeout(PATIENCE_OF_A_REQUEST),
  });
  if (answer.status !== 304 && !answer.ok) throw new Error(String(answer.status));
  const text = answer.status === 304 ? null : await answer.text();
  if (text !== null && !held() && !document.hidden) {
    place(text);
    version = answer.headers.get("ETag");
  }
  failures = 0;
  freshAt = new Date();
}

async function look() {
  timer = 0;
  if (document.hidden) return; // the tab's coming back starts it again
  if (!tell()) {
    try {
      await ask();
    } catch {
      failures += 1;
    }
    tell();
  }
  wait(every * Math.min(2 ** Math.max(0, failures - 1), SLOWEST));
}

function wait(milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(look, milliseconds);
}

function start() {
  panel.hidden = false;
  tell();
  wait(every);
  part("switch").addEventListener("click", () => {
    const off = part("switch").textContent === "Pause";
    sessionStorage.setItem(SWITCH, off ? "off" : "on");
    touchedAt = Date.now();
    failures = off ? 0 : failures;
    tell();
    wait(off ? every : 0);
  });
  for (const kind of ["pointerdown", "pointermove", "keydown", "wheel"]) {
    document.addEventListener(kind, () => {
      const slept = Date.now() - touchedAt > patience;
      if (!slept) touchedAt = Date.now(); // only the button wakes a page that was left alone
    }, { passive: true });
  }
  for (const kind of ["change", "focusin", "focusout"]) document.addEventListener(kind, () => failures || tell());
  document.addEventListener("visibilitychange", () => document.hidden || wait(0));
}

if (panel && every > 0) start();
