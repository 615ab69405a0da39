/*
 * What the pages for operators do with JavaScript; without it they work as well.
 *
 * data-aegis-until: counts down by the server's clock (data-aegis-now of its table), with the bar beside it.
 * data-aegis-complete: a form whose button waits until every required field is filled in.
 */

const SECOND = 1000;
const seen = new WeakMap(); // table -> how far this clock is behind the server's, milliseconds

function behind(table) {
  const stamp = table.dataset.aegisNow;
  const known = seen.get(table);
  if (known?.stamp !== stamp) {
    seen.set(table, { stamp, offset: Date.parse(stamp) - Date.now() });
  }
  return seen.get(table).offset;
}

function countDown() {
  for (const span of document.querySelectorAll("[data-aegis-until]")) {
    const table = span.closest("[data-aegis-now]");
    if (!table) continue;
    const left = (Date.parse(span.dataset.aegisUntil) - (Date.now() + behind(table))) / SECOND;
    span.textContent = left > 0 ? `in ${Math.ceil(left)} s` : "over, unless it was renewed";
    const bar = span.parentElement.querySelector("[data-aegis-lease]");
    if (bar) {
      const share = Math.max(0, Math.min(1, left / Number(bar.dataset.aegisLease)));
      bar.setAttribute("width", String(Math.round(share * Number(bar.previousElementSibling.getAttribute("width")))));
    }
  }
}

function waitUntilComplete(form) {
  const button = form.querySelector("button[type=submit]");
  const look = () => {
    button.disabled = !form.checkValidity();
  };
  form.addEventListener("input", look);
  look();
}

countDown();
setInterval(countDown, SECOND);
document.querySelectorAll("form[data-aegis-complete]").forEach(waitUntilComplete);
