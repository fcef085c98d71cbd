/* The calculator of costs. It reckons as snippets/cost.py does, function by function and under the same names. */
(() => {
  "use strict";
  if (customElements.get("cost-calculator")) return;
  const { src } = document.currentScript || {}; // none where the arithmetic alone is tried
  if (src) document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL("cost.css", src) }));

  // ---------------------------------------------------------------------------------- as in cost.py

  const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);

  function cache_bytes(layer, tokens, element) {
    if (layer.kind === "memory") {
      const channels = 2 * layer.kv_heads * layer.head_dim + layer.heads * layer.value_dim;
      return 4 * layer.heads * layer.head_dim * layer.value_dim + element * channels * (layer.kernel_size - 1);
    }
    const each = layer.latent_dim + layer.rope_dim || layer.kv_heads * (layer.head_dim + layer.value_dim);
    return element * each * (layer.window === null ? tokens : Math.min(tokens, layer.window - 1));
  }

  function attention_operations(layer, fresh, tokens) {
    if (layer.kind === "memory") return 6 * fresh * layer.heads * layer.head_dim * layer.value_dim;
    const most = Math.min(layer.window || tokens, tokens);
    const short = Math.max(0, most - (tokens - fresh + 1));
    let channels = layer.head_dim + layer.rope_dim + layer.value_dim;
    if (layer.kind === "latent" && fresh === 1) channels = 2 * layer.latent_dim + layer.rope_dim;
    return 2 * layer.heads * channels * (fresh * most - (short * (short + 1)) / 2);
  }

  const met = (mlp, tokens) => mlp.experts * (1 - (1 - mlp.chosen / mlp.experts) ** tokens);

  /* A run is {model, card, precision, cards, room, delay, slow_step, slow_prompt}; layers and mlps say how many there are alike. */
  function kept(run, layer, tokens) {
    const share = layer.kind === "latent" ? 1 : Math.min(run.cards, layer.kv_heads);
    return cache_bytes(layer, tokens, run.precision.cache) / share;
  }

  function rows(run, texts, fresh, tokens) {
    const { model, card, precision, cards } = run;
    const speed = cards * (precision.eight_bit ? card.eight_bit : card.speed);
    const bandwidth = cards * card.bandwidth;
    const read = texts * fresh;
    const found = {
      products: [
        (2 * (read * model.shared + texts * model.table)) / speed,
        (precision.weights * (model.shared + model.table)) / bandwidth,
      ],
    };
    const experts = (count) => sum(model.mlps.map((mlp) => mlp.count * 3 * model.embed_dim * mlp.expert_width * count(mlp)));
    const chosen = experts((mlp) => mlp.chosen);
    if (chosen) {
      found.experts = [(2 * read * chosen) / speed, (precision.weights * experts((mlp) => met(mlp, read))) / bandwidth];
    }
    const all = (count) => sum(model.layers.map((layer) => layer.count * count(layer)));
    const operations = all((layer) => attention_operations(layer, fresh, tokens));
    const fetched = all((layer) => kept(run, layer, tokens) * (layer.kind === "memory" ? 2 : 1));
    found.attention = [(texts * operations) / cards / card.speed, (texts * fetched) / card.bandwidth];
    if (cards > 1) {
      const moved = 2 * (1 - 1 / cards) * 2 * read * model.embed_dim;
      found["all-reduces"] = [0, 2 * all(() => 1) * (run.delay + moved / card.link)];
    }
    return found;
  }

  const seconds = (...pass) => sum(Object.values(rows(...pass)).map((row) => Math.max(...row)));
  const step = (run, texts, tokens) => run.slow_step * seconds(run, texts, 1, tokens);
  const first_token = (run, prompt) => run.slow_prompt * seconds(run, 1, prompt, prompt);
  const gap = (run, prompt, answer, texts) =>
    step(run, texts, prompt + Math.floor(answer / 2)) + (texts / answer) * first_token(run, prompt);

  function fits(run, tokens) {
    const held = (run.precision.weights * run.model.total) / run.cards;
    const text = sum(run.model.layers.map((layer) => layer.count * kept(run, layer, tokens)));
    return Math.max(0, Math.floor((run.room * run.card.memory - held) / text));
  }

  function in_time(run, prompt, answer, patience) {
    let [some, too_many] = [0, fits(run, prompt + answer) + 1];
    while (too_many - some > 1) {
      const texts = Math.floor((some + too_many) / 2);
      [some, too_many] = gap(run, prompt, answer, texts) <= patience ? [texts, too_many] : [some, texts];
    }
    return some;
  }

  const price = (run, prompt, answer, texts, dollars) =>
    (((1e6 * dollars * run.cards) / 3600) * gap(run, prompt, answer, texts)) / texts;

  // -------------------------------------------------------------------------------- what is shown

  const NUMBERS = { prompt: ["prompt, tokens", 8000], answer: ["answer, tokens", 1000],
    texts: ["texts at once", 16], patience: ["patience, ms a token", 30], dollars: ["dollars a card-hour", 2.5],
    slow_step: ["a step, × its bound", 1], slow_prompt: ["a prompt, × its bound", 1] };
  const CARDS = [1, 2, 4, 8];
  const CURVE = { width: 360, height: 190, left: 46, right: 342, top: 10, bottom: 150 };

  const number = (value) =>
    value >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
  const time = (value) => (value >= 1 ? `${number(value)} s` : value >= 1e-3 ? `${number(1e3 * value)} ms` : `${number(1e6 * value)} µs`);
  const bytes = (value) => (value >= 1e9 ? `${number(value / 1e9)} GB` : `${number(value / 1e6)} MB`);
  const escape = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

  class CostCalculator extends HTMLElement {
    connectedCallback() {
      if (this.config) return;
      this.config = JSON.parse(this.getAttribute("config"));
      for (const model of this.config.models) Object.assign(model, { layers: named(model.layers), mlps: named(model.mlps) });
      const names = (list) => list.map((name) => `<option>${escape(String(name))}</option>`).join("");
      const choose = (name, label, list) => `<label>${label}<select name="${name}">${names(list)}</select></label>`;
      const fields = Object.entries(NUMBERS).map(
        ([name, [label, value]]) => `<label>${label}<input name="${name}" type="number" inputmode="decimal" min="0" step="any" value="${value}"></label>`,
      );
      this.innerHTML = `<form>${choose("model", "model", this.config.models.map((model) => model.name))}
        ${choose("card", "card", Object.keys(this.config.cards))}${choose("cards", "cards", CARDS)}
        ${choose("precision", "precision", Object.keys(this.config.precisions))}${fields.join("")}</form>
        <dl aria-live="polite"></dl><div class="rows"></div><div class="curve"></div>`;
      this.form = this.querySelector("form");
      this.restore();
      this.form.addEventListener("submit", (event) => event.preventDefault());
      this.form.addEventListener("input", () => this.draw(true));
      this.draw(false);
    }

    /* The state stands in the address, so that a link keeps it. */
    restore() {
      const [id, text] = location.hash.slice(1).split("?");
      if (id !== "calculator" || !text) return;
      for (const [name, value] of new URLSearchParams(text)) {
        const field = this.form.elements[name];
        if (field && (field.tagName === "INPUT" || [...field.options].some((option) => option.value === value))) field.value = value;
      }
    }

    draw(changed) {
      const chosen = Object.fromEntries(new FormData(this.form));
      if (changed) history.replaceState(history.state, "", `#calculator?${new URLSearchParams(chosen)}`);
      const whole = (name) => Math.max(1, Math.round(Number(chosen[name]) || 0));
      const [prompt, answer, texts] = ["prompt", "answer", "texts"].map(whole);
      const run = {
        model: this.config.models.find((model) => model.name === chosen.model),
        card: this.config.cards[chosen.card], precision: this.config.precisions[chosen.precision],
        cards: Number(chosen.cards), room: 0.9, delay: 10e-6,
        slow_step: Number(chosen.slow_step) || 1, slow_prompt: Number(chosen.slow_prompt) || 1,
      };
      const tokens = prompt + Math.floor(answer / 2);
      const room = fits(run, prompt + answer);
      const took = step(run, texts, tokens);
      const reading = first_token(run, prompt);
      const between = gap(run, prompt, answer, texts);
      const dollars = Number(chosen.dollars) || 0;
      const weights = (run.precision.weights * run.model.total) / run.cards;
      const cache = sum(run.model.layers.map((layer) => layer.count * kept(run, layer, prompt + answer)));
      const patience = in_time(run, prompt, answer, (Number(chosen.patience) || 0) / 1e3);
      const many = run.cards > 1 ? " on each card" : "";
      this.querySelector("dl").innerHTML = [
        ["first token", time(reading), `A prompt of ${number(prompt)} tokens, read alone: the rows of its pass, added.`],
        ["a step", time(took), `${number(texts)} texts of ${number(tokens)} tokens, which they have on average: the rows below, added.`],
        ["between two tokens", time(between), `A step, and what is read in between: for each of ${number(texts)} texts a prompt in ${number(answer)} steps, ${number(texts)} / ${number(answer)} · ${time(reading)}. Where other cards read the prompts, it is the step alone.`],
        ["tokens a second, all", number(texts / between), `${number(texts)} / ${time(between)}; ${number(1 / between)} for one reader.`],
        ["fit in memory", room ? `${number(room)} texts` : "none", `90 % of ${bytes(run.card.memory)}, less ${bytes(weights)} of weights, by ${bytes(cache)} of cache for ${number(prompt + answer)} tokens${many}.`],
        ["of these in time", patience ? `${number(patience)} texts` : "none", `The most with ${chosen.patience || 0} ms between two tokens, or less.`],
        ["a million tokens", `${price(run, prompt, answer, texts, dollars).toFixed(3)} $`, `${run.cards} · ${dollars} $ an hour, over ${number(texts / between)} tokens a second.`],
      ].map(([name, value, why]) => `<div><dt>${name}</dt><dd><output>${value}</output><details><summary>why</summary>${why}</details></dd></div>`).join("");
      this.querySelector("dl").toggleAttribute("data-over", texts > room);
      this.bars(rows(run, texts, 1, tokens), took / run.slow_step);
      this.curve(run, texts, tokens, room);
    }

    /* Of each row both times; the longer one counts. */
    bars(found, took) {
      const lines = Object.entries(found).map(([name, [compute, fetch]]) => {
        const bar = (kind, value, longer) => `<span class="bar ${kind}${longer ? " longer" : ""}" style="--share:${(100 * value) / took}%">
          <i></i>${kind} ${time(value)}</span>`;
        const moved = name === "all-reduces" ? "move" : "fetch";
        return `<div><b>${name}</b>${name === "all-reduces" ? "" : bar("compute", compute, compute > fetch)}${bar(moved, fetch, fetch >= compute)}</div>`;
      });
      this.querySelector(".rows").innerHTML = `<p>Where the ${time(took)} of a step go: of each row the longer time counts. They are bounds, not measured.</p>${lines.join("")}`;
    }

    /* Tokens a second of all against texts at once, both on a log scale; dashed from where the memory is full. */
    curve(run, texts, tokens, room) {
      const { width, height, left, right, top, bottom } = CURVE;
      const counts = Array.from({ length: 49 }, (_, i) => 2 ** (i / 4));
      const speeds = counts.map((count) => count / step(run, count, tokens));
      const [low, high] = [Math.min(...speeds), Math.max(...speeds)].map(Math.log10);
      const [first, last] = [Math.floor(low), Math.ceil(high + 1e-9)];
      const x = (count) => left + ((right - left) * Math.log2(count)) / 12;
      const y = (speed) => bottom - ((bottom - top) * (Math.log10(speed) - first)) / (last - first);
      const path = (some) => some.map((count, i) => `${i ? "L" : "M"}${x(count).toFixed(1)} ${y(count / step(run, count, tokens)).toFixed(1)}`).join("");
      const inside = [...counts.filter((count) => count < room), ...(room >= 1 ? [Math.min(room, 4096)] : [])];
      const outside = [...(room >= 1 ? [Math.min(room, 4096)] : []), ...counts.filter((count) => count > room)];
      const ticks = Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i));
      const here = Math.min(texts, 4096);
      this.querySelector(".curve").innerHTML = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="Tokens a second of all texts against texts at once: ${number(here)} texts write ${number(here / step(run, here, tokens))}; the memory holds ${number(room)}.">
        ${ticks.map((tick) => `<path class="grid" d="M${left} ${y(tick)}H${right}"/><text x="${left - 4}" y="${y(tick) + 3}" text-anchor="end">${tick >= 1 ? tick.toLocaleString("en") : tick}</text>`).join("")}
        ${[1, 4, 16, 64, 256, 1024, 4096].map((tick) => `<text x="${x(tick)}" y="${bottom + 14}" text-anchor="middle">${tick}</text>`).join("")}
        <path class="beyond" d="${path(outside)}"/><path class="line" d="${path(inside)}"/>
        <circle cx="${x(here)}" cy="${y(here / step(run, here, tokens))}" r="3.5"/>
        <text x="${(left + right) / 2}" y="${height - 6}" text-anchor="middle">texts at once (dashed: more than the memory holds)</text></svg>
        <p>Tokens a second of all texts together, without the reading of prompts.</p>`;
    }
  }

  const named = (lines) => lines.map(([count, facts]) => ({ count, ...facts }));

  CostCalculator.cost = { named, rows, step, first_token, gap, fits, in_time, price };
  customElements.define("cost-calculator", CostCalculator);
})();
