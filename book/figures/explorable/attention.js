/* The explorable of attention. The page already shows the right tables; this makes them answer.
   It computes in float64, as steps.py does. */
(function () {
  "use strict";
  if (customElements.get("attention-explorable")) return;

  const TITLES = ["Scores", "Scaled", "Masked", "Weights", "Context"];
  const STEPS = TITLES.map((title) => title.toLowerCase());
  const CAPTIONS = ["Attention scores", "Scaled scores", "Masked scores", "Attention weights", "Context vectors"];
  const BEYOND = 30; // digits beyond the shown ones that tell a tie from its neighbours
  const LARGEST = 1e4;

  // ------------------------------------------------------------------------------- arithmetic

  const total = (numbers) => numbers.reduce((sum, number) => sum + number, 0);
  const dot = (left, right) => total(left.map((one, i) => one * right[i]));
  const transposed = (rows) => rows[0].map((_, column) => rows.map((row) => row[column]));
  const dots = (rows, others) => rows.map((row) => others.map((other) => dot(row, other)));

  /* Softmax of a row, with its parts; a row with nothing to attend to gives zeros. */
  function softmax(row) {
    const largest = Math.max(...row);
    const powers = row.map((score) => Math.exp(score - largest) || 0);
    const sum = total(powers);
    return { largest, powers, total: sum, weights: powers.map((power) => power / sum || 0) };
  }

  function compute(panel, state) {
    const { embeddings, queries: query = embeddings, keys: key = embeddings, values: value = embeddings } = panel;
    const root = Math.sqrt(key[0].length);
    const scores = dots(query, key);
    const scaled = state.scaling ? scores.map((row) => row.map((score) => score / root)) : scores;
    const masked = scaled.map((row, i) => row.map((score, j) => (hides(state, i, j) ? -Infinity : score)));
    const soft = masked.map(softmax);
    const weights = soft.map((row) => row.weights);
    return { query, key, value, root, soft, steps: [scores, scaled, masked, weights, dots(weights, transposed(value))] };
  }
  /* Where a row of weights is largest, away from one place: what the word that asks leans on. */
  function keenest(row, but) {
    const others = row.map((weight, j) => (j === but ? -1 : weight));
    return others.indexOf(Math.max(...others));
  }
  const hides = (state, i, j) => state.hidden.has(j) || (state.causal && j > i);

  /* A number with a fixed count of decimals, rounded as Python does: a tie goes to the even digit. */
  function shown(value, digits) {
    if (!isFinite(value)) return value > 0 ? "inf" : value < 0 ? "-inf" : "nan";
    const size = Math.abs(value);
    const exact = size.toFixed(digits + BEYOND);
    let text = size.toFixed(digits);
    if (/^50*$/.test(exact.slice(-BEYOND))) {
      const below = exact.slice(0, -BEYOND).replace(/\.$/, "");
      if ("02468".includes(below.slice(-1))) text = below;
    }
    return value < 0 && Number(text) ? "-" + text : text;
  }

  /* The matrices of a panel, by name. */
  const matrices = (panel) => Object.entries(panel).filter(([, rows]) => Array.isArray(rows[0]));

  /* A state as an address says it. */
  const inAddress = ({ choice, query, key, dim, step, causal, scaling, hidden }) => ({
    choice, query, key, dim, step: STEPS[step], causal: Number(causal), scaling: Number(scaling), hidden: [...hidden].sort().join(),
  });

  // --------------------------------------------------------------------------------- building

  function make(tag, properties = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in node) node[name] = value;
      else node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  }

  const group = (title, className, items) => make("fieldset", { className }, make("legend", {}, title), ...items);

  function button(title, press) {
    const made = make("button", { type: "button" }, title);
    made.addEventListener("click", press);
    return made;
  }

  function box(type, name, label, checked, change) {
    const input = make("input", { type, name, checked });
    input.addEventListener("change", () => change(input.checked));
    return make("label", {}, input, make("span", {}, label));
  }

  class AttentionExplorable extends HTMLElement {
    connectedCallback() {
      if (this.state) return;
      const spec = (this.spec = JSON.parse(this.getAttribute("config")));
      this.original = JSON.stringify(spec.panels);
      this.first = this.foremost();
      this.state = this.own();
      this.name = this.closest("figure").id;
      this.build();
      this.follow();
      addEventListener("hashchange", this);
      addEventListener("resize", this);
      // The theme goes to an address without telling the window.
      this.subscription = window.location$?.subscribe(this);
    }

    disconnectedCallback() {
      removeEventListener("hashchange", this);
      removeEventListener("resize", this);
      this.subscription?.unsubscribe();
    }

    handleEvent({ type }) {
      type === "resize" ? this.reserve() : this.next();
    }

    next() {
      if (this.isConnected) this.follow();
    }

    /* The cell to begin with: the word that the query leans on most, and where the page names no
       query, the one that leans most on another word. */
    foremost() {
      const weights = compute(this.spec.panels[this.spec.choice ?? 0], this.own()).steps[3];
      const most = weights.map((row, i) => row[keenest(row, i)]);
      const query = this.spec.query ?? most.indexOf(Math.max(...most));
      return { query, key: keenest(weights[query], query) };
    }

    /* The state of the page itself. */
    own() {
      const { step, causal, scaling } = this.spec;
      return { choice: this.spec.choice ?? 0, ...this.first, dim: 0, step, causal, scaling, hidden: new Set() };
    }

    // --------------------------------------------------------------------------- its address

    /* What a reader has changed, as the end of an address: `query=2&step=masked&edit=0,keys,1,0,2.5`. */
    changes() {
      const own = inAddress(this.own());
      const now = inAddress(this.state);
      const parts = Object.keys(own).filter((key) => now[key] !== own[key]).map((key) => `${key}=${now[key]}`);
      const fresh = JSON.parse(this.original);
      this.spec.panels.forEach((panel, p) => matrices(panel).forEach(([name, rows]) => rows.forEach((row, r) => row.forEach((number, c) => {
        if (number !== fresh[p][name][r][c]) parts.push(`edit=${p},${name},${r},${c},${number}`);
      }))));
      return parts.join("&");
    }

    /* The state and the edits that such an end says, or null where any of it is none of this figure's. */
    understood(text) {
      const { spec } = this;
      const given = new URLSearchParams(text);
      const may = (control) => spec.controls.includes(control);
      const whole = (value, below) => (/^\d{1,3}$/.test(value) && value < below ? Number(value) : undefined);
      const flag = (control) => (value) => (may(control) ? [false, true][whole(value, 2)] : undefined);
      const choices = spec.panels.length;
      const panel = spec.panels[whole(given.get("choice"), choices) ?? 0];
      const tokens = panel.tokens.length;
      const read = {
        choice: (value) => whole(value, choices),
        query: (value) => whole(value, tokens),
        key: (value) => whole(value, tokens),
        dim: (value) => whole(value, compute(panel, this.own()).value[0].length),
        step: (value) => (may("step") ? whole(String(STEPS.indexOf(value)), 5) : undefined),
        causal: flag("causal"),
        scaling: flag("scaling"),
        hidden: (value) => {
          const places = value ? value.split(",").map((place) => whole(place, tokens)) : [];
          return may("hide") && !places.includes(undefined) ? new Set(places) : undefined;
        },
      };
      const state = this.own(), edits = [];
      for (const [key, value] of given) {
        if (key === "edit") {
          const [p, name, r, c, number] = value.split(",");
          const row = Object.hasOwn(spec.panels, p) && Object.hasOwn(spec.panels[p], name) && spec.panels[p][name][r];
          const good = number && Math.abs(number) <= LARGEST && Array.isArray(row) && Object.hasOwn(row, c);
          if (!may("edit") || !good || c === "length") return null;
          edits.push([p, name, r, c, Number(number)]);
        } else {
          state[key] = Object.hasOwn(read, key) ? read[key](value) : undefined;
          if (state[key] === undefined) return null;
        }
      }
      return { state, edits };
    }

    /* Show what the address says, where it speaks of this figure and makes sense. */
    follow() {
      const [id, text] = location.hash.slice(1).split("?");
      const found = id === this.name && text !== undefined && this.understood(text);
      if (!found) return;
      this.restore();
      for (const [p, name, r, c, number] of found.edits) this.spec.panels[p][name][r][c] = number;
      this.state = found.state;
      this.editing ||= found.edits.length > 0;
      this.build();
      this.closest("figure").scrollIntoView({ block: "center" });
    }

    restore() {
      this.spec.panels = JSON.parse(this.original);
    }

    tools() {
      const asks = "Copy a link to this view";
      const link = button(asks, async () => {
        const address = new URL(location.href);
        address.hash = `${this.name}?${this.changes()}`;
        history.replaceState(history.state, "", address);
        const copied = await navigator.clipboard?.writeText(address.href).then(() => true, () => false);
        this.status.textContent = link.textContent = copied ? "Link copied" : "The address bar has the link";
        setTimeout(() => (link.textContent = asks), 2000);
      });
      this.reset = button("Reset", () => {
        this.restore();
        this.state = this.own();
        this.build();
        this.reset.focus();
      });
      return make("div", { className: "tools" }, link, this.reset);
    }

    get panel() {
      return this.spec.panels[this.state.choice];
    }

    set(changes) {
      Object.assign(this.state, changes);
      this.update();
    }

    /* Hide a word, or show it again. */
    hide(i) {
      const { hidden } = this.state;
      if (!hidden.delete(i)) hidden.add(i);
      this.update();
    }

    build() {
      const { spec, state } = this;
      const votes = spec.votes.length;
      const has = (control) => spec.controls.includes(control);
      const controls = make("div", { className: "controls" });
      const { tokens } = this.panel, asks = tokens[state.query];
      if (spec.panels.length > 1)
        controls.append(group("Sentence", "segments", spec.panels.map((panel, i) =>
          box("radio", this.name + "c", panel.name, i === state.choice, () => {
            state.choice = i;
            state.hidden.clear(); // another sentence has other words at these places
            if (votes) state.query = panel.tokens.indexOf(asks);
            this.build();
            this.querySelector(`input[name="${this.name}c"]:checked`).focus();
          }))));
      this.queries = tokens.map((token, i) =>
        box("radio", this.name + "q", token, i === state.query, () => this.set({ query: i })));
      if (has("query")) controls.append(group("Query", "segments", this.queries));
      const switches = [];
      const width = compute(this.panel, state).key[0].length;
      if (has("scaling"))
        switches.push(box("checkbox", "", `divide by √${width}`, state.scaling, (scaling) => this.set({ scaling })));
      if (has("causal"))
        switches.push(box("checkbox", "", "causal mask", state.causal, (causal) => this.set({ causal })));
      if (switches.length) controls.append(group("Switch", "switches", switches));
      if (has("hide") && !votes)
        controls.append(group("Hide", "switches", tokens.map((token, i) =>
          box("checkbox", "", token, state.hidden.has(i), () => this.hide(i)))));
      this.status = make("p", { className: "book-unseen", role: "status" });
      const parts = votes ? [...this.sentence(), controls, ...this.another()] : [controls, ...(has("step") ? [this.stepper()] : []), this.view()];
      this.replaceChildren(...parts, this.status, ...(has("edit") && !votes ? [this.editor()] : []), this.tools());
      this.update();
      this.reserve();
    }

    /* The words of the sentence, each of which a tap hides, and what comes of it. */
    sentence() {
      this.words = this.panel.tokens.map((token, i) => {
        const word = button(token, () => this.hide(i));
        word.className = "word";
        word.append(make("small"));
        return word;
      });
      this.outcome = make("p", { className: "votes" });
      const line = make("p", { className: "sentence" });
      for (const word of this.words) line.append(word, " ");
      return [line, this.outcome];
    }

    /* A field for another sentence, where the page runs: run.js has the page's code read it, and answers in `output`. */
    another() {
      if (!document.getElementById("guarded")?.dataset.run) return [];
      const field = make("input", { type: "text", value: this.panel.tokens.join(" "), "aria-label": "Another sentence", autocomplete: "off", spellcheck: false });
      const form = make("form", { className: "another" }, field, make("button", { type: "submit" }, "Read this"), make("output"));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        dispatchEvent(new CustomEvent("book:read", { detail: { element: this, panel: this.state.choice, said: field.value } }));
      });
      return [form];
    }

    vote() {
      const { state, spec, panel } = this;
      const [, , , weights, context] = compute(panel, state).steps.map((rows) => rows[state.query]);
      this.words.forEach((word, i) => {
        const hidden = state.hidden.has(i);
        word.classList.toggle("on", i === state.query);
        word.setAttribute("aria-pressed", hidden);
        word.style.setProperty("--v", weights[i].toFixed(2));
        word.lastChild.textContent = hidden ? "off" : shown(weights[i], spec.digits);
      });
      const votes = context.map((vote, i) => [vote, spec.votes[i]]).sort(([one], [other]) => other - one);
      const counted = votes.map(([vote, word]) => `${word} ${shown(vote, spec.digits)}`).join(", ");
      const said = votes[0][0] > votes[1][0] ? make("b", {}, votes[0][1]) : "cannot tell";
      this.outcome.replaceChildren(`${panel.tokens[state.query]} → `, said, " ", make("small", {}, `scores: ${counted}; the higher wins`));
      return this.outcome.textContent;
    }

    stepper() {
      this.dots = TITLES.map((title, step) => button(title, () => this.set({ step })));
      const list = make("ol", {}, ...this.dots.map((dot) => make("li", {}, dot)));
      return make("div", { className: "stepper", role: "group", "aria-label": "Step" }, list);
    }

    view() {
      this.table = make("table", { className: "heatmap", role: "grid" });
      this.formulaBox = make("div", { className: "formula" });
      this.table.addEventListener("focusin", (event) => {
        const cell = event.target.closest("tbody td");
        if (!cell) return;
        const { state } = this, which = state.step === 4 ? "dim" : "key";
        const query = cell.parentNode.sectionRowIndex, column = cell.cellIndex - 1;
        if (query !== state.query || column !== state[which]) this.set({ query, [which]: column });
      });
      return make("div", { className: "heats" }, make("div", { className: "panel" }, make("div", { className: "heat" }, this.table), this.formulaBox));
    }

    editor() {
      const details = make("details", { className: "editor", open: !!this.editing }, make("summary", {}, "Edit the numbers"));
      details.addEventListener("toggle", () => (this.editing = details.open));
      const tables = matrices(this.panel).map(([name, rows]) => this.editable(name, rows));
      details.append(make("div", { className: "edits" }, ...tables));
      return details;
    }

    editable(title, rows) {
      const table = make("table", { className: "numbers" }, make("caption", {}, title));
      const names = rows[0].map((_, c) => (title === "embeddings" && this.spec.channels[c]) || String(c));
      table.createTHead().insertRow().append(make("td"), ...names.map((name) => make("th", { scope: "col" }, name)));
      const body = table.createTBody();
      rows.forEach((row, r) => {
        const line = body.insertRow(), name = this.panel.tokens[r];
        line.append(make("th", { scope: "row" }, name));
        row.forEach((number, c) => {
          const input = make("input", { type: "number", step: "0.1", inputMode: "decimal", "aria-label": `${title}, ${name}, ${names[c]}` });
          input.setAttribute("value", Number(number.toFixed(4))); // the base that arrow keys step from
          input.addEventListener("input", () => {
            const value = input.valueAsNumber;
            const good = Math.abs(value) <= LARGEST;
            input.setAttribute("aria-invalid", !good);
            if (good) {
              row[c] = value;
              this.update();
            }
          });
          line.insertCell().append(input);
        });
      });
      return table;
    }

    // ------------------------------------------------------------------------------- showing

    update() {
      const news = this.spec.votes.length ? this.vote() : this.tables();
      if (this.status.textContent !== news) this.status.textContent = news;
      this.reset.setAttribute("aria-disabled", !this.changes());
      dispatchEvent(new Event("book:drawn"));
    }

    /* Fill in the table; returns what there is to say about its chosen cell. */
    tables() {
      const { state, spec, panel } = this;
      this.queries.forEach((label, i) => (label.firstChild.checked = i === state.query));
      this.dots?.forEach((dot, i) => (dot.ariaCurrent = i === state.step ? "step" : null));
      const all = compute(panel, state), rows = all.steps[state.step], last = state.step === 4;
      const columns = last ? rows[0].map((_, i) => this.channel(i)) : panel.tokens;
      const column = Math.min(last ? state.dim : state.key, columns.length - 1);
      if (last) state.dim = column;
      this.fill(rows, columns, column);
      this.formulaBox.innerHTML = this.said(panel, all, column);
      const where = `${panel.tokens[state.query]}${last ? ", number" : " to"} ${columns[column]}`;
      return `${CAPTIONS[state.step]}. ${where}: ${shown(rows[state.query][column], spec.digits)}.`;
    }

    /* The name of a number of a context vector: its channel's, where values are the embeddings. */
    channel(i) {
      return this.spec.channels[i] || String(i);
    }

    /* Room for the longest formula of any state, so that nothing below moves: as the figure opens, the
       longest of each step is tried. An edit may make one longer: then the figure grows. */
    reserve() {
      const { spec, state, formulaBox: formula } = this;
      if (!formula) return;
      const longest = ["", "", "", "", ""];
      for (const panel of spec.panels)
        for (const scaling of spec.controls.includes("scaling") ? [false, true] : [state.scaling]) {
          const all = compute(panel, (this.state = { ...state, scaling, causal: false, hidden: new Set() }));
          all.steps.forEach((rows, step) => rows.forEach((row, query) => row.forEach((_, column) => {
            Object.assign(this.state, { step, query });
            const html = this.said(panel, all, column);
            if (html.length > longest[step].length) longest[step] = html;
          })));
        }
      this.state = state;
      const shown = formula.innerHTML;
      formula.style.minHeight = "";
      formula.style.minHeight = `${Math.max(...longest.map((html) => ((formula.innerHTML = html), formula.offsetHeight)))}px`;
      formula.innerHTML = shown;
    }

    fill(rows, columns, chosen) {
      const { state, spec, table, panel: { tokens } } = this;
      const layout = JSON.stringify([tokens, columns]);
      if (table.dataset.layout !== layout) {
        table.dataset.layout = layout;
        table.replaceChildren(make("caption"), make("thead"), make("tbody"));
        table.tHead.insertRow().append(make("td"), ...columns.map((name) => make("th", { scope: "col" }, name)));
        for (const name of tokens)
          table.tBodies[0].insertRow().append(make("th", { scope: "row" }, name), ...columns.map(() => make("td")));
      }
      // Weights are shaded from 0 to 1, whatever they are.
      const values = rows.flat().filter(isFinite), weights = state.step === 3;
      const smallest = Math.min(...values), largest = Math.max(...values);
      const high = weights ? 1 : Math.max(Math.abs(smallest), Math.abs(largest));
      const low = !weights && smallest > high / 2 && smallest < high ? smallest : 0;
      const text = (value) => shown(value, spec.digits);
      rows.forEach((row, i) => {
        const line = table.tBodies[0].rows[i];
        line.className = i === state.query ? "on" : "";
        row.forEach((value, j) => {
          const cell = line.cells[j + 1];
          const blocked = state.step > 1 && state.step < 4 && hides(state, i, j);
          cell.textContent = text(value);
          cell.dataset.value = value;
          cell.className = (blocked ? "z" : value < 0 ? "n" : "") + (i === state.query && j === chosen ? " on" : "");
          cell.style.setProperty("--v", blocked || high === low ? 0 : ((Math.abs(value) - low) / (high - low)).toFixed(2));
          cell.tabIndex = i === state.query && j === chosen ? 0 : -1;
        });
      });
      const kind = smallest < 0 ? (largest > 0 ? " both" : " n") : "";
      const ends = kind ? ["-" + text(high), kind === " n" ? "0" : text(high)] : [low ? text(low) : "0", text(high)];
      table.caption.innerHTML = `<b>${CAPTIONS[state.step]}</b> <span class="key"><span>${ends[0]} <i class="bar${kind}"></i> ${ends[1]}</span>` +
        (table.querySelector("td.z") ? ' <span><i class="hatch"></i> masked</span>' : "") + "</span>";
    }

    said(panel, all, column) {
      const { step, query } = this.state;
      const [rule, filled, sign = "="] = this.formula(panel, all, column);
      const value = shown(all.steps[step][query][column], this.spec.digits);
      return `<p class="rule">${rule}</p><p class="filled">${filled}<b> ${sign} ${value}</b></p>`;
    }

    /* The rule of the step, and the same with the numbers of the chosen cell. */
    formula(panel, all, j) {
      const { state, spec } = this;
      const i = state.query;
      const brief = (value) => {
        const text = shown(value, spec.digits);
        const short = text.includes(".") ? text.replace(/\.?0+$/, "") : text;
        return short[0] === "-" ? `(${short})` : short;
      };
      const escaped = (text) => make("i", {}, text).innerHTML;
      const from = escaped(panel.tokens[i]);
      const to = escaped(panel.tokens[j] || "");
      const name = escaped(this.channel(j));
      const sum = (left, right) => left.map((one, at) => `<span>${brief(one)}·${brief(right[at])}</span>`).join(" + ");
      const before = all.steps[state.step - 1];
      const stays = (why) => [why, brief(before[i][j]), "→"];
      switch (state.step) {
        case 0:
          return [`score(${from}, ${to}) = query of ${from} · key of ${to}`, sum(all.query[i], all.key[j])];
        case 1:
          return state.scaling
            ? [`score / √d, with d = ${all.key[0].length} numbers a key`, `${brief(before[i][j])} / ${brief(all.root)}`]
            : stays("Scaling is off: the score stays");
        case 2:
          return stays(state.hidden.has(j) ? `${to} is hidden from every query`
            : !state.causal ? "No mask here: the score stays"
            : j > i ? `${to} comes after ${from}: hidden by the causal mask` : `${from} may look at ${to}: the score stays`);
        case 3: {
          const { largest, powers, total } = all.soft[i];
          if (!total) return [`Every token is hidden from ${from}: nothing to attend to`, "no weight", "→"];
          const power = (k) => `<span>e<sup>${brief(before[i][k])} − ${brief(largest)}</sup></span>`;
          const shownPowers = powers.map((_, k) => (before[i][k] === -Infinity ? "0" : power(k)));
          return [`softmax: e<sup>score − largest</sup> / sum over the row of ${from}`,
            `${shownPowers[j]} / (${shownPowers.join(" + ")}) = ${brief(powers[j])} / ${brief(total)}`];
        }
        default:
          return [`context(${from})[${name}] = sum of weight · value[${name}]`, sum(before[i], all.value.map((row) => row[j]))];
      }
    }
  }

  customElements.define("attention-explorable", AttentionExplorable);
})();
