// Makes `import torch` mean the small torch, in a Pyodide whose folder /small_torch holds this folder's files.

import kernels from "./kernels.js";
import random from "./random.js";

/** Prepare `python`, and return the module page.py. `fetch(name)` returns the bytes of the book's file of this name;
    `bring()` writes into the folder what was left out of it, once a page asks for it, and says whether there was any. */
export function start(python, fetch, bring = () => false) {
  python.registerJsModule("small_torch_kernels", kernels(python._module));
  python.registerJsModule("small_torch_random", random(python._module));
  python.registerJsModule("small_torch_files", { fetch, bring });
  python.runPython("import sys; sys.path.insert(0, '/small_torch')");
  return python.pyimport("page");
}
