// Charts: the figures under the pointer, at the same time in all charts of the page, and zoom.

const ZOOM_PIXELS_MIN = 8;
const ZOOM_SECONDS_MIN = 10;
let zoomed = null;

function chartOf(event) {
  return event.target.closest ? event.target.closest("svg[data-points]") : null;
}

function chartData(chart) {
  return JSON.parse(chart.dataset.points);
}

// The time at a place of a chart, between its ends.
function momentAt(chart, data, clientX) {
  const box = chart.getBoundingClientRect();
  const x = ((clientX - box.left) / box.width) * data.width;
  const part = Math.min(Math.max((x - data.left) / (data.right - data.left), 0), 1);
  return data.start + part * (data.end - data.start);
}

function placeOf(data, moment) {
  return data.left + ((moment - data.start) / (data.end - data.start)) * (data.right - data.left);
}

function nearest(offsets, wanted) {
  let best = -1;
  offsets.forEach((offset, index) => {
    if (best < 0 || Math.abs(offset - wanted) < Math.abs(offsets[best] - wanted)) best = index;
  });
  return best;
}

function pointOut(chart, moment) {
  const data = chartData(chart);
  if (moment < data.start || moment > data.end) return;
  const figure = chart.closest(".figure");
  const legend = figure.querySelectorAll(".legend b");
  let at = null;
  data.lines.forEach(([offsets, texts], index) => {
    const best = nearest(offsets, (moment - data.start) * 10);
    if (best < 0) return;
    const time = data.start + offsets[best] / 10;
    at = at === null ? time : at;
    if (legend[index]) {
      if (!legend[index].dataset.last) legend[index].dataset.last = legend[index].textContent;
      legend[index].textContent = `${texts[best]} at ${clockText(time, true)}`;
    }
  });
  if (at === null) return;
  const cursor = chart.querySelector(".cursor");
  cursor.setAttribute("x1", placeOf(data, at));
  cursor.setAttribute("x2", placeOf(data, at));
  figure.classList.add("pointed");
}

function pointAt(event) {
  const chart = chartOf(event);
  if (!chart) return;
  const moment = momentAt(chart, chartData(chart), event.clientX);
  if (zoomed) showSelection(moment);
  const others = chart.classList.contains("zooms") ? document.querySelectorAll("svg.zooms") : [chart];
  for (const each of others) pointOut(each, moment);
}

function pointAway(event) {
  const figure = event.target.closest && event.target.closest(".figure");
  if (!figure || figure.contains(event.relatedTarget)) return;
  for (const each of document.querySelectorAll(".figure.pointed")) {
    each.classList.remove("pointed");
    for (const value of each.querySelectorAll(".legend b")) {
      if (value.dataset.last) value.textContent = value.dataset.last;
      delete value.dataset.last;
    }
  }
}

function showSelection(moment) {
  const { chart, data, from } = zoomed;
  const rect = chart.querySelector(".selection");
  const start = placeOf(data, Math.min(from, moment));
  rect.setAttribute("x", start);
  rect.setAttribute("width", placeOf(data, Math.max(from, moment)) - start);
}

function beginZoom(event) {
  const chart = chartOf(event);
  if (!chart || event.button !== 0 || !chart.classList.contains("zooms")) return;
  const data = chartData(chart);
  zoomed = { chart, data, from: momentAt(chart, data, event.clientX), x: event.clientX };
  event.preventDefault();
}

function endZoom(event) {
  if (!zoomed) return;
  const { chart, data, from, x } = zoomed;
  const moment = momentAt(chart, data, event.clientX);
  showSelection(from);
  zoomed = null;
  if (Math.abs(event.clientX - x) < ZOOM_PIXELS_MIN) return;
  const start = Math.floor(Math.min(from, moment));
  const end = Math.max(Math.ceil(Math.max(from, moment)), start + ZOOM_SECONDS_MIN);
  const target = new URL(location.href);
  target.searchParams.delete("range");
  target.searchParams.set("from", start);
  target.searchParams.set("to", end);
  location.assign(target);
}

document.addEventListener("pointermove", pointAt);
document.addEventListener("pointerout", pointAway);
document.addEventListener("pointerdown", beginZoom);
document.addEventListener("pointerup", endZoom);
document.addEventListener("pointercancel", () => { zoomed = null; });
