// Tables: those that the dashboard does not sort are sorted here, by any column.

const tableOrders = new Map(); // by the place of a table on the page: [column, whether downwards]

// What a cell is sorted by: a number, a time, or its text.
function cellValue(cell) {
  const marked = cell.querySelector("[data-sort]");
  if (marked) return Number(marked.dataset.sort);
  const time = cell.querySelector("time");
  if (time) return Date.parse(time.dateTime) || 0;
  const text = cell.textContent.trim();
  if (cell.classList.contains("number-cell")) return readNumber(text);
  return text.toLowerCase();
}

function readNumber(text) {
  const found = /^(-?[\d,.]+)\s*([kMGTP]?)(i?B)?/.exec(text);
  if (!found) return -Infinity;
  const base = found[3] === "iB" ? 1024 : 1000;
  const power = found[2] ? "kMGTP".indexOf(found[2]) + 1 : 0;
  return parseFloat(found[1].replaceAll(",", "")) * base ** power;
}

function sortTable(table, index, isDown) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [cellValue(row.cells[index]), row]);
  rows.sort(([a], [b]) => {
    const order = typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a < typeof b ? -1 : 1;
    return isDown ? -order : order;
  });
  body.append(...rows.map(([, row]) => row));
  [...table.tHead.rows[0].cells].forEach((header, at) => {
    const arrow = header.querySelector(".arrow");
    if (arrow) arrow.textContent = at === index ? (isDown ? "\u2193" : "\u2191") : "";
    if (at === index) header.setAttribute("aria-sort", isDown ? "descending" : "ascending");
    else header.removeAttribute("aria-sort");
  });
}

function makeSortable(table, key) {
  if (table.dataset.sorted !== undefined || !table.tHead || table.tBodies[0].rows.length < 2) return;
  [...table.tHead.rows[0].cells].forEach((header, index) => {
    const name = header.textContent;
    if (!name || header.querySelector("button")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    const arrow = document.createElement("span");
    arrow.className = "arrow";
    button.append(name, arrow);
    header.replaceChildren(button);
    button.addEventListener("click", () => {
      const [column, isDown] = tableOrders.get(key) || [-1, false];
      const startsDown = header.classList.contains("number-cell");
      const order = [index, column === index ? !isDown : startsDown];
      tableOrders.set(key, order);
      sortTable(table, ...order);
    });
  });
  const order = tableOrders.get(key);
  if (order && order[0] < table.tHead.rows[0].cells.length) sortTable(table, ...order);
}

function makeTablesSortable() {
  document.querySelectorAll("main table").forEach(makeSortable);
}

document.addEventListener("refreshed", makeTablesSortable);
makeTablesSortable();
