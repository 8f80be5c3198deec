// Filters the list of runs. Without JavaScript the whole list is there.
"use strict";
(() => {
  const box = document.getElementById("filter");
  const rows = [...document.querySelectorAll("tr[data-run]")];
  if (!box || rows.length < 2) return;
  box.hidden = false;
  const text = box.querySelector("input");
  const results = box.querySelector("select");
  const said = box.querySelector("output");
  const folded = document.getElementById("more-runs");
  const apply = () => {
    const wanted = text.value.trim().toLowerCase();
    const active = wanted !== "" || results.value !== "";
    let shown = 0;
    for (const row of rows) {
      const fits = row.dataset.run.toLowerCase().includes(wanted) && (!results.value || row.dataset.result === results.value);
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    if (folded && active) folded.open = true;
    said.textContent = active ? `${shown} of ${rows.length} runs` : "";
  };
  text.addEventListener("input", apply);
  results.addEventListener("change", apply);
})();
