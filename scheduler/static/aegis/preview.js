/*
 * The next runs follow what is typed: 300 ms after the last key the form is sent to the code that would validate it on
 * save, and what it answers is put in place. Without this script, or when it fails, the button below does the same.
 */

const WAIT = 300;
const PARTS = ["next-runs-body", "guard-notes"];

const place = document.querySelector("[data-aegis-preview]");
const form = place?.closest("form");
const status = document.getElementById("preview-status");
let timer;
let asking;

function put(html) {
  const answer = new DOMParser().parseFromString(html, "text/html");
  for (const id of PARTS) {
    const old = document.getElementById(id);
    const fresh = answer.getElementById(id);
    if (old && fresh && !old.contains(document.activeElement)) old.replaceWith(fresh);
  }
}

async function ask() {
  asking?.abort();
  asking = new AbortController();
  try {
    const response = await fetch(place.dataset.aegisPreview, {
      method: "POST",
      body: new FormData(form),
      credentials: "same-origin",
      redirect: "error",
      signal: asking.signal,
    });
    if (!response.ok) throw new Error(String(response.status));
    put(await response.text());
    status.textContent = "Follows what you type.";
  } catch (trouble) {
    if (trouble.name !== "AbortError") status.textContent = "Not up to date: use the button.";
  }
}

form?.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(ask, WAIT);
});
