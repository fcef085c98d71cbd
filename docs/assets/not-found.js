/* The page that was not found: looks for what its address says, and for what is typed. */
(() => {
  "use strict";

  if (!window.bookSearcher) return; // another builder's search has no such door

  const MOST = 5;
  const form = document.querySelector(".book-lost");
  const [input, status, list] = ["input", "[role=status]", "ol"].map((part) => form.querySelector(part));
  const home = new URL("..", document.querySelector("script[src$='assets/search.js']").src);

  /* The words of the missing address; the end of it says most, and is tried alone first. */
  function guesses() {
    let path = location.pathname;
    try {
      path = decodeURIComponent(path);
    } catch { /* a lone percent sign is part of the name */ }
    const parts = path.slice(home.pathname.length).replace(/\.\w+$/, "").split("/")
      .map((part) => part.replace(/[-+_.\s]+/g, " ").trim()).filter((part) => part && part !== "index");
    return parts.length ? [parts[parts.length - 1], parts.join(" ")] : [];
  }

  function row(page) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = new URL(page.url, home);
    link.innerHTML = page.title; // HTML of the book's own index
    const about = document.createElement("p");
    about.innerHTML = page.question;
    item.append(link, about);
    return item;
  }

  const named = (url, query) => url.split("/").pop().replace(".html", "").replaceAll("-", " ") === query;

  async function show(query) {
    const { items, nearest } = await (await bookSearcher()).search(query);
    if (query !== input.value) return items.length; // typed on
    items.sort((one, other) => named(other.url, query) - named(one.url, query)); // who bears the name comes first
    list.replaceChildren(...items.slice(0, MOST).map(row));
    status.textContent = items.length ? "" : query.trim() && "Nothing found.";
    if (nearest) {
      const offered = document.createElement("button");
      offered.type = "button";
      offered.textContent = nearest;
      offered.addEventListener("click", () => type(nearest));
      status.replaceChildren("Nothing found. Did you mean ", offered, "?");
    }
    return items.length;
  }

  function type(query) {
    input.value = query;
    return show(query);
  }

  async function start() {
    form.hidden = false;
    input.addEventListener("input", () => show(input.value));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      (list.querySelector("a") ?? status.querySelector("button"))?.click();
    });
    for (const query of guesses()) if (await type(query)) return;
  }
  start();
})();
