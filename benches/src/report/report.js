// SPDX-License-Identifier: Apache-2.0
// Sorts a table by the column whose header is pressed; pressed again, the other way round.
"use strict";

// What a row is sorted by: a number, a text, or nothing where a number is missing.
function keyOf(row, column) {
  const cell = row.cells[column];
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
  return cell.textContent === "–" ? undefined : cell.textContent;
}

// Rows without a value come last in both directions.
function compare(a, b, direction) {
  if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
  const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
  return order * direction;
}

for (const table of document.querySelectorAll("table[data-sort]")) {
  const body = table.tBodies[0];
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => {
      const ascending = header.getAttribute("aria-sort") !== "ascending";
      for (const other of headers) other.setAttribute("aria-sort", "none");
      header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => [keyOf(row, column), row]);
      rows.sort(([a], [b]) => compare(a, b, ascending ? 1 : -1));
      body.append(...rows.map(([, row]) => row));
    });
  });
}
