/* Answers a query from the book's index: which pages, in which order, and which words of them.
   Loaded when a reader first reaches for search (search.js). It knows nothing of the theme; the index
   is written by book/search.py, and MiniSearch finds words, their beginnings and their
   neighbours. */
window.bookSearch = (() => {
  "use strict";

  // What a match is worth by where it stands, and by how it matches.
  const BOOST = { title: 5, keywords: 5, headings: 3, question: 2, text: 1 };
  const WEIGHTS = { prefix: 0.5, fuzzy: 0.4 };
  const PREFIX = 3; // letters after which a word may be the beginning of another
  const NAMED = 2; // times, for a page of which the whole query is a name
  const LEAST = 0.1; // of the best page's score, below which a page is no answer
  const OFTEN = 4; // times that a word counts which a section has often
  const SECTIONS = 4; // of a page, at most, that are worth showing
  const IDLE = new Set(window.bookIndex.idle);

  /* ── Words ─────────────────────────────────────────────────────────────────────────────── */

  const WORD = /[\p{L}\p{N}_^√]+/gu;
  const ENTITIES = { "&lt;": "<", "&gt;": ">", "&amp;": "&" };
  const escaped = (text) => text.replace(/[<>&]/g, (sign) => `&#${sign.charCodeAt()};`);

  /* The index's HTML as one would type it: W_q, 10^38. */
  const typed = (html) =>
    html.replace(/<sub>/g, "_").replace(/<sup>/g, "^").replace(/<[^>]+>/g, "").replace(/&\w+;/g, (name) => ENTITIES[name]);

  /* The words of a text: a name or formula in one piece (is_causal, QK^T, √d), and each of its parts. */
  function words(text) {
    const found = [];
    const spelt = text.toLowerCase().replace(/⊤/g, "t").replace(/∞/g, "inf")
      .replace(/\b(b?)fp?(\d+)\b/g, "$1float$2"); // bf16, fp32
    for (const [word] of spelt.matchAll(WORD)) {
      const parts = word.split(/[_^]+/).filter(Boolean);
      if (parts.length > 1) found.push(parts.join("_"));
      found.push(...parts);
      if (word.includes("√")) found.push("sqrt", ...word.split("√").filter(Boolean));
    }
    return found;
  }

  /* What the forms of a word have in common: mask, masks, masked, masking. */
  function stem(word) {
    if (/[^a-z]/.test(word) || word.length < 4) return word;
    const singular = word.replace(/([^su])s$/, "$1");
    return word.length < 5 ? singular : singular.replace(/(?:ie|y)$/, "i").replace(/(?:ing|ed|e)$/, "");
  }

  const key = (found) => found.filter((word) => !IDLE.has(word)).map(stem).join(" ");

  /* ── The index ─────────────────────────────────────────────────────────────────────────── */

  const pages = new Map(); // by address, as book/search.py wrote them
  const forms = new Map(); // the words behind each stem
  function asTerm(word) {
    const term = stem(word);
    if (!forms.has(term)) forms.set(term, new Set());
    forms.get(term).add(word);
    return term;
  }

  /* The words of each section, put together again from the sections of each word; see book/search.py. */
  const texts = [];
  for (const line of window.bookIndex.words.split("\n")) {
    const [word, ...steps] = line.split(" ");
    let number = 0;
    for (const step of steps) {
      number += parseInt(step, 36);
      texts[number] = (texts[number] ?? "") + ` ${word}`.repeat(step.endsWith("+") ? OFTEN : 1);
    }
  }

  /* A page is found by what it is about, and by the best of its sections: one entry for each. */
  let before = 0; // sections of the pages before
  const documents = window.bookIndex.pages.flatMap(([url, question, keywords, sections]) => {
    const [[, title], ...rest] = sections;
    const names = new Set([typed(title), ...keywords.split(",")].map((name) => key(words(name))));
    pages.set(url, { title, question, sections, names });
    const headings = typed(rest.map(([, heading]) => heading).join("\n"));
    before += sections.length;
    return [
      { id: url, title: typed(title), keywords, question, headings },
      ...sections.map(([, heading], i) => (
        { id: `${url}#${i}`, headings: i ? typed(heading) : "", text: texts[before - sections.length + i] })),
    ];
  });
  const index = new MiniSearch({ fields: Object.keys(BOOST), tokenize: words, processTerm: asTerm });
  const ready = index.addAllAsync(documents, { chunkSize: 25 }); // the page stays alive meanwhile

  /* ── A query ───────────────────────────────────────────────────────────────────────────── */

  /* The entries that hold a word, or one that it begins; if there is none, one that is nearly it. */
  function matches(word) {
    const options = { tokenize: (term) => [term], processTerm: stem, boost: BOOST, weights: WEIGHTS };
    const found = index.search(word, { ...options, prefix: word.length >= PREFIX });
    if (found.length || word.length < PREFIX) return found;
    const near = index.search(word, { ...options, fuzzy: 1 }); // one letter wrong before two
    return near.length || word.length < 6 ? near : index.search(word, { ...options, fuzzy: 2 });
  }

  /* Pages, the best first: `{ url, title, question, score, terms, missing, sections }`, where a
     section is `{ anchor, title, excerpt }`, `terms` are words of the page and `missing` of the query;
     titles and excerpts are HTML. Where no page has any of the words, `nearest` is the word of the
     book that looks most like one. */
  async function search(query) {
    await ready;
    const all = [...new Set(words(query))];
    const asked = all.filter((word) => !IDLE.has(word));
    const wanted = asked.length ? asked : all;
    const found = new Map();
    for (const word of wanted) note(found, word, matches(word));
    const ranked = [...found.values()].map((page) => ({ ...page, score: score(page, wanted) }))
      .sort((a, b) => b.score - a.score);
    const items = ranked.filter((page) => page.score > LEAST * ranked[0].score).map((page) => answer(page, wanted));
    return items.length || !wanted.length ? { items } : { items, nearest: nearest(wanted) };
  }

  /* Add up what a page gets for a word: for being about it, and for its best section. */
  function note(found, word, results) {
    const best = new Map();
    for (const { id, score, terms } of results) {
      const [url, section] = id.split("#");
      if (!found.has(url)) found.set(url, { url, score: 0, words: new Set(), terms: new Set(), sections: new Map() });
      const page = found.get(url);
      page.words.add(word);
      terms.forEach((term) => page.terms.add(term));
      if (section === undefined) page.score += score;
      else {
        page.sections.set(section, (page.sections.get(section) ?? 0) + score);
        best.set(page, Math.max(score, best.get(page) ?? 0));
      }
    }
    for (const [page, score] of best) page.score += score;
  }

  /* What a page got, by the share of the query that it has. */
  const score = (found, wanted) =>
    (found.score * found.words.size) / wanted.length * (pages.get(found.url).names.has(key(wanted)) ? NAMED : 1);

  function answer(found, wanted) {
    const { title, question, sections } = pages.get(found.url);
    const best = [...found.sections].sort(([, a], [, b]) => b - a).slice(0, SECTIONS);
    const known = new Set([...found.terms].flatMap((term) => [...forms.get(term)]));
    return {
      url: found.url, title, question: escaped(question), score: found.score,
      terms: shortest([...known]),
      missing: wanted.filter((word) => !found.words.has(word)),
      sections: best.map(([number]) => {
        const [anchor, heading, beginning] = sections[number];
        return { anchor, title: heading, excerpt: marked(beginning || escaped(question), known) };
      }),
    };
  }

  /* The words without those that another one begins: who marks "mask" marks "masked" too. */
  const shortest = (all) =>
    all.filter((word) => word.length >= PREFIX && !all.some((other) =>
      other !== word && other.length >= PREFIX && word.startsWith(other)));

  /* The vocabulary is asked with ever more letters wrong, until something answers. */
  function nearest(wanted) {
    const word = wanted.reduce((a, b) => (b.length > a.length ? b : a));
    for (let fuzzy = 2; fuzzy <= word.length + PREFIX; fuzzy++) {
      const [first] = index.search(word, {
        tokenize: (term) => [term], processTerm: stem, fuzzy, maxFuzzy: fuzzy, fields: ["title", "keywords", "headings"] });
      if (first) return [...forms.get(first.terms[0])].sort((a, b) => a.length - b.length)[0];
    }
  }

  /* ── What is shown of a section: how it begins, or else the question of its page ─────────── */

  const PIECE = /<[^>]+>|&#?\w+;|[\p{L}\p{N}_]+|[^<&\p{L}\p{N}_]+/gu;

  const marked = (html, known) => (html.match(PIECE) ?? [])
    .map((piece) => (words(piece).some((word) => known.has(word)) ? `<mark>${piece}</mark>` : piece)).join("");

  return { search };
})();
