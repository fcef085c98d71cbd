/* What a page tells a reader who asks: what a word means, and, to a form, which block was looked at.
   Comes with the first pointer or key on a page, and listens on the document for all that follow. */
(() => {
  "use strict";

  /* ── A word of the glossary: shown by the theme, named and dismissed here ──────────────── */

  function name(shown) {
    if (!shown.matches?.(".md-tooltip2[role=dialog]")) return;
    const entry = shown.querySelector(".headerlink");
    shown.querySelectorAll(".headerlink").forEach((link) => link.remove());
    shown.setAttribute("aria-label", shown.querySelector("h3").textContent);
    if (entry && matchMedia("(hover: none)").matches) shown.firstChild.append(sheet(entry.href));
  }

  /* What ends a definition on a phone: a way to the glossary, to which a tap on the word did not lead. */
  function sheet(address) {
    const line = document.createElement("p");
    line.className = "book-sheet";
    const [link, close] = ["a", "button"].map((tag) => line.appendChild(document.createElement(tag)));
    link.href = address;
    link.textContent = "In the glossary";
    close.type = "button";
    close.textContent = "Close";
    close.addEventListener("click", () => hideDefinitions(true));
    return line;
  }

  new MutationObserver((changes) => changes.forEach(({ addedNodes }) => addedNodes.forEach(name)))
    .observe(document.body, { childList: true });
  document.querySelectorAll(".md-tooltip2").forEach(name);

  /* The theme keeps what it shows for a while, and may show the same again. */
  function hideDefinitions(hidden) {
    for (const shown of document.querySelectorAll(".md-tooltip2")) shown.hidden = hidden;
  }

  addEventListener("keydown", ({ key }) => key === "Escape" && hideDefinitions(true));

  /* ── A report on a wrong number names the block that was pointed at last ───────────────── */

  let pointed;

  /* Put into a link which block of the page holds, or stands last before, what was pointed at. */
  function fillIn(link) {
    const blocks = [...document.querySelectorAll(".md-content [class*=language-py].highlight")];
    const upto = blocks.filter((block) =>
      block === pointed || block.compareDocumentPosition(pointed) & Node.DOCUMENT_POSITION_FOLLOWING);
    if (!upto.length) return;
    const line = upto.at(-1).querySelector("pre > code").textContent.trim().split("\n")[0];
    const address = new URL(link.href);
    address.searchParams.set("block", `${upto.length}: ${line}`);
    link.href = address;
  }

  function point({ target }) {
    const on = (selector) => target.closest?.(selector);
    pointed = on(".md-content :is(.highlight, .output)") ?? pointed;
    if (on("a[data-preview]")) hideDefinitions(false);
    if (on("a.report") && pointed?.isConnected) fillIn(on("a.report"));
  }

  for (const type of ["pointerover", "focusin"]) addEventListener(type, point);
})();
