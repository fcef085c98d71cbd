// Runs pages under Node as a browser runs them. Standard input is JSON: {pyodide, files, compare, pages}; each page
// is {path, source, blocks: [{code, start}]}. For each page, one line of JSON comes back: what every block did.
//
//     node small_torch/run_page.mjs < pages.json

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const asked = JSON.parse(readFileSync(0, "utf8"));
const { loadPyodide } = await import(pathToFileURL(join(asked.pyodide, "pyodide.mjs")));
const { start } = await import("./start.mjs");

const python = await loadPyodide({ indexURL: asked.pyodide });
python.FS.mkdir("/small_torch");
python.FS.mount(python.FS.filesystems.NODEFS, { root: here }, "/small_torch");
const page = start(python, (name) => new Uint8Array(readFileSync(join(asked.files, name))));
for (const each of asked.pages) {
  const running = page.Page(each.path, each.source);
  const results = each.blocks.map((block) => running.run(block.code, block.start).toJs({ dict_converter: Object.fromEntries }));
  process.stdout.write(JSON.stringify({ path: each.path, results }) + "\n");
  running.destroy();
}
