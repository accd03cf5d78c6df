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
