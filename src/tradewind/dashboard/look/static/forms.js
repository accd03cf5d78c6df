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
