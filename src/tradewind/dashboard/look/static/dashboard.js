// What a page does by itself: stay current, find by keyboard, be light or dark. It only replaces
// parts of the page with what the dashboard itself sends, and runs nothing else. The dashboard sends
// it as one file with charts.js, tables.js and times.js, which listen to "refreshed".
"use strict";

const REFRESH_MS = 2000;
const root = document.documentElement;

// ---------------------------------------------------------------- light and dark

const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

function toggleTheme() {
  const isDark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

// ---------------------------------------------------------------- parts that stay current

function isBusy(part) {
  const selection = getSelection();
  const marked = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  return marked || part.querySelector(":hover.figure, .figure.pointed, details[open]") !== null;
}

function showAway() {
  const state = document.getElementById("live-state");
  if (!state) return;
  const note = document.createElement("p");
  note.className = "state away bad";
  note.id = "link-state";
  note.textContent = "The dashboard does not respond; retrying.";
  state.replaceChildren(note);
}

async function refresh() {
  const parts = document.querySelectorAll("[data-live]");
  if (parts.length === 0 || document.hidden) return;
  let answer;
  try {
    answer = await fetch(location.href, { headers: { "X-Refresh": "1" }, redirect: "manual" });
  } catch {
    showAway();
    return;
  }
  if (answer.type === "opaqueredirect") {
    location.reload();
    return;
  }
  const made = new DOMParser().parseFromString(await answer.text(), "text/html");
  const token = made.querySelector("meta[name=csrf]");
  if (token && token.content !== document.querySelector("meta[name=csrf]").content) {
    location.reload(); // another page has switched to another server
    return;
  }
  for (const part of parts) {
    const fresh = made.getElementById(part.id);
    // What was sent is compared, since the page itself changes times and the order of rows.
    if (fresh && !isBusy(part) && fresh.innerHTML !== part.sentHtml) {
      part.sentHtml = fresh.innerHTML;
      part.replaceChildren(...fresh.childNodes);
    }
  }
  document.dispatchEvent(new Event("refreshed"));
}

async function keepCurrent() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, REFRESH_MS));
    await refresh();
  }
}

// ---------------------------------------------------------------- forms

// A button stays off until the name that would be lost is typed.
function watchTyped(input) {
  const button = input.form.querySelector("button.danger");
  const check = () => { button.disabled = input.value !== input.dataset.typed; };
  input.addEventListener("input", check);
  check();
}

function watchSlider(slider) {
  slider.addEventListener("change", () => slider.form.requestSubmit());
}

// A file is sent as it is, so that the dashboard can pass it on piece by piece.
function upload(form) {
  const file = form.querySelector("input[type=file]").files[0];
  const bar = form.querySelector("progress");
  const note = form.querySelector(".upload-state");
  const stop = form.querySelector(".upload-stop");
  const button = form.querySelector("button.main");
  if (!file || button.disabled) return;
  const query = new URLSearchParams({ name: file.name, size: file.size });
  for (const field of form.querySelectorAll("input:not([type=file])")) {
    if (field.value.trim()) query.set(field.name, field.value.trim());
  }
  const request = new XMLHttpRequest();
  const end = (text) => {
    note.textContent = text;
    bar.hidden = stop.hidden = true;
    button.disabled = false;
  };
  request.open("PUT", `${form.dataset.upload}?${query}`);
  request.setRequestHeader("X-CSRF-Token", document.querySelector("meta[name=csrf]").content);
  request.setRequestHeader("Content-Type", "application/octet-stream");
  bar.hidden = stop.hidden = false;
  button.disabled = true;
  note.textContent = "";
  request.upload.onprogress = (event) => {
    const part = event.loaded / Math.max(event.total, 1);
    bar.value = part;
    note.textContent = part < 1 ? `${Math.floor(part * 100)} %` : "The server is storing the rest.";
  };
  request.onload = () => {
    const target = request.getResponseHeader("Location");
    if (request.status === 201 && target && target.startsWith("/")) location.assign(target);
    else end(request.responseText);
  };
  request.onerror = () => end("The upload was interrupted; nothing was kept.");
  request.onabort = () => end("Stopped; nothing was kept.");
  stop.onclick = () => request.abort();
  request.send(file);
}

document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-upload]")) return;
  event.preventDefault();
  upload(event.target);
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    const search = document.getElementById("search");
    if (search) { search.focus(); event.preventDefault(); }
  }
  if (event.key === "Escape" && typing) event.target.blur();
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    if (event.target.matches("textarea[data-submits]")) event.target.form.requestSubmit();
  }
});
// On a phone the navigation is a menu.
function toggleMenu() {
  const menu = document.getElementById("menu");
  const isOpen = menu.getAttribute("aria-expanded") === "true";
  menu.setAttribute("aria-expanded", String(!isOpen));
  menu.closest("nav").classList.toggle("open", !isOpen);
}

document.addEventListener("click", (event) => {
  if (event.target.id === "theme") toggleTheme();
  if (event.target.closest("#menu")) toggleMenu();
});
document.querySelectorAll("input[data-typed]").forEach(watchTyped);
document.querySelectorAll("input[data-slides]").forEach(watchSlider);
keepCurrent();
