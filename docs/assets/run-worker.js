/* Python in a worker: Pyodide, the small torch, and what runs and judges the blocks of a page, all from the
   address of the book. It is told `{ id, asked }`, and answers `{ id, said }`; on the way it tells
   `{ share }` of what it loads, `{ id, above }`, how many of the blocks above have begun and how many there are,
   `{ id, begun }` and `{ id, printed }`. */
import moments from "./small_torch/moments.mjs";
import { start } from "./small_torch/start.mjs";
import { loadPyodide } from "./vendor/pyodide/pyodide.mjs";

const own = (name) => new URL(name, import.meta.url).href;
const PYODIDE = own("vendor/pyodide/");
// No package is ever fetched, so the list of them is empty.
const LOCK = { info: { abi_version: "2026_0" }, packages: {} };
const FULL = 2 ** 30; // bytes of a memory that the page should give back, which only the end of Python does
const KEPT = 100; // milliseconds for which what is printed is kept, to be told at once

/* What has come of the files to load, by their sizes. */
const SIZES = { "pyodide.asm.wasm": 9.6, "python_stdlib.zip": 2.5, "pyodide.asm.mjs": 1.3, "run.json": 0.2 };
const WHOLE = 16; // with some room for what Python does before it is ready
let come = 0;
new PerformanceObserver((list) => {
  for (const { name } of list.getEntries()) come += SIZES[name.split("/").pop()] ?? 0;
  postMessage({ share: come / WHOLE });
}).observe({ type: "resource", buffered: true });

/* What is at an address of the book, for Python, which waits for it. */
function fetched(name, type) {
  const request = new XMLHttpRequest();
  request.open("GET", own(name), false);
  request.responseType = type;
  request.send();
  if (request.status !== 200) throw new Error(`${name} could not be loaded`);
  return request.response;
}

const file = (name) => new Uint8Array(fetched(`../files/${name}`, "arraybuffer"));

function write(python, files) {
  for (const [name, text] of Object.entries(files)) {
    python.FS.mkdirTree(`/${name.split("/").slice(0, -1).join("/")}`);
    python.FS.writeFile(`/${name}`, text);
  }
}

/* What few pages need of the small torch comes when one of them asks for it, once. */
let isWhole = false;
function bring(python) {
  if (isWhole) return false;
  write(python, fetched("run-later.json", "json"));
  return (isWhole = true);
}

async function load() {
  // Pyodide would wait without an end where a policy forbids it WebAssembly, as one does that forbids this.
  try {
    new Function("");
  } catch {
    throw new Error("the policy of this site forbids it (script-src needs 'unsafe-eval')");
  }
  const [python, packed] = await Promise.all([
    loadPyodide({ indexURL: PYODIDE, packageBaseUrl: PYODIDE, lockFileContents: LOCK }),
    fetch(own("run.json")).then((answer) => answer.json()),
  ]);
  write(python, packed);
  // Each page begins with a torch of its own; it is compiled once.
  python.runPython("import sys; sys.path.insert(0, '/'); sys.dont_write_bytecode = False");
  start(python, file, () => bring(python));
  const { begin, above, run } = python.pyimport("book.in_page");
  return { begin, above, run, memory: moments(python._module), isFull: () => python._module.HEAPU8.length > FULL };
}

const loaded = load();
loaded.catch(() => {}); // told to who asks

let before = { page: "", steps: [] }; // what was asked last, each step as a text

/* Runs the last of the steps that are asked for, after those above it that have not run so: from the latest moment
   that is kept, if any. Kept are the moments before that step, before the first one that has changed, and before
   the exercises at the end, for there the next run will go on. */
async function answer(asked, tell, count) {
  const { begin, above, run, memory } = await loaded;
  const steps = asked.steps.map((step) => JSON.stringify([step.at, step.code]));
  const known = asked.page === before.page ? before.steps : [];
  const changed = known.length ? steps.findIndex((step, at) => step !== known[at]) : 0;
  before = { page: asked.page, steps };
  let done = known.length ? memory.goTo(steps) : -1;
  if (done < 0) {
    memory.begin();
    begin(asked.page);
    memory.stand([]);
    done = 0;
  }
  const stops = [changed, asked.steps.findLastIndex((step) => !step.exercise) + 1, steps.length - 1];
  for (const stop of stops.sort((a, b) => a - b)) {
    if (stop < done || stop >= steps.length) continue;
    for (; done < stop; done++) {
      count([done + 1, steps.length - 1]);
      const refused = above(JSON.stringify({ ...asked, steps: asked.steps.slice(0, done + 1) }));
      if (refused) memory.stand();
      if (refused) return JSON.parse(refused);
    }
    memory.stand(steps.slice(0, stop));
    memory.keep();
  }
  count();
  const said = JSON.parse(run(JSON.stringify(asked), tell));
  memory.stand(said.error ? undefined : steps);
  return said;
}

/* Tells what is printed, in pieces that are worth a message. */
function teller(id) {
  let kept = "", last = performance.now();
  return (text) => {
    kept += text;
    if (performance.now() - last < KEPT) return;
    postMessage({ id, printed: kept });
    [kept, last] = ["", performance.now()];
  };
}

addEventListener("message", async ({ data: { id, asked } }) => {
  try {
    const { isFull } = await loaded;
    const count = (above) => postMessage(above ? { id, above } : { id, begun: true });
    const said = await answer(asked, teller(id), count);
    postMessage({ id, said, isFull: isFull() });
  } catch (error) {
    postMessage({ failed: error.message });
  }
});
