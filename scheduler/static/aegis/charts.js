/*
 * One tab stop per chart: arrow keys move between its marks, Enter opens one, Escape leaves.
 *
 * Without this script every mark is a tab stop behind a "skip chart" link. Charts that are put into the page later
 * (a region that is refreshed) are taken up when they get the focus.
 */

const KEYS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

function marksOf(chart) {
  return [...chart.querySelectorAll("a[href]")];
}

/** Make one mark of the chart the one that Tab reaches. */
function rove(chart, current) {
  for (const mark of marksOf(chart)) {
    mark.setAttribute("tabindex", mark === current ? "0" : "-1");
  }
}

function prepare(root) {
  for (const chart of root.querySelectorAll("[data-aegis-chart]")) {
    const marks = marksOf(chart);
    if (marks.length && !marks.some((mark) => mark.getAttribute("tabindex") === "0")) {
      rove(chart, marks[0]);
    }
  }
}

/** On a narrow page bars begin with the newest; a timeline with the names of its lanes. */
function showNewest(root) {
  for (const chart of root.querySelectorAll(".aegis-scroll > .aegis-chart")) {
    if (!chart.querySelector(".aegis-lane")) {
      chart.parentElement.scrollLeft = chart.parentElement.scrollWidth;
    }
  }
}

function onKey(event) {
  const chart = event.target.closest?.("[data-aegis-chart]");
  if (!chart || event.altKey || event.ctrlKey || event.metaKey) {
    return;
  }
  const marks = marksOf(chart);
  const here = marks.indexOf(event.target.closest("a[href]"));
  let next = -1;
  if (event.key in KEYS) {
    next = Math.min(marks.length - 1, Math.max(0, here + KEYS[event.key]));
  } else if (event.key === "Home") {
    next = 0;
  } else if (event.key === "End") {
    next = marks.length - 1;
  } else if (event.key === "Escape") {
    chart.closest("[tabindex]")?.focus();
  }
  if (next >= 0 && marks[next]) {
    rove(chart, marks[next]);
    marks[next].focus();
    event.preventDefault();
  }
}

prepare(document);
showNewest(document);
document.addEventListener("keydown", onKey);
document.addEventListener("focusin", (event) => {
  const chart = event.target.closest?.("[data-aegis-chart]");
  const mark = event.target.closest?.("a[href]");
  if (chart && mark) {
    rove(chart, mark);
  }
});
