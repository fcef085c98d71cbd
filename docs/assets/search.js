/* Gives the theme's search box the book's own search, when a reader first reaches for it. The theme
   talks to a worker; this stands in for it and answers with what search-engine.js found. Nothing of
   search but this file is in a page's first view, and pages opened from a disk, where no worker may
   run, search as all others do. */
(() => {
  "use strict";

  const [SETUP, READY, QUERY, RESULT] = [0, 1, 2, 3]; // the kinds of the theme's messages
  const SCRIPTS = ["vendor/minisearch.js", "search-index.js", "search-engine.js"];
  const here = document.currentScript.src;
  let loading = null;

  function load(name) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = new URL(name, here);
      script.onload = resolve;
      script.onerror = reject;
      document.head.append(script);
    });
  }

  /* `await bookSearcher()` is what answers queries; a connection that broke is tried again. */
  async function bookSearcher() {
    loading ??= SCRIPTS.reduce((before, name) => before.then(() => load(name)), Promise.resolve());
    try {
      await loading;
    } catch (error) {
      loading = null;
      throw error;
    }
    return window.bookSearch;
  }
  window.bookSearcher = bookSearcher;

  /* A page as the theme draws it: the page, its best section in sight, the others folded. */
  function drawn(page) {
    const terms = Object.fromEntries([
      ...page.terms.map((word) => [word, true]), ...page.missing.map((word) => [word, false])]);
    const sections = page.sections.map(({ anchor, title, excerpt }, i) => (
      { location: page.url + (anchor && `#${anchor}`), title, text: excerpt, terms, score: page.score / (i + 1) }));
    if (sections.some(({ location }) => location === page.url)) return sections;
    const itself = { location: page.url, title: page.title, text: page.question, terms, score: page.score / 2 };
    return sections.length ? [...sections, itself] : [itself];
  }

  /* Where nothing was found: a word to press Enter on, in the place where the theme says so. */
  function offer(word, query) {
    const place = document.querySelector(".md-search-result__meta");
    const link = document.createElement("a");
    link.href = `?q=${encodeURIComponent(word)}`;
    link.className = "book-nearest";
    link.innerHTML = '<b data-md-score="1"></b>'; // the theme follows the link with the highest
    link.firstChild.textContent = word;
    link.addEventListener("click", (event) => {
      event.preventDefault();
      event.stopPropagation(); // the theme would shut the box
      const input = document.querySelector(".md-search__input");
      input.value = word;
      input.focus();
      input.dispatchEvent(new KeyboardEvent("keyup"));
    });
    place.replaceChildren(`Nothing on “${query}”. Did you mean `, link, "?");
  }

  function standIn() {
    const worker = new EventTarget();
    const say = (data) => worker.dispatchEvent(new MessageEvent("message", { data }));
    let latest;
    worker.postMessage = async ({ type, data }) => {
      await null; // the theme begins to listen after it has spoken
      if (type === SETUP) say({ type: READY });
      if (type !== QUERY) return;
      latest = data;
      const query = data.trim();
      const { items, nearest } = query ? await (await bookSearcher()).search(query) : { items: [] };
      if (data !== latest) return; // the reader has typed on
      say({ type: RESULT, data: { items: items.map(drawn) } });
      if (nearest) offer(nearest, query);
    };
    return worker;
  }

  const Worker = window.Worker;
  window.Worker = function (url, options) {
    return /\/workers\/search\./.test(url) ? standIn() : new Worker(url, options);
  };
  document.addEventListener("focusin", ({ target }) => {
    if (target.closest(".md-search")) bookSearcher().catch(() => {}); // a query says so again
  });
})();
