// Runs pages under Node as a browser runs them: a page is one line of JSON on standard input, {path, source, blocks},
// each block {code, start}, and what every block did is one line of JSON on standard output. With `again: true` each
// block runs once more from the moment before it, the last block first, and what it did then is `again`.
//
//     node small_torch/run_pages.mjs docs/assets/vendor/pyodide docs/files < pages.jsonl

import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";

import moments from "./moments.mjs";
import { start } from "./start.mjs";

const [pyodide, files] = process.argv.slice(2).map((path) => resolve(path));
const { loadPyodide } = await import(pathToFileURL(join(pyodide, "pyodide.mjs")));

const python = await loadPyodide({
  indexURL: pyodide,
  packageBaseUrl: pyodide,
  lockFileContents: { info: { abi_version: "2026_0" }, packages: {} }, // no package is ever fetched
});
python.FS.mkdir("/small_torch");
python.FS.mount(python.FS.filesystems.NODEFS, { root: dirname(fileURLToPath(import.meta.url)) }, "/small_torch");
python.runPython("import sys; sys.dont_write_bytecode = True");
const page = start(python, (name) => new Uint8Array(readFileSync(join(files, name))));

const worked = () => process.cpuUsage().user / 1e6; // seconds, on a machine that others keep busy
for await (const line of createInterface({ input: process.stdin })) {
  const { path, source, blocks, again } = JSON.parse(line);
  const running = page.Page(path, source), runs = running.run; // taken before the first moment, as all must be
  const run = ({ code, start }) => {
    const before = worked(), said = runs(code, start);
    const result = said.toJs({ dict_converter: Object.fromEntries });
    said.destroy();
    return { ...result, worked: worked() - before };
  };
  const memory = moments(python._module), names = blocks.map((_, at) => `${at}`);
  const results = blocks.map((block, at) => {
    memory.stand(names.slice(0, at));
    if (again) memory.keep();
    return run(block);
  });
  const repeated = blocks.map(() => null);
  for (let at = blocks.length - 1; again && at >= 0; at--)
    if (memory.goTo(names.slice(0, at + 1)) === at) repeated[at] = run(blocks[at]), memory.stand();
  runs.destroy();
  running.destroy();
  console.log(JSON.stringify({ path, results, again: repeated }));
}
