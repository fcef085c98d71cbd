/* Heatmaps by keyboard: a table is one tab stop, and arrow keys go from cell to cell. Listens on the
   document, so that it works on pages that arrive later, by instant navigation. */
(() => {
  "use strict";
  const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

  const cellOf = ({ target }) => target.closest?.(".heat tbody td");
  const labelsOf = (cell) => [cell.parentNode.cells[0], cell.closest("table").tHead.rows[0].cells[cell.cellIndex]];

  /* The cell that a link of the text leads to. */
  function linked({ target }) {
    const link = target.closest?.('.md-content a[href*="#"]');
    return link?.pathname === location.pathname && document.getElementById(link.hash.slice(1))?.closest(".heat td");
  }

  /* A map that is too wide for a phone has no numbers there: its caption says that of one cell. */
  function tell(cell) {
    const names = labelsOf(cell).map((label) => label.textContent);
    cell.closest("table").caption.dataset.said = `${names.join(" → ")}: ${cell.textContent}`;
  }

  function go(cell) {
    tell(cell);
    const table = cell.closest("table");
    table.setAttribute("role", "grid");
    table.querySelector('td[tabindex="0"]')?.setAttribute("tabindex", -1);
    cell.tabIndex = 0;
    cell.focus();
  }

  addEventListener("click", (event) => cellOf(event) && !String(getSelection()) && go(cellOf(event)));

  addEventListener("keydown", (event) => {
    const cell = cellOf(event);
    if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
    const { cells, sectionRowIndex, parentNode } = cell.parentNode;
    const ends = { Home: [0, 1 - cell.cellIndex], End: [0, cells.length - 1 - cell.cellIndex] };
    let [down, right] = MOVES[event.key] ?? ends[event.key] ?? [];
    if (down === undefined) return;
    if (getComputedStyle(cell.closest("table")).display === "grid") [down, right] = [right, down]; // it is turned
    event.preventDefault();
    const next = parentNode.rows[sectionRowIndex + down]?.cells[cell.cellIndex + right];
    if (next?.matches("td")) go(next);
  });

  /* A cell that is looked at lights the labels of its row and of its column; a link to one lights it, too. */
  let lit = [];
  function light(event) {
    if (!event.isTrusted) return; // said once more to a script that came late
    const named = linked(event), cell = !/out$/.test(event.type) && (named || cellOf(event));
    for (const one of lit) one.classList.remove("lit");
    lit = cell ? labelsOf(cell) : [];
    if (cell && named) tell(cell), lit.push(cell);
    for (const one of lit) one.classList.add("lit");
  }
  for (const type of ["pointerover", "pointerout", "focusin", "focusout"]) addEventListener(type, light);
})();
