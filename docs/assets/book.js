/* What a page can do beyond being read. One classic script, so that it also runs from a disk; each
   feature works on its own and leaves a page that is complete without it. */
(() => {
  "use strict";

  const ICONS = {
    wrap: "M4 5h16v2H4zm0 6h12a4 4 0 0 1 0 8h-2v2l-4-3 4-3v2h2a2 2 0 0 0 0-4H4zm0 6h4v2H4z",
    copy: "M5 3h9a1 1 0 0 1 1 1v2h-2V5H6v9h1v2H5a1 1 0 0 1-1-1V4a1 1 0 0 1 1-1m5 5h9a1 1 0 0 1 1 1v11a1 1 0 0 1-1 1h-9a1 1 0 0 1-1-1V9a1 1 0 0 1 1-1m1 2v9h7v-9z",
    run: "M8 5v14l11-7z",
    edit: "M3 17.2V21h3.8L17.9 9.9l-3.8-3.8zM20.7 7a1 1 0 0 0 0-1.4l-2.3-2.3a1 1 0 0 0-1.4 0l-1.8 1.8L19 8.9z",
    above: "M4 3h16v2H4zm0 4h16v2H4zm2 5h12a1 1 0 0 1 1 1v7a1 1 0 0 1-1 1H6a1 1 0 0 1-1-1v-7a1 1 0 0 1 1-1m1 2v5h10v-5z",
  };

  /* Say something to those who listen instead of look. */
  function announce(message) {
    let status = document.getElementById("book-status");
    if (!status) {
      status = document.createElement("div");
      status.id = "book-status";
      status.className = "book-unseen";
      status.setAttribute("role", "status");
      document.body.append(status);
    }
    status.textContent = message;
  }

  /* ── Copy ──────────────────────────────────────────────────────────────────────────────── */

  /* The program that ends with a block: all blocks before it, and the block. Of a block that ends
     in an error the page brings along the form in which the error is caught. A lab has no programs. */
  function program(code) {
    const blocks = [...document.querySelectorAll(".md-content .highlight[class*=language-py] pre > code")];
    const pieces = blocks.map((block) => block.textContent);
    const { children } = document.getElementById("guarded").content;
    for (const guarded of children) pieces[guarded.dataset.block] = guarded.textContent;
    return [...pieces.slice(0, blocks.indexOf(code)), code.textContent].join("\n");
  }

  async function toClipboard(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Older browsers, and some when the page was opened from a disk.
      const field = document.createElement("textarea");
      field.value = text;
      field.setAttribute("aria-hidden", "true");
      field.style.cssText = "position:fixed;opacity:0";
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
  }

  function button(kind, label) {
    const made = document.createElement("button");
    made.type = "button";
    made.title = label;
    made.setAttribute("aria-label", label);
    made.innerHTML = `<svg viewBox="0 0 24 24" aria-hidden="true"><path d="${ICONS[kind]}"/></svg>`;
    return made;
  }

  function copyButton(kind, label, text) {
    const made = button(kind, label);
    made.dataset.copy = kind;
    made.addEventListener("click", async () => {
      const focused = document.activeElement;
      await toClipboard(text());
      if (focused instanceof HTMLElement) focused.focus();
      made.dataset.done = "";
      announce("Copied");
      setTimeout(() => delete made.dataset.done, 1500);
    });
    return made;
  }

  function note(text) {
    const made = document.createElement("p");
    made.className = "unrun";
    made.textContent = text;
    return made;
  }

  function addButtons() {
    const isProgram = document.getElementById("guarded");
    const run = isProgram?.dataset ?? {};
    const unrun = JSON.parse(run.unrun ?? "{}");
    let runnable = 0, others = 0;
    for (const block of document.querySelectorAll(".md-content .highlight")) {
      const code = block.querySelector("pre > code");
      if (!code || block.querySelector(".book-copy")) continue;
      const bar = document.createElement("div");
      bar.className = "book-copy";
      bar.setAttribute("role", "toolbar");
      const isBlock = /\blanguage-py/.test(block.className) && isProgram;
      const named = isBlock ? `block ${runnable + 1}` : `code ${++others}`;
      bar.setAttribute("aria-label", named);
      bar.append(copyButton("copy", `Copy ${named}`, () => code.textContent));
      if (isBlock) {
        const at = runnable++;
        bar.append(copyButton("above", `Copy ${named} with everything above`, () => program(code)));
        if (unrun[at]) block.after(note(`Does not run in the page: ${unrun[at]}.`));
        else if (run.run) bar.prepend(runButton("run", `Run ${named}`, at), runButton("edit", `Edit ${named}`, at));
      }
      [...bar.children].forEach((each, place) => (each.tabIndex = place ? -1 : 0));
      block.append(bar);
    }
  }

  /* What runs and edits a block comes with the first touch of such a button, or where a reader has left
     something; `run.js` listens for `book:run`. */
  function runButton(kind, label, at) {
    const made = button(kind, label);
    made.dataset.run = kind;
    if (kind === "run") made.append("Run");
    made.addEventListener("click", () => ask({ kind, at }, made.closest(".highlight")));
    return made;
  }

  let runs;
  async function ask(detail, block) {
    runs ||= new Promise((loaded, failed) => {
      const script = document.createElement("script");
      script.src = new URL("run.js", home);
      script.onload = loaded;
      script.onerror = failed;
      document.head.append(script);
    });
    try {
      await runs;
      document.querySelectorAll(".unloaded").forEach((each) => each.remove());
      dispatchEvent(new CustomEvent("book:run", { detail }));
    } catch {
      runs = undefined;
      const said = "What runs a block could not be loaded. Try again when you are online.";
      announce(said);
      if (!block || block.nextElementSibling?.matches(".unloaded")) return;
      block.after(note(said));
      block.nextElementSibling.classList.add("unloaded");
    }
  }

  // A figure asks for another sentence.
  addEventListener("book:read", ({ detail }) => ask({ kind: "read", ...detail }));

  addEventListener("book:say", ({ detail }) => announce(detail));

  /* The buttons of a block are one tab stop; arrow keys go from one to the other. */
  document.addEventListener("keydown", (event) => {
    if (!/^Arrow(Left|Right)$/.test(event.key) || !event.target.matches?.(".book-copy button")) return;
    const { nextSibling, previousSibling, parentNode } = event.target;
    const other = event.key === "ArrowRight" ? nextSibling || parentNode.firstChild : previousSibling || parentNode.lastChild;
    event.preventDefault();
    event.target.tabIndex = -1;
    other.tabIndex = 0;
    other.focus();
  });

  /* ── On a phone, long lines of code or of outputs are wrapped, as a reader chose; see book.css ─── */

  const phone = matchMedia("screen and (max-width: 44.984em)");
  const WRAP = "book-wrap";
  const LONG = { code: ".md-content .highlight pre > code", output: ".md-content .output samp.long" };

  /* Which of the two are wrapped. */
  function wrapped() {
    try {
      return (localStorage.getItem(WRAP) ?? "output").split(" ");
    } catch {
      return ["output"];
    }
  }

  /* Make each line of code an element, which bends by itself and says how far it is indented. Those of outputs
     are so from the start. */
  function bend(text) {
    if (text.querySelector(".line")) return;
    let open = "";
    text.innerHTML = text.innerHTML.split(/(?<=\n)/).map((line) => {
      const html = open + line;
      open = /<span[^>]*>(?![^]*<\/span>)/.exec(html)?.[0] ?? "";
      return `<span class="line" style="--in:${/^ */.exec(line)[0].length}">${html}${open && "</span>"}</span>`;
    }).join("");
  }

  function wrapLines() {
    if (!phone.matches) return;
    const now = wrapped();
    document.documentElement.dataset.wrap = now.join(" ");
    for (const what in LONG) {
      const texts = document.querySelectorAll(LONG[what]);
      if (what === "code" && now.includes(what)) texts.forEach(bend);
      for (const text of texts)
        if (/.{38}/.test(text.textContent)) addWrapButton(what, text).setAttribute("aria-pressed", now.includes(what));
    }
  }

  function addWrapButton(what, text) {
    const block = text.closest(".highlight, .output");
    const found = block.querySelector("[data-wraps]");
    if (found) return found;
    const made = button("wrap", "Wrap long lines");
    made.dataset.wraps = what;
    made.addEventListener("click", () => {
      const now = wrapped();
      const others = now.filter((one) => one && one !== what);
      keep(WRAP, (now.includes(what) ? others : [...others, what]).join(" "));
      wrapLines();
      nameScrollers();
    });
    const bar = block.querySelector(".book-copy");
    (bar ?? block.querySelector("figcaption")).append(made);
    if (bar) made.tabIndex = -1;
    return made;
  }

  phone.addEventListener("change", wrapLines);

  /* ── Boxes that scroll sideways, and no others, can be reached, have a name and say what they hide ─── */

  const SCROLLERS = {
    Code: "pre > code", Output: ".output pre", Formula: ".math, .math-long", Table: ".book-scroll",
    "": ".heat, .edits", // whose cells and fields are reached, and have names
  };
  const CAN_SCROLL = `.md-content :is(${Object.values(SCROLLERS).join()})`;

  /* At which sides a box hides something; see book.css. What is folded is measured when it is opened: the browser
     would lay it out for that. What stands in a line has no inside, though Firefox gives it a width. */
  function hiddenSides(box) {
    const most = box.clientWidth && !box.closest("details:not([open])") ? box.scrollWidth - box.clientWidth : 0;
    const left = box.scrollLeft > 1, right = most - box.scrollLeft > 1;
    return most <= 1 ? "" : left && right ? "both" : left ? "left" : "right";
  }

  function sayWhatHides(box, sides = hiddenSides(box)) {
    if (sides) box.dataset.hides = sides;
    else delete box.dataset.hides;
  }

  function nameScrollers() {
    const boxes = Array.from(document.querySelectorAll(CAN_SCROLL));
    // All are measured before any is changed: the page is laid out once.
    const sides = boxes.map(hiddenSides);
    boxes.forEach((box, at) => {
      sayWhatHides(box, sides[at]);
      const name = Object.keys(SCROLLERS).find((each) => box.matches(SCROLLERS[each]));
      for (const [attribute, value] of Object.entries(name && { tabindex: "0", role: "group", "aria-label": name })) {
        if (sides[at]) box.setAttribute(attribute, value);
        else box.removeAttribute(attribute);
      }
    });
  }

  /* Once in a frame, however many are opened in it. */
  let due;
  function nameSoon() {
    due ||= requestAnimationFrame(() => {
      due = 0;
      nameScrollers();
    });
  }

  /* ── By keyboard ───────────────────────────────────────────────────────────────────────── */

  /* After a click the reader stands where the address points, or at the heading that is in sight. */
  let arrived = false;
  function standAtHeading() {
    if (!arrived) return (arrived = true); // opened anew: the browser knows where
    // The theme has gone back to where the reader was; a row of buttons may have moved that since.
    if (history.state?.y) scrollTo({ top: history.state.y, behavior: "instant" });
    const headings = [...document.querySelectorAll(".md-content article :is(h1, h2, h3)")];
    const passed = headings.filter((heading) => heading.getBoundingClientRect().top < innerHeight / 4);
    const place = document.getElementById(location.hash.slice(1)) || passed.pop() || headings[0];
    if (!place) return;
    if (!place.hasAttribute("tabindex")) {
      place.tabIndex = -1;
      place.addEventListener("blur", () => place.removeAttribute("tabindex"), { once: true });
    }
    place.focus({ preventScroll: true });
  }

  /* Where the menu folds, its label opens it for a mouse alone; this button stands in for the keys. */
  function addMenuButton() {
    const label = document.querySelector(".md-header label[for=__drawer]");
    const toggle = document.getElementById("__drawer");
    if (!label || !toggle || label.nextElementSibling?.matches(".book-menu")) return;
    const menu = document.createElement("button");
    const says = () => menu.setAttribute("aria-expanded", toggle.checked);
    menu.type = "button";
    menu.className = "book-menu book-unseen";
    menu.setAttribute("aria-label", "Menu");
    menu.addEventListener("click", () => {
      toggle.click();
      const open = document.querySelectorAll(".md-nav--primary .md-nav__toggle:checked ~ .md-nav");
      ([...open].pop() || document.querySelector(".md-nav--primary")).querySelector("a[href]").focus();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !toggle.checked) return;
      toggle.click();
      menu.focus();
    });
    toggle.addEventListener("change", says);
    says();
    label.after(menu);
  }

  /* ── What the text asks to predict is shown when it is asked for; see figures.css ───────── */

  const TEXT = "p, ul, ol, .math, .diagram, .md-typeset__scrollwrap";

  /* Up to four parts of the text below a veiled output say what came; not what leads on to the next block. */
  function veilText(figure) {
    let part = figure.nextElementSibling;
    for (let count = 0; count < 4 && part?.matches(TEXT); count++, part = part.nextElementSibling)
      if (count && part.nextElementSibling?.matches(".highlight, details:has(.highlight)")) break;
      else part.classList.add("veiled-text");
  }

  function addUnveilButtons() {
    for (const figure of document.querySelectorAll(".md-content .veiled:not(:has(> .unveil))")) {
      const made = document.createElement("button");
      made.type = "button";
      made.className = "unveil";
      made.textContent = "Show what it prints";
      made.addEventListener("click", () => {
        figure.classList.remove("veiled");
        made.remove();
        figure.tabIndex = -1;
        figure.focus({ preventScroll: true });
      });
      figure.append(made);
      veilText(figure);
    }
  }

  /* ── What was read: a mark at its links, kept in this browser and sent nowhere ─────────── */

  const READ = "book-read";
  const LEFT = "book-run"; // what `run.js` keeps of what was typed and done

  /* Where a browser keeps nothing for a page, nothing was read. */
  function wasRead() {
    try {
      const kept = JSON.parse(localStorage.getItem(READ));
      return Array.isArray(kept) ? kept : [];
    } catch {
      return [];
    }
  }

  /* What a reader has typed and done, by page, as text; "" for nothing. */
  function left() {
    try {
      return localStorage.getItem(LEFT) ?? "";
    } catch {
      return "";
    }
  }

  function keepRead(pages) {
    keep(READ, pages.length ? JSON.stringify(pages) : undefined);
    markRead();
  }

  /* Keep a text in this browser, or nothing. */
  function keep(name, text) {
    try {
      if (text === undefined) localStorage.removeItem(name);
      else localStorage.setItem(name, text);
    } catch {
      // refused
    }
  }

  function markRead() {
    const pages = wasRead();
    for (const link of document.querySelectorAll(".md-nav--primary a.md-nav__link, .md-content td:first-child > a"))
      link.toggleAttribute("data-read", !link.hash && pages.includes(link.pathname));
    const foot = document.querySelector(".md-footer .md-copyright");
    const forget = foot?.querySelector("button");
    if (!pages.length && !left()) forget?.remove();
    else if (foot && !forget) foot.append(" ", forgetButton(foot));
  }

  function forgetButton(foot) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = "Forget what I have read";
    made.addEventListener("click", () => {
      try {
        for (const store of [localStorage, sessionStorage]) store.removeItem(LEFT);
      } catch {
        // refused
      }
      keepRead([]);
      dispatchEvent(new Event("book:forget"));
      keep(WRAP);
      wrapLines();
      announce("Forgotten");
      foot.querySelector("a")?.focus();
    });
    return made;
  }

  /* A page of code is read when its end has been in sight. */
  const ends = new IntersectionObserver((seen) => {
    if (seen.some((end) => end.isIntersecting)) keepRead([...new Set(wasRead()).add(location.pathname)]);
  });

  function watchEnd() {
    ends.disconnect();
    if (left().includes(JSON.stringify(location.pathname))) ask("restore");
    const end = document.querySelector(".md-footer");
    if (end && document.querySelector(".md-content .highlight")) ends.observe(end);
    markRead();
  }

  /* ── What Material leaves without a name, or names twice ───────────────────────────────── */

  function mendNames() {
    const name = (selector, label) => {
      for (const found of document.querySelectorAll(selector)) found.setAttribute("aria-label", label);
    };
    name(".md-search[role=dialog]", "Search the book");
    name(".md-search__scrollwrap", "Search results");
    document.querySelector(".md-search__scrollwrap")?.setAttribute("role", "group"); // what bears a name
    name(".md-nav--primary .md-nav--secondary", "On this page, in the menu");
    // A part with a page of its own is labelled by an arrow, which says nothing.
    for (const part of document.querySelectorAll(".md-nav[aria-labelledby]")) {
      const title = part.querySelector(".md-nav__title")?.textContent.trim();
      if (!title) continue;
      part.removeAttribute("aria-labelledby");
      part.setAttribute("aria-label", `Pages of ${title}`);
    }
  }

  addEventListener("book:kept", markRead);

  /* ── What a reader asks of a page: its script comes with the first pointer or key on it ─── */

  const home = document.currentScript.src;
  const FIRST = ["pointerover", "focusin"];

  function first({ type, target }) {
    for (const each of FIRST) removeEventListener(each, first);
    const script = document.createElement("script");
    script.src = new URL("asked.js", home);
    script.addEventListener("load", () => target.dispatchEvent(new Event(type, { bubbles: true })));
    document.head.append(script);
  }

  for (const each of FIRST) addEventListener(each, first);

  /* Where nothing can be pointed at, a tap on a word of the glossary shows what it means, and does not
     lead there, unless it is repeated because nothing came. From a disk nothing comes. */
  let tapped;
  addEventListener("click", (event) => {
    const word = event.target.closest?.(".md-content a[data-preview]");
    const again = word === tapped && !document.querySelector(".md-tooltip2--active");
    tapped = word;
    if (!word || again || location.protocol === "file:" || !matchMedia("(hover: none)").matches) return;
    event.preventDefault();
    event.stopPropagation();
  }, true);

  /* ── Print: folded hints and solutions are listed at the end ───────────────────────────── */

  /* The exercise that a fold belongs to: the nearest number above it. */
  function exerciseOf(fold) {
    for (let at = fold; (at = at.previousElementSibling); ) {
      const number = /^\d+(?=\.)/.exec(at.querySelector(":scope > strong")?.textContent);
      if (number) return ` to exercise ${number}`;
    }
    return "";
  }

  function listFolded() {
    removeFolded();
    // Instant navigation has made each address a whole one; the book's own need not be printed.
    for (const link of document.querySelectorAll(".md-content a"))
      link.toggleAttribute("data-inside", link.origin === location.origin);
    const list = document.createElement("section");
    list.className = "book-solutions";
    const add = (tag, text) => list.appendChild(document.createElement(tag)).append(text);
    for (const [kind, title] of [["tip", "Hints"], ["success", "Solutions"]]) {
      const folds = document.querySelectorAll(`.md-content article details.${kind}`);
      if (folds.length) add("h2", title);
      for (const fold of folds) {
        const exercise = exerciseOf(fold);
        const copy = fold.cloneNode(true);
        add("h3", copy.querySelector("summary").textContent + exercise);
        copy.querySelector("summary").remove();
        copy.querySelectorAll("[id]").forEach((element) => element.removeAttribute("id"));
        list.append(...copy.childNodes);
        fold.querySelector("summary").dataset.printed = `${exercise}: at the end of this chapter`;
      }
    }
    if (list.childElementCount) document.querySelector(".md-content article").append(list);
  }

  function removeFolded() {
    document.querySelector(".book-solutions")?.remove();
  }

  addEventListener("beforeprint", listFolded);
  addEventListener("afterprint", removeFolded);
  addEventListener("resize", nameSoon);
  addEventListener("toggle", nameSoon, true);
  addEventListener("book:drawn", nameSoon); // a figure, anew
  document.addEventListener("scroll", ({ target }) => target.matches?.(CAN_SCROLL) && sayWhatHides(target), true);

  /* ── A link within the page that was opened ────────────────────────────────────────────── */

  /* The theme fetches a page for the first address that it is told, and so the opened page itself, with
     all that the reader has done on it lost, for a link to its own section. Until another page has come
     such links and the way back are left to the browser; main.html asks before the theme is told. */
  const opened = location.pathname;
  let came = 0;
  window.bookStays = ({ pathname }) => came < 2 && pathname === opened;
  addEventListener("click", ({ target }) => {
    const link = target.closest?.("a[href*='#']");
    if (link && bookStays(link)) link.target = "_self"; // the theme leaves what names a target alone
  }, true);
  addEventListener("hashchange", () => document.getElementById(location.hash.slice(1)) && standAtHeading());

  /* ── A place at which a page is opened ─────────────────────────────────────────────────── */

  /* Firefox with an empty cache goes there before the fonts have come. They lay out the text above it anew, and the
     place is elsewhere. So go there again, unless the reader has done something meanwhile, or comes back. */
  function stayAtPlace() {
    const settled = new AbortController(), { signal } = settled, settle = () => settled.abort();
    const again = () => document.querySelector(":target")?.scrollIntoView();
    document.fonts.addEventListener("loadingdone", again, { signal });
    addEventListener("load", again, { signal });
    addEventListener("load", () => setTimeout(settle, 3000));
    for (const act of ["click", "keydown", "pointerdown", "touchstart", "wheel"])
      addEventListener(act, settle, { capture: true, passive: true, signal });
  }
  if (performance.getEntriesByType("navigation")[0]?.type === "navigate") stayAtPlace();

  /* ── A page that was left: the theme's listeners keep each, so it is taken apart ────────── */

  let parts = [];
  function takeApart() {
    for (const part of parts.filter(({ isConnected }) => !isConnected))
      for (const element of [part, ...part.querySelectorAll("*")]) element.replaceChildren();
    parts = [...document.querySelectorAll("[data-md-component]")];
  }

  function start() {
    came++;
    takeApart();
    addButtons();
    addUnveilButtons();
    wrapLines();
    nameScrollers();
    mendNames();
    addMenuButton();
    standAtHeading();
    watchEnd();
  }

  // Instant navigation swaps the page without loading it again, and says so here.
  if (typeof document$ === "undefined") start();
  else document$.subscribe(start);
  document.fonts?.ready.then(nameScrollers);
})();
