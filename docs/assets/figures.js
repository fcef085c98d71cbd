/* Heatmaps by keyboard: a table is one tab stop, and arrow keys go from cell to cell. A link of the
   text to a cell lights it while the link is pointed at. Listens on the document, so that it works
   on pages that arrive later, by instant navigation. */
(function () {
  "use strict";
  const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

  const cellOf = (event) =>
    event.target.closest && event.target.closest(".heat tbody td");

  /* A map that is too wide for a phone has no numbers there: its caption says that of one cell. */
  function tell(cell) {
    const { caption, tHead } = cell.closest("table");
    const names = [cell.parentNode.cells[0], tHead.rows[0].cells[cell.cellIndex]];
    caption.dataset.said = `${names.map((name) => name.textContent).join(" → ")}: ${cell.textContent}`;
  }

  function go(cell) {
    tell(cell);
    const table = cell.closest("table");
    table.setAttribute("role", "grid");
    const before = table.querySelector('td[tabindex="0"]');
    if (before) before.tabIndex = -1;
    cell.tabIndex = 0;
    cell.focus();
  }

  document.addEventListener("keydown", function (event) {
    const cell = cellOf(event);
    if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
    const row = cell.parentNode;
    const rows = row.parentNode.rows;
    let [down, right] = MOVES[event.key] || [];
    if (event.key === "Home") [down, right] = [0, 1 - cell.cellIndex];
    if (event.key === "End") [down, right] = [0, row.cells.length - 1 - cell.cellIndex];
    if (down === undefined) return;
    if (getComputedStyle(cell.closest("table")).display === "grid") [down, right] = [right, down]; // it is turned
    event.preventDefault();
    const next = rows[row.sectionRowIndex + down];
    const column = cell.cellIndex + right;
    if (next && column > 0 && next.cells[column]) go(next.cells[column]);
  });

  const lit = (event) => {
    const link = event.target.closest && event.target.closest('.md-content a[href*="#"]');
    const cell = link && document.getElementById(link.hash.slice(1));
    if (!cell || !cell.matches(".heat td") || link.pathname !== location.pathname) return;
    tell(cell);
    return cell;
  };
  for (const [begins, ends] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
    document.addEventListener(begins, (event) => lit(event)?.classList.add("lit"));
    document.addEventListener(ends, (event) => lit(event)?.classList.remove("lit"));
  }

  /* A cell that is looked at, or that a link names, lights the labels of its row and of its column. */
  let labels = [];
  function light(event) {
    if (!event.isTrusted) return; // said once more to a script that came late
    const cell = event.type !== "focusout" && (cellOf(event) || lit(event));
    for (const label of labels) label.classList.remove("lit");
    labels = cell ? [cell.parentNode.cells[0], cell.closest("table").tHead.rows[0].cells[cell.cellIndex]] : [];
    for (const label of labels) label.classList.add("lit");
  }
  for (const type of ["pointerover", "focusin", "focusout"]) document.addEventListener(type, light);

  /* Few pages hold an explorable; its script is fetched when a reader is within a screen of one, and
     at once where the address names a state. */
  const folder = document.currentScript.src;
  const near = new IntersectionObserver((entries) => {
    if (!location.hash.includes("?") && !entries.some((entry) => entry.isIntersecting)) return;
    near.disconnect();
    const script = document.createElement("script");
    script.src = new URL("attention.js", folder);
    document.head.append(script);
  }, { rootMargin: "100%" });
  function watch() {
    if (customElements.get("attention-explorable")) return;
    for (const figure of document.querySelectorAll("figure.attention")) near.observe(figure);
  }
  if (typeof document$ === "undefined") watch();
  else document$.subscribe(watch);

  document.addEventListener("click", function (event) {
    const cell = cellOf(event);
    if (cell && !String(getSelection())) go(cell);
  });
})();
