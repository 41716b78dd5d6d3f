// Sort a table by a column: numbers by their unrounded value, missing cells last.
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const header = button.parentElement;
    const column = header.cellIndex;
    const body = header.closest("table").tBodies[0];
    const up = header.getAttribute("aria-sort") !== "ascending";
    for (const other of header.parentElement.children) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => {
      const cell = row.cells[column];
      return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
    };
    const order = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "--" || y === "--") return (x === "--") - (y === "--");
      const by = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(y);
      return up ? by : -by;
    };
    body.append(...[...body.rows].sort(order));
  });
}
