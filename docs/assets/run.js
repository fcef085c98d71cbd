/* Runs and edits the blocks of a page. Comes with the first touch of Run or Edit, or where a reader has left
   something on a page; Python comes with the first Run. `run-worker.js` computes, this shows. One classic
   script, which listens on the window, so that it works on pages that arrive later, too. */
(() => {
  "use strict";

  const home = document.currentScript.src;
  const own = (name) => new URL(name, home).href;
  const KEY = "book-run";
  const STOP = "M6 6h12v12H6z";

  const say = (text) => dispatchEvent(new CustomEvent("book:say", { detail: text }));
  const MOST_WORDS = 12; // that a figure shows
  const lines = (count) => `${count} ${count === 1 ? "line" : "lines"}`;

  function make(tag, className, ...content) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    made.append(...content);
    return made;
  }

  function makeButton(label, act) {
    const made = make("button", "", label);
    made.type = "button";
    made.addEventListener("click", act);
    return made;
  }

  /* ── The page: its blocks, each with its code and what it shows ────────────────────────── */

  let page;

  /* The page that is shown now; what is known of its blocks beside their code is loaded once. */
  function here() {
    const template = document.getElementById("guarded");
    if (page?.template === template) return page;
    leave();
    const boxes = [...document.querySelectorAll(".md-content .highlight[class*=language-py]:has(pre > code)")];
    page = {
      template,
      path: location.pathname,
      digest: template.dataset.code,
      blocks: boxes.map((box, at) => block(box, at)),
      explored: new Map(), // each figure that shows other numbers, and what it showed
    };
    return page;
  }

  /* What did not come is asked for again at the next run. */
  function known() {
    const asked = page;
    asked.known ??= fetch(new URL(asked.template.dataset.run, location)).then((answer) => answer.json());
    asked.known.catch(() => (asked.known = undefined));
    return asked.known;
  }

  /* End what runs on a page that the reader has left, and its editors: book.js takes such a page apart, which
     they would take for typing. */
  function leave() {
    if (!page || page.template.isConnected) return;
    for (const { editor } of page.blocks) editor?.destroy();
    if (page.running) worker?.terminate();
    if (page.running) worker = undefined;
    page = undefined;
  }

  function block(box, at) {
    const code = box.querySelector("pre > code");
    // What a folded block prints may stand open, below its fold.
    const fold = box.nextElementSibling ? undefined : box.closest("details");
    const next = (fold ?? box).nextElementSibling;
    const stored = next?.matches("figure.output") ? next : undefined;
    return {
      at,
      box,
      code,
      first: code.textContent,
      drawn: code.innerHTML,
      stored,
      fold: stored && fold,
      button: box.querySelector("[data-run=run]"),
    };
  }

  const text = (one) => one.code.textContent;
  const isEdited = (one) => text(one) !== one.first;

  /* ── What is kept in this browser: text that was typed, and exercises that are done ────── */

  /* For the whole browser, and first for this tab of it: each tab comes back to its own text. */
  const STORES = ["localStorage", "sessionStorage"];

  function kept(store) {
    try {
      return JSON.parse(window[store].getItem(KEY)) ?? {};
    } catch {
      return {};
    }
  }

  /* Keep what is left of the blocks that have `changed`; what another tab has left of others stays. What was typed
     holds for this code alone. */
  function keep(changed = []) {
    for (const store of STORES) {
      const all = kept(store), left = all[page.path];
      const typed = left?.code === page.digest ? left.typed : {};
      for (const one of changed) if (isEdited(one)) typed[one.at] = text(one); else delete typed[one.at];
      const done = [...new Set([...(left?.done ?? []), ...(page.done ?? [])])];
      delete all[page.path];
      if (Object.keys(typed).length || done.length) all[page.path] = { code: page.digest, typed, done };
      try {
        if (Object.keys(all).length) window[store].setItem(KEY, JSON.stringify(all));
        else window[store].removeItem(KEY);
      } catch {
        // refused
      }
    }
    dispatchEvent(new Event("book:kept"));
    markStale();
  }

  async function restore() {
    if (here().restored) return;
    page.restored = true;
    const [left, own] = STORES.map((store) => kept(store)[page.path]);
    if (!left && !own) return;
    page.done = new Set([...(left?.done ?? []), ...(own?.done ?? [])]);
    markDone();
    if ([left, own].some((each) => each && each.code !== page.digest)) return keep();
    for (const [at, typed] of Object.entries({ ...left?.typed, ...own?.typed })) {
      const one = page.blocks[at];
      if (!one?.button) continue;
      one.code.textContent = typed;
      showStrip(one, "edited", "Edited");
      await edit(one).catch((error) => say(error.message));
    }
  }

  function markDone() {
    for (const number of page.done ?? []) {
      const asked = document.getElementById(`exercise-${number}`);
      if (asked && !asked.querySelector(".exercise-done")) asked.prepend(make("span", "exercise-done", "Done"), " ");
    }
  }

  /* ── The strip between a block and what it prints ──────────────────────────────────────── */

  /* Show how a block stands, in a word of `state` for the styles and in a few for the reader. */
  function showStrip(one, state, said, ...more) {
    one.strip?.remove();
    one.strip = make("div", "run-strip", make("span", "run-says", said), ...more);
    one.strip.dataset.state = state;
    const others = page.blocks.filter((each) => each !== one && each.strip);
    others.forEach(({ strip }) => strip.querySelector(".run-whole")?.remove());
    if (state !== "running") {
      one.strip.append(makeButton("Reset", () => reset([one])));
      one.strip.lastChild.setAttribute("aria-label", `Reset block ${one.at + 1}`);
    }
    if (state !== "running" && others.length) {
      one.strip.append(makeButton("Reset the page", () => reset(page.blocks)));
      one.strip.lastChild.className = "run-whole";
    }
    one.box.after(one.strip);
  }

  /* What a block shows is stale once one above it is no longer as it was when it ran. */
  function markStale() {
    for (const one of page.blocks) {
      const isOver = one.strip && !/running|edited|stale/.test(one.strip.dataset.state);
      const changed = isOver && one.steps?.find(({ at, code }) => at !== one.at && code !== text(page.blocks[at]));
      if (changed) showStrip(one, "stale", `Stale: block ${changed.at + 1} has changed since. Run this one again.`);
    }
  }

  function reset(blocks) {
    if (page.running && blocks.includes(page.running)) end();
    const at = blocks.find((one) => one.strip?.contains(document.activeElement));
    for (const one of blocks) {
      one.editor?.destroy();
      one.box.classList.remove("is-edited");
      one.strip?.remove();
      show(one, one.stored);
      if (isEdited(one)) one.code.innerHTML = one.drawn;
      one.editor = one.strip = undefined;
    }
    if (!page.blocks.some(isEdited)) {
      page.explored.forEach((config, figure) => explorable(figure, config));
      page.explored.clear();
    }
    keep(blocks);
    (at ?? blocks[0])?.button?.focus();
    say(blocks.length > 1 ? "The page is as it was" : "The block is as it was");
  }

  /* Put a figure, or nothing, where a block shows what it prints. */
  function show(one, figure) {
    if (one.shown && one.shown !== one.stored) one.shown.remove();
    const place = one.fold ?? (one.strip?.isConnected ? one.strip : one.box);
    if (one.stored && figure !== one.stored) one.stored.remove();
    if (figure && !figure.isConnected) place.after(figure);
    one.shown = figure;
  }

  /* What was printed, drawn by Python; it has the address of what it stands for. */
  function figureOf(one, html) {
    const parsed = new DOMParser().parseFromString(html, "text/html");
    const figure = document.importNode(parsed.querySelector("figure"), true);
    figure.classList.add("run-output");
    if (one.stored?.id) figure.id = one.stored.id;
    const link = one.stored?.querySelector("figcaption .headerlink");
    if (link) figure.querySelector("figcaption").append(link.cloneNode(true));
    return figure;
  }

  /* Mark in a plain output the places of its lines that moved. */
  function mark(figure, moved) {
    const printed = figure.querySelector(":scope > pre > samp");
    if (!printed) return;
    const rows = printed.textContent.split("\n");
    if (moved.some(([at, , now]) => rows[at]?.trimEnd() !== now?.trimEnd())) return; // lines came or went
    const places = new Map(moved.map(([at, , , where]) => [at, where]));
    printed.replaceChildren(...rows.flatMap((row, at) => [at ? "\n" : "", ...marked(row, places.get(at) ?? [])]));
  }

  function marked(row, places) {
    let from = 0;
    const parts = places.flatMap(([start, stop]) => {
      const made = [row.slice(from, start), make("mark", "", row.slice(start, stop))];
      from = stop;
      return made;
    });
    return [...parts, row.slice(from)];
  }

  function fold(title, ...content) {
    return make("details", "", make("summary", "", title), make("pre", "", ...content));
  }

  /* What was written to standard error, warnings too. */
  function errors(written) {
    const made = fold("Standard error", written ?? "");
    made.open = true;
    return written ? [made] : [];
  }

  /* What moved, as the page shows it and as it was printed. */
  function difference(moved) {
    const rows = moved.slice(0, 20).flatMap(([, before, now]) => [
      ...(before === null ? [] : [make("del", "", before), "\n"]),
      ...(now === null ? [] : [make("ins", "", now), "\n"]),
    ]);
    return fold("What moved", ...rows);
  }

  /* ── An explorable shows the matrices that the page computes now ───────────────────────── */

  /* Whether what a panel is given can be multiplied, and fits the figure. */
  function fits({ tokens, name, ...matrices }) {
    const columns = (matrix) => matrix?.[0].length;
    const isMatrix = (matrix) =>
      Array.isArray(matrix?.[0]) && matrix.length === tokens.length &&
      matrix.every((row) => row.length === columns(matrix) && row.every(Number.isFinite));
    return (
      Array.isArray(tokens) && tokens.length <= MOST_WORDS &&
      Object.values(matrices).every(isMatrix) && columns(matrices.queries) === columns(matrices.keys)
    );
  }

  const explorables = () => [...document.querySelectorAll(".md-content figure.attention")];

  function explore({ at, places }, values) {
    const figure = explorables()[at];
    const before = figure.querySelector("attention-explorable").getAttribute("config");
    const config = JSON.parse(before);
    const asks = config.panels[config.choice ?? 0].tokens[config.query];
    places.forEach(([name, panels], i) => {
      const value = typeof values[i] === "string" ? values[i].split(/\s+/) : values[i];
      for (const panel of panels) if (name in config.panels[panel]) config.panels[panel][name] = value;
    });
    if (page.reading?.figure === figure) config.choice = page.reading.panel;
    const shown = config.panels[config.choice ?? 0];
    if (config.votes?.length) config.query = shown.tokens.indexOf(asks);
    if (!config.panels.every(fits) || config.query < 0 || config.query >= shown.tokens.length) return;
    if (!page.explored.has(figure)) page.explored.set(figure, before);
    explorable(figure, JSON.stringify(config));
  }

  /* The code of a block with another text in its line that held `first` at first; "" where it has no such line. */
  function rewritten(one, first, now) {
    const [begin, end] = one.first.split("\n").find((line) => line.includes(`"${first}"`))?.split(`"${first}"`) ?? [];
    const rows = text(one).split("\n");
    const at = rows.findIndex((row) => begin !== undefined && row.startsWith(`${begin}"`) && row.endsWith(`"${end}`));
    if (at < 0) return "";
    rows[at] = `${begin}"${now}"${end}`;
    return rows.join("\n");
  }

  /* Have the page's code read another sentence: it takes the place of the one that a figure shows. */
  async function read({ element, panel, said }) {
    const figure = element.closest("figure");
    const { blocks } = await known();
    const at = explorables().indexOf(figure);
    const one = page.blocks[blocks.findIndex(({ figures = [] }) => figures.some((each) => each.at === at))];
    const words = said.toLowerCase().match(/\p{L}+/gu) ?? [];
    page.reading = { figure, panel, one };
    const config = page.explored.get(figure) ?? element.getAttribute("config");
    const code = one && rewritten(one, JSON.parse(config).panels[panel].tokens.join(" "), words.join(" "));
    if (!code) return tell("The code was changed, and no longer has this sentence.");
    if (words.length > MOST_WORDS) return tell(`The figure shows at most ${MOST_WORDS} words.`);
    if (one.editor) one.editor.dispatch({ changes: { from: 0, to: one.editor.state.doc.length, insert: code.replace(/\n$/, "") } });
    else one.code.textContent = code;
    keep([one]);
    await run(one);
  }

  /* Say, in the figure that asked for another sentence, how its code stands. */
  function tell(said) {
    const place = page.reading?.figure.querySelector("output");
    if (place) place.textContent = said;
    return say(said);
  }

  /* Draw an explorable anew; one whose script has not come yet finds its numbers when it does. */
  function explorable(figure, config) {
    const old = figure.querySelector("attention-explorable");
    if (!customElements.get("attention-explorable")) return old.setAttribute("config", config);
    const made = make("attention-explorable", "");
    made.setAttribute("config", config);
    old.replaceWith(made);
  }

  /* ── Run ───────────────────────────────────────────────────────────────────────────────── */

  let worker;
  let runs = 0;

  function started() {
    if (worker) return worker;
    worker = new Worker(own("run-worker.js"), { type: "module" });
    worker.onmessage = ({ data }) => heard(data);
    worker.onerror = (event) => {
      event.preventDefault();
      heard({ failed: event.message || "the browser does not start it" });
    };
    return worker;
  }

  /* End Python; the next run starts it anew. */
  function end() {
    worker?.terminate();
    worker = undefined;
    const one = page.running;
    page.running = undefined;
    if (one) asButton(one, "Run");
    return one;
  }

  function stop() {
    const one = end();
    if (!one) return;
    show(one, undefined);
    finish(one, "stopped", "Stopped. The next run starts Python anew.");
    one.button.focus();
  }

  function asButton(one, word) {
    const stops = word === "Stop";
    one.icon ??= one.button.querySelector("path").getAttribute("d");
    one.button.querySelector("path").setAttribute("d", stops ? STOP : one.icon);
    one.button.lastChild.data = word;
    one.button.setAttribute("aria-label", `${word} block ${one.at + 1}`);
    one.button.title = one.button.getAttribute("aria-label");
  }

  function finish(one, state, said, ...more) {
    showStrip(one, state, said, ...more);
    markStale();
    const ended = one.strip.firstChild.textContent;
    if (page.reading?.one !== one) return say(ended);
    const { figure } = page.reading;
    tell(state === "wrong" ? ended.replace(/^\w+Error: | In line .*$/g, "") : "");
    if (state === "wrong") return;
    say(figure.querySelector(".votes").textContent);
    figure.querySelector("form input").focus();
    page.reading = undefined;
  }

  async function run(one) {
    if (page.running === one) return stop();
    if (page.running) return say("Another block is running");
    page.running = one;
    asButton(one, "Stop");
    const progress = make("progress", "");
    progress.setAttribute("aria-label", "Loading Python");
    if (!worker) progress.value = 0;
    showStrip(one, "running", worker ? "Running" : "Loading Python, about 6 MB, once", progress);
    if (page.reading?.one === one) tell(one.strip.firstChild.textContent);
    else say(one.strip.firstChild.textContent);
    const asked = page;
    try {
      if (location.protocol === "file:") throw new Error("a browser starts Python only from a page with an address, and not from a disk");
      const program = await known();
      if (page !== asked || page.running !== one) return;
      one.id = ++runs;
      const request = requestOf(one, program);
      one.steps = request.steps;
      started().postMessage({ id: one.id, asked: request });
    } catch (error) {
      if (page === asked) heard({ failed: error.message });
    }
  }

  /* What Python needs to run a block: all blocks above it but solutions of other exercises, and it. */
  function requestOf(one, { page: name, blocks }) {
    const exercise = (at) => blocks[at].solution ?? blocks[at].stub ?? blocks[at].check;
    const mine = exercise(one.at);
    const isWanted = ({ at, button }) =>
      at === one.at || (button && !(blocks[at].solution && exercise(at) !== mine) && !(mine && blocks[at].solution && !blocks[one.at].solution));
    const above = page.blocks.slice(0, one.at + 1).filter(isWanted);
    const steps = above.map((each) => {
      const { start, raises } = blocks[each.at];
      return { at: each.at, code: text(each), start, raises, exercise: Boolean(exercise(each.at)) };
    });
    const { check, output, figures = [] } = blocks[one.at];
    if (check) steps.at(-1).code += `\n\ncheck_${check}(answer_${check})\n`;
    return { page: name, steps, output, figures: figures.map(({ code }) => code) };
  }

  function heard({ id, share, above, begun, printed, said, isFull, failed }) {
    const one = page?.running;
    if (failed !== undefined) {
      end();
      const isCut = !navigator.onLine && location.protocol !== "file:";
      const said = /call stack/.test(failed) ? "A function calls itself without an end. The next run starts Python anew."
        : isCut ? "Python could not be loaded: you are offline. Run again when you are back."
        : `Python did not run: ${failed}.`;
      return one && finish(one, "wrong", said);
    }
    if (!one) return;
    if (share) one.strip.querySelector("progress").value = Math.min(share, 1);
    if (share || id !== one.id) return;
    if (begun || above || printed) return running(one, printed ?? "", above);
    // Memory that has grown goes back with Python alone, which the next run starts anew.
    if (isFull) worker.terminate();
    if (isFull) worker = undefined;
    page.running = undefined;
    asButton(one, "Run");
    judge(one, said);
  }

  /* Say that a block runs, or which of those above it, and show what it has printed so far. */
  function running(one, printed, above) {
    one.strip.firstChild.textContent = above ? `Running ${above[0]} of ${above[1]} above` : "Running";
    one.strip.querySelector("progress").removeAttribute("value");
    if (!printed) return;
    one.printing = (one.printing ?? "") + printed;
    const samp = make("samp", "", one.printing);
    show(one, make("figure", "output run-output", make("figcaption", "", make("b", "", "Output")), make("pre", "", samp)));
  }

  async function judge(one, said) {
    one.printing = undefined;
    const { blocks, colab } = await known();
    const { check, figures = [] } = blocks[one.at];
    if (page.explored.size || page.blocks.some(isEdited))
      said.figures?.forEach((values, at) => values && explore(figures[at], values));
    const figure = said.html ? figureOf(one, said.html) : undefined;
    show(one, figure);
    if (said.error) return refuse(one, said, check, colab);
    if (check) {
      page.done = new Set(page.done).add(check);
      keep();
      markDone();
      return finish(one, "right", "Done.", ...errors(said.errors));
    }
    if (said.missed) return finish(one, "moved", `The page ends in ${said.missed} here, and this did not.`, ...errors(said.errors));
    if (!said.moved) return finish(one, "ran", said.printed ? "Ran." : "Ran. It prints nothing.", ...errors(said.errors));
    if (!said.moved.length) {
      if (figure) show(one, one.stored);
      one.stored.classList.remove("veiled");
      one.stored.querySelector(".unveil")?.remove();
      return finish(one, "right", "As printed.", ...errors(said.errors));
    }
    if (figure) mark(figure, said.moved);
    return finish(one, "moved", `${lines(said.moved.length)} of ${said.lines} moved.`, difference(said.moved), ...errors(said.errors));
  }

  function refuse(one, { at, error, lacks, line, text: code, whole, errors: written }, check, colab) {
    const words = check && error.replace(/^AssertionError: /, "Not right yet: ");
    const where = [];
    if (!check && line) where.push(` In line ${line}: `, make("code", "", code));
    const above = at === one.at ? "" : `Block ${at + 1} stops. `;
    const said = make("span", "run-error", above, make("b", "", words || (error.includes(lacks) ? error : `${lacks}.`)), ...where);
    if (lacks && colab) {
      const link = make("a", "", "Run in Colab");
      link.href = colab;
      said.append(" ", link);
    }
    const isTold = check && error.startsWith("AssertionError");
    finish(one, "wrong", said, ...(isTold ? [] : [fold("The whole error", whole)]), ...errors(written));
  }

  /* ── Edit ──────────────────────────────────────────────────────────────────────────────── */

  let editing;

  function editor() {
    editing ||= new Promise((loaded, failed) => {
      const script = make("script", "");
      script.src = own("vendor/codemirror.js");
      script.onload = () => loaded(window.CodeMirror);
      script.onerror = () => {
        editing = undefined;
        failed(new Error("The editor could not be loaded. Try again when you are online."));
      };
      document.head.append(script);
    });
    return editing;
  }

  const COLOURS = {
    keyword: "keyword", bool: "constant", null: "constant", number: "number", string: "string", comment: "comment",
    definitionKeyword: "keyword", controlKeyword: "keyword", operatorKeyword: "keyword", moduleKeyword: "keyword",
  };

  async function edit(one) {
    if (one.editor) return one.editor.focus();
    const { EditorView, EditorState, keymap, tags, ...rest } = await editor();
    if (one.editor || !one.box.isConnected) return;
    const colours = Object.entries(COLOURS).map(([name, colour]) => ({ tag: tags[name], color: `var(--md-code-hl-${colour}-color)` }));
    const measure = ({ doc }) => one.box.style.setProperty("--first-line", doc.line(1).length); // see book.css
    const changed = EditorView.updateListener.of((update) => {
      if (!update.docChanged) return;
      one.code.textContent = update.state.doc.toString().replace(/\n*$/, "\n");
      measure(update.state);
      keep([one]);
      if (one.strip?.dataset.state !== "running") showStrip(one, "edited", "Edited");
    });
    one.editor = new EditorView({
      parent: one.box,
      state: EditorState.create({
        doc: text(one).replace(/\n$/, ""),
        extensions: [
          rest.history(),
          rest.indentOnInput(),
          rest.bracketMatching(),
          rest.indentUnit.of("    "),
          rest.pythonLanguage,
          rest.syntaxHighlighting(rest.HighlightStyle.define(colours)),
          keymap.of([
            { key: "Mod-Enter", run: () => (run(one), true) },
            { key: "Shift-Enter", run: () => (run(one), true) },
            { key: "Escape", run: () => (one.button.focus(), true) },
            ...rest.historyKeymap,
            ...rest.defaultKeymap,
          ]),
          EditorView.contentAttributes.of({ "aria-label": "Code; Escape leaves it, Shift and Enter run it" }),
          changed,
        ],
      }),
    });
    measure(one.editor.state);
    one.box.classList.add("is-edited");
    return one;
  }

  /* ── What a page asks ──────────────────────────────────────────────────────────────────── */

  const style = make("link", "");
  style.rel = "stylesheet";
  style.href = own("run.css");
  document.head.append(style);

  addEventListener("book:run", async ({ detail }) => {
    const { kind, at } = detail;
    const one = here().blocks[at];
    await restore();
    if (kind === "read") return read(detail);
    if (kind === "run") run(one);
    if (kind === "edit") edit(one).then(() => one.editor?.focus(), (error) => finish(one, "wrong", error.message));
  });

  addEventListener("book:forget", () => {
    if (!page?.template.isConnected) return;
    page.done = undefined;
    document.querySelectorAll(".exercise-done").forEach((each) => each.remove());
    reset(page.blocks);
  });

  window.document$?.subscribe(leave);
})();
