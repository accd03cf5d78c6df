// What forms do by themselves: the first input that was refused is shown and gets the focus.
"use strict";

function showRefused() {
  const bad = document.querySelector("[aria-invalid=true]");
  if (!bad) return;
  for (let part = bad.closest("details"); part; part = part.parentElement.closest("details")) {
    part.open = true;
  }
  bad.focus();
}

showRefused();

// The text of an element as it is read, also of parts that are folded; without clipboard rights it is selected.
async function copyText(button) {
  const source = document.querySelector(button.dataset.copy);
  if (!source) return;
  const lines = source.matches(".json") ? textLines(source, "") : [source.textContent];
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(lines.join("\n"));
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(source);
    button.textContent = "Selected: press Ctrl+C";
  }
  setTimeout(() => { button.textContent = label; }, 2000);
}

function textLines(part, indent) {
  const lines = [];
  for (const child of part.children) {
    if (child.matches("details")) {
      const opened = child.querySelector("summary").cloneNode(true);
      opened.querySelectorAll(".folded").forEach((each) => each.remove());
      lines.push(indent + opened.textContent, ...textLines(child.querySelector(".inner"), indent + "  "));
      lines.push(indent + child.querySelector(":scope > .closing").textContent);
    } else {
      lines.push(indent + child.textContent);
    }
  }
  return lines;
}

document.addEventListener("click", (event) => {
  if (event.target.matches("button[data-copy]")) copyText(event.target);
});

// ---------------------------------------------------------------- keyboard and screen readers

// A part that is replaced by its newest state keeps the focus where it was.
let focused = null;

function describeFocus(element) {
  const part = element.closest && element.closest("[data-live]");
  if (!part) return null;
  const same = [...part.querySelectorAll(element.tagName)].filter((each) => isAlike(each, element));
  return { part: part.id, element, index: same.indexOf(element) };
}

function isAlike(one, other) {
  const names = ["id", "href", "name", "value"];
  return names.every((name) => one.getAttribute(name) === other.getAttribute(name))
    && (other.id !== "" || one.textContent === other.textContent || other.hasAttribute("href"));
}

function restoreFocus() {
  if (!focused || focused.element.isConnected || document.activeElement !== document.body) return;
  const part = document.getElementById(focused.part);
  if (!part) return;
  const alike = [...part.querySelectorAll(focused.element.tagName)]
    .filter((each) => isAlike(each, focused.element));
  const found = alike[focused.index] || alike[0];
  if (found) found.focus({ preventScroll: true });
}

document.addEventListener("focusin", (event) => { focused = describeFocus(event.target); });

// Changes of states are read out; figures alone, which change all the time, are not.
const announcer = document.createElement("div");
announcer.className = "unseen";
announcer.id = "announcer";
announcer.setAttribute("aria-live", "polite");
document.body.append(announcer);
const states = new Map();

function announceStates(isFirst) {
  const texts = [];
  const found = document.querySelectorAll("[data-live] [role=status], [data-live] [role=alert], #link-state, #reason");
  found.forEach((each, index) => {
    const key = each.id || String(index);
    const words = each.textContent.replace(/[\d.,:]+/g, "#");
    if (!isFirst && states.get(key) !== words) texts.push(each.textContent.trim());
    states.set(key, words);
  });
  if (texts.length > 0) announcer.textContent = texts.join(" ");
}

// What scrolls sideways can be scrolled with the arrow keys.
function reachScrolling() {
  for (const each of document.querySelectorAll(".scroll, pre, .json")) {
    if (each.scrollWidth > each.clientWidth || each.scrollHeight > each.clientHeight) {
      each.tabIndex = 0;
      each.setAttribute("role", "region");
      each.setAttribute("aria-label", "Content that scrolls");
    }
  }
}

document.addEventListener("refreshed", () => {
  restoreFocus();
  announceStates(false);
  reachScrolling();
});
announceStates(true);
reachScrolling();
