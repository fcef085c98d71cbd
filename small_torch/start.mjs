// Makes `import torch` mean the small torch, in a Pyodide whose folder /small_torch holds this folder's files.

import kernels from "./kernels.js";
import random from "./random.js";

/** Prepare `python`, and return the module page.py; `fetch(name)` returns the bytes of the book's file of this name. */
export function start(python, fetch) {
  python.registerJsModule("small_torch_kernels", kernels(python._module));
  python.registerJsModule("small_torch_random", random(python._module));
  python.registerJsModule("small_torch_files", { fetch });
  python.runPython("import sys; sys.path.insert(0, '/small_torch')");
  return python.pyimport("page");
}
