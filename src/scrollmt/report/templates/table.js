"use strict";
for (const box of document.querySelectorAll("[data-table]")) {
  const form = box.querySelector("form");
  const search = form.querySelector("input");
  const menus = [...form.querySelectorAll("select")];
  const count = form.querySelector("output");
  const rows = [...box.querySelectorAll("tbody tr")].map((row) => ({
    row,
    text: row.textContent.toLowerCase(),
    cells: [...row.cells].map((cell) => cell.textContent.trim()),
  }));
  const update = () => {
    const words = search ? search.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
    let shown = 0;
    for (const { row, text, cells } of rows) {
      const kept =
        words.every((word) => text.includes(word)) &&
        menus.every((menu) => menu.value === "" || cells[menu.dataset.column] === menu.value);
      row.hidden = !kept;
      shown += kept ? 1 : 0;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
  };
  form.addEventListener("input", update);
  form.addEventListener("change", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  update();
}
