// Times: in the zone of the visitor or in UTC, by choice, and the full time under the pointer.

function isUtc() {
  return localStorage.getItem("zone") === "utc";
}

function twoDigits(number) {
  return String(number).padStart(2, "0");
}

// Hours and minutes of a time in seconds, with the seconds if wanted.
function clockText(seconds, withSeconds) {
  const moment = new Date(seconds * 1000);
  const parts = isUtc()
    ? [moment.getUTCHours(), moment.getUTCMinutes(), moment.getUTCSeconds()]
    : [moment.getHours(), moment.getMinutes(), moment.getSeconds()];
  return parts.slice(0, withSeconds ? 3 : 2).map(twoDigits).join(":");
}

function dayText(moment) {
  return isUtc()
    ? moment.toISOString().slice(0, 10)
    : [moment.getFullYear(), moment.getMonth() + 1, moment.getDate()].map(twoDigits).join("-");
}

// Times come in UTC; each keeps that text, so that the choice can be changed.
function showTimes(root) {
  for (const each of root.querySelectorAll("time[data-full]")) {
    const moment = new Date(each.dateTime);
    if (isNaN(moment)) continue;
    const rest = each.dataset.full;
    const full = isUtc()
      ? rest
      : `${dayText(moment)} ${clockText(moment / 1000, true)}${rest.slice(19).replace(" UTC", "")}`;
    const title = isUtc() ? rest : `${full} (${rest})`;
    if (each.title !== title) each.title = title;
    if (each.dataset.shows === "full" && each.textContent !== full) each.textContent = full;
  }
  for (const each of root.querySelectorAll("text[data-clock]")) {
    const text = clockText(Number(each.dataset.clock), each.textContent.length > 5);
    if (each.textContent !== text) each.textContent = text;
  }
  const zone = document.getElementById("zone");
  if (zone) zone.textContent = isUtc() ? "Times: UTC" : "Times: local";
}

function toggleZone() {
  localStorage.setItem("zone", isUtc() ? "local" : "utc");
  showTimes(document);
}

document.addEventListener("click", (event) => {
  if (event.target.id === "zone") toggleZone();
});
document.addEventListener("refreshed", () => showTimes(document));
showTimes(document);
