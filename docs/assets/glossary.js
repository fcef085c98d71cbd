/* The glossary by what is typed: the words that are named so, and where none is, those whose meaning
   says it. Loaded on that page alone, each time that it comes. */
(() => {
  "use strict";

  const article = document.querySelector(".md-content article");
  const form = article.querySelector(".book-filter");
  const [input, status] = ["input", "[role=status]"].map((part) => form.querySelector(part));

  /* What belongs to a heading, itself included, up to the next one that is as high. */
  function under(heading, ends) {
    const parts = [heading];
    for (let at = heading; (at = at.nextElementSibling) && !at.matches(ends); ) parts.push(at);
    return parts;
  }

  const said = (parts) => parts.map(({ textContent }) => textContent).join(" ").toLowerCase();
  const words = [...article.querySelectorAll("h3")].map((name) => {
    const parts = under(name, "h2, h3, .mark");
    return { parts, name: said([name]), text: said(parts) };
  });
  const sections = [...article.querySelectorAll("h2")].map((heading) => under(heading, "h2, .mark"));

  function show() {
    const typed = input.value.trim().toLowerCase();
    const named = words.filter(({ name }) => name.includes(typed));
    const found = named.length ? named : words.filter(({ text }) => text.includes(typed));
    for (const { parts } of words) for (const part of parts) part.hidden = true;
    for (const { parts } of found) for (const part of parts) part.hidden = false;
    for (const [heading, ...rest] of sections)
      heading.hidden = rest.every((part) => part.hidden || !part.matches("h3"));
    status.textContent = typed && `${found.length} of ${words.length} words`;
  }

  input.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());

  /* An address leads to a word that is shown. */
  addEventListener("hashchange", () => {
    if (!input.value || !input.isConnected) return;
    input.value = "";
    show();
    document.getElementById(location.hash.slice(1))?.scrollIntoView();
  });
})();
