// Sorts the list of runs, and leads to the comparison of the ticked ones.
"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const order = at("list-order"), direction = at("list-direction"), rows = at("list-rows"), compare = at("list-compare");
  const heads = [...rows.closest("table").tHead.rows[0].cells];
  const most = Number(compare.dataset.most);

  const sort = () => {
    const column = heads.findIndex((head) => head.dataset.key === order.value), head = heads[column];
    const isNumber = head.dataset.number !== undefined, sign = direction.value === "down" ? -1 : 1;
    const rank = (row) => row.cells[column].dataset.rank;
    const by = (a, b) => {
      const x = rank(a), y = rank(b);
      if (!x || !y) return x ? -1 : y ? 1 : 0;  // a run without a value is last in both directions
      return sign * (isNumber ? Number(x) - Number(y) : x.localeCompare(y, undefined, { numeric: true }));
    };
    rows.append(...[...rows.rows].sort(by));
    heads.forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
    pick();
  };
  const pick = () => {
    const ticked = [...rows.querySelectorAll("input:checked")].map((tick) => tick.value);
    const works = ticked.length > 1 && ticked.length <= most;
    if (works) compare.href = `compare/${ticked.join("/")}/report.html`; else compare.removeAttribute("href");
    compare.setAttribute("aria-disabled", String(!works));
    compare.textContent = works ? `Compare ${ticked.length} runs`
      : ticked.length > most ? `At most ${most} runs can be compared` : "Tick two or more runs to compare them";
  };
  heads.forEach((head) => head.addEventListener("click", () => {
    const again = order.value === head.dataset.key;
    const down = again ? direction.value !== "down" : head.dataset.descends !== undefined;
    order.value = head.dataset.key;
    direction.value = down ? "down" : "up";
    sort();
  }));
  order.addEventListener("change", sort);
  direction.addEventListener("change", sort);
  rows.addEventListener("change", pick);
  sort();
})();
