/* The table of the gallery, sorted by the column that is clicked, and filtered. Loaded on that page alone, each time that it
   comes; without it the table stands as it is. */
(() => {
  "use strict";

  const gallery = document.querySelector(".gallery");
  const table = gallery.querySelector("table"), body = table.tBodies[0], rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const sizes = { "under 4": [0, 4], "4 to 15": [4, 15], "15 to 100": [15, 100], "over 100": [100, Infinity] };

  /* What a row says in a column: a number where the column has numbers, nothing where the row has none. */
  function said(row, head) {
    const name = head.textContent, cell = head === heads[0] ? row.cells[0] : row.querySelector(`[data-name="${name}"]`);
    const text = cell?.textContent ?? "";
    return head.dataset.by === "number" ? parseFloat(text.replaceAll(",", "")) : text;
  }

  function sort(head) {
    const down = head.ariaSort === "ascending" ? -1 : 1;
    for (const one of heads) one.ariaSort = null;
    head.ariaSort = down > 0 ? "ascending" : "descending";
    const empty = (value) => value === "" || Number.isNaN(value);
    const order = (a, b) => empty(a) - empty(b) || down * (typeof a === "number" ? a - b : a.localeCompare(b));
    body.append(...rows.map((row) => [said(row, head), row]).sort(([a], [b]) => order(a, b)).map(([, row]) => row));
  }

  for (const head of heads) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: head.textContent });
    button.addEventListener("click", () => sort(head));
    head.dataset.name = head.textContent; // for paper, which has no buttons
    head.replaceChildren(button);
  }

  const form = document.createElement("form"), status = document.createElement("p");
  status.role = "status";
  const values = (name) => [...new Set(rows.flatMap((row) => row.dataset[name].split(name === "kind" ? " " : "\n")))].sort();
  const choices = { family: values("family"), kind: values("kind"), size: Object.keys(sizes), year: values("year") };
  for (const [name, options] of Object.entries(choices)) {
    const label = document.createElement("label"), select = document.createElement("select");
    select.name = name;
    for (const option of ["all", ...options]) select.add(new Option(option));
    label.append(`${name[0].toUpperCase()}${name.slice(1)} `, select);
    form.append(label);
  }
  form.append(status);

  /* Whether a row has what was chosen of one kind. */
  function has(row, name, wanted) {
    if (wanted === "all") return true;
    if (name !== "size") return row.dataset[name] === wanted || row.dataset[name].split(" ").includes(wanted);
    const [from, to] = sizes[wanted];
    return from <= row.dataset.size && row.dataset.size < to;
  }

  form.addEventListener("change", () => {
    const chosen = [...new FormData(form)];
    for (const row of rows) row.hidden = !chosen.every(([name, wanted]) => has(row, name, wanted));
    status.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} models`;
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  gallery.prepend(form);
})();
