// Draw what each line of the standard input asks for, in a memory such as Pyodide's, and print it as JSON.
import { readFileSync } from "node:fs";
import random from "../../small_torch/random.js";

const buffer = new ArrayBuffer(8 * 2 ** 20);
const module = {
  HEAPF64: new Float64Array(buffer), HEAPF32: new Float32Array(buffer), HEAPU32: new Uint32Array(buffer),
  HEAP32: new Int32Array(buffer), HEAPU8: new Uint8Array(buffer),
};
const VIEWS = { 0: module.HEAPF32, 1: module.HEAPF64, 2: module.HEAPF64, 3: module.HEAP32, 5: module.HEAPU8 };
const streams = random(module), at = 2 ** 16;

for (const [seed, ...draws] of JSON.parse(readFileSync(0, "utf8"))) {
  streams.seed(0, seed);
  const drawn = draws.map(([what, type, n, ...more]) => {
    streams[what](0, type, at, n, ...more);
    return [...VIEWS[type].subarray(at, at + n)];
  });
  console.log(JSON.stringify(drawn));
}
