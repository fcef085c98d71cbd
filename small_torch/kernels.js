// The arithmetic of the small torch: loops over the memory of Pyodide, in which Python makes the arrays.
//
// A call has one argument or none. What it works on stands in a block of 32-bit integers that Python writes
// and names once (`init`): places of numbers as indices into the view of their type, shapes, and strides in
// elements. So nothing but an integer crosses between Python and JavaScript, and no array is ever copied.

const F32 = 0, F64 = 1, I64 = 2, I32 = 3, U8 = 4, BOOL = 5, BF16 = 6, F16 = 7, I16 = 8, I8 = 9;

// Formulas of what is computed element by element; a, b and c are numbers of the operands.
const ELEMENTWISE = {
  copy: "a", add: "a + b", sub: "a - b", mul: "a * b", div: "a / b", neg: "-a",
  floor_divide: "floored(a, b)", trunc_divide: "trunc(a / b)", remainder: "remainder(a, b)", fmod: "a % b",
  pow: "power(a, b)", maximum: "a !== a || b !== b ? NaN : a > b ? a : b",
  minimum: "a !== a || b !== b ? NaN : a < b ? a : b",
  atan2: "Math.atan2(a, b)", logaddexp: "logaddexp(a, b)",
  eq: "a === b ? 1 : 0", ne: "a !== b ? 1 : 0", lt: "a < b ? 1 : 0", le: "a <= b ? 1 : 0",
  gt: "a > b ? 1 : 0", ge: "a >= b ? 1 : 0",
  logical_and: "a !== 0 && b !== 0 ? 1 : 0", logical_or: "a !== 0 || b !== 0 ? 1 : 0", logical_xor: "(a !== 0) !== (b !== 0) ? 1 : 0",
  logical_not: "a === 0 ? 1 : 0",
  bitwise_and: "bits(a, b, 0)", bitwise_or: "bits(a, b, 1)", bitwise_xor: "bits(a, b, 2)", bitwise_not: "-1 - a",
  bitwise_left_shift: "a * 2 ** b", bitwise_right_shift: "floor(a / 2 ** b)",
  exp: "exp(a)", exp2: "power(2, a)", expm1: "Math.expm1(a)", log: "log(a)", log2: "Math.log2(a)", log10: "Math.log10(a)", log1p: "Math.log1p(a)",
  sqrt: "sqrt(a)", rsqrt: "1 / sqrt(a)", square: "a * a", reciprocal: "1 / a", abs: "abs(a)",
  sin: "Math.sin(a)", cos: "Math.cos(a)", tan: "Math.tan(a)", asin: "Math.asin(a)", acos: "Math.acos(a)", atan: "Math.atan(a)",
  sinh: "Math.sinh(a)", cosh: "Math.cosh(a)", tanh: "Math.tanh(a)", sigmoid: "1 / (1 + exp(-a))",
  erf: "erf(a)", floor: "floor(a)", ceil: "Math.ceil(a)", trunc: "trunc(a)", round: "even(a)", sign: "a > 0 ? 1 : a < 0 ? -1 : 0",
  isnan: "a !== a ? 1 : 0", isinf: "a === Infinity || a === -Infinity ? 1 : 0",
  isposinf: "a === Infinity ? 1 : 0", isneginf: "a === -Infinity ? 1 : 0", isfinite: "a - a === 0 ? 1 : 0",
  relu: "a !== a ? a : a > 0 ? a : 0", silu: "a / (1 + exp(-a))", elu: "a > 0 ? a : b * Math.expm1(a)",
  softplus: "a > 20 ? a : Math.log1p(exp(a))", gelu: "a * 0.5 * (1 + erf(a * Math.SQRT1_2))",
  gelu_tanh: "0.5 * a * (1 + Math.tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)))",
  // Backward passes: a is the gradient from above, b the input or the output.
  relu_back: "b <= 0 ? 0 : a", tanh_back: "a * (1 - b * b)", sigmoid_back: "a * b * (1 - b)",
  silu_back: "silu_back(a, b)", gelu_back: "a * (0.5 * (1 + erf(b * Math.SQRT1_2)) + b * 0.3989422804014327 * exp(-0.5 * b * b))",
  gelu_tanh_back: "gelu_tanh_back(a, b)",
  where: "a !== 0 ? b : c", add_scaled: "a + b * c", clamp: "a !== a ? a : b !== b || c !== c ? NaN : a < b ? min(b, c) : a > c ? c : a", lerp: "a + c * (b - a)",
};

// Formulas of reductions: the value to begin with, what each element does, what is stored.
const REDUCE = {
  sum: ["0", "r += a;", "r"], prod: ["1", "r *= a;", "r"], mean: ["0", "r += a;", "r / count"],
  amax: ["-Infinity", "if (a > r || a !== a) r = a;", "r"], amin: ["Infinity", "if (a < r || a !== a) r = a;", "r"],
  any: ["0", "if (a !== 0) r = 1;", "r"], all: ["1", "if (a === 0) r = 0;", "r"], count_nonzero: ["0", "if (a !== 0) r++;", "r"],
  argmax: ["-Infinity, found = 0, k = 0", "if (a > r || (a !== a && r === r)) { r = a; found = k; } k++;", "found"],
  argmin: ["Infinity, found = 0, k = 0", "if (a < r || (a !== a && r === r)) { r = a; found = k; } k++;", "found"],
  sum_of_squares: ["0", "r += a * a;", "r"], norm: ["0", "r += a * a;", "sqrt(r)"], sum_of_abs: ["0", "r += abs(a);", "r"],
};

// Scans along the last dimension: the value to begin with, and what each element does.
const SCAN = {
  cumsum: ["0", "r += a;"], cumprod: ["1", "r *= a;"],
  cummax: ["-Infinity", "if (a >= r || a !== a) r = a;"], cummin: ["Infinity", "if (a <= r || a !== a) r = a;"],
  logcumsumexp: ["-Infinity", "r = logaddexp(r, a);"],
};

const HELPERS = (() => {
  const { abs, log, floor, trunc, sqrt, min, max } = Math;
  const single = new Float32Array(1), bitsOf = new Uint32Array(single.buffer);

  // The exponential, three times as fast as Math.exp and as near: 2 ** n, and twelve terms of the series of what is left.
  const POWERS = Float64Array.from({ length: 2100 }, (_, n) => 2 ** (n - 1075));
  function exp(x) {
    if (!(x > -745.2 && x < 709.7)) return x !== x ? NaN : x > 0 ? (x > 709.79 ? Infinity : Math.exp(x)) : 0;
    const n = floor(x * 1.4426950408889634 + 0.5);
    const r = x - n * 0.693147180369123816490 - n * 1.90821492927058770002e-10;
    const even = r * r;
    const found = 1 + r + even * (0.5 + r / 6 + even * (1 / 24 + r / 120 + even * (1 / 720 + r / 5040
      + even * (1 / 40320 + r / 362880 + even * (1 / 3628800 + r / 39916800 + even / 479001600)))));
    return n > -1022 ? found * POWERS[n + 1075] : found * POWERS[n + 1175] * 2 ** -100;
  }
  function bf16(value) {
    single[0] = value;
    if (value !== value) return NaN;
    const b = bitsOf[0];
    bitsOf[0] = (b + 0x7fff + ((b >>> 16) & 1)) & 0xffff0000;
    return single[0];
  }
  function f16(value) {
    value = Math.fround(value);
    const size = abs(value);
    if (!(size > 0) || size === Infinity) return value;
    const unit = 2 ** (max(floor(Math.log2(size)), -14) - 10);
    const rounded = even(size / unit) * unit;
    return Math.sign(value) * (rounded > 65504 ? Infinity : rounded);
  }
  function even(a) {
    const low = floor(a), part = a - low;
    if (!(abs(a) < 2 ** 52)) return a;
    const found = part < 0.5 ? low : part > 0.5 ? low + 1 : low % 2 ? low + 1 : low;
    return found === 0 && (a < 0 || Object.is(a, -0)) ? -0 : found;
  }
  function floored(a, b) {
    if (b === 0) return a / b;
    const rest = a % b, whole = (a - rest) / b - (rest !== 0 && b < 0 !== rest < 0 ? 1 : 0);
    return whole === 0 ? (a / b < 0 ? -0 : 0) : floor(whole + 0.5);
  }
  function remainder(a, b) {
    const r = a % b;
    return r !== 0 && r < 0 !== b < 0 ? r + b : r;
  }
  function power(a, b) {
    if (b === 2) return a * a;
    if (b === 0.5) return sqrt(a);
    if (b === -0.5) return 1 / sqrt(a);
    return a === 1 ? 1 : a ** b;
  }
  function bits(a, b, how) {
    const [x, y] = [BigInt(a), BigInt(b)];
    return Number(how === 0 ? x & y : how === 1 ? x | y : x ^ y);
  }
  function logaddexp(a, b) {
    if (a === b) return a + Math.LN2;
    return a > b ? a + Math.log1p(exp(b - a)) : a < b ? b + Math.log1p(exp(a - b)) : NaN;
  }
  // The error function: a table of exact values, and seven terms of Taylor's series about the nearest.
  const STEP = 1 / 64, table = new Float64Array(390);
  for (let k = 1; k < table.length; k++) {
    const x = k * STEP;
    let term = x, sum = x;
    for (let n = 1; term > sum * 1e-18; n++) sum += term *= (2 * x * x) / (2 * n + 1);
    table[k] = (2 / sqrt(Math.PI)) * exp(-x * x) * sum;
  }
  function erf(x) {
    const size = abs(x);
    if (!(size < 6)) return size === size ? Math.sign(x) : NaN;
    const k = floor(size / STEP + 0.5), at = k * STEP, d = size - at;
    const slope = (2 / sqrt(Math.PI)) * exp(-at * at), s = at * at;
    const terms = 1 + d * (-at + d * ((2 * s - 1) / 3 + d * (at * (3 - 2 * s) / 6
      + d * ((4 * s * s - 12 * s + 3) / 30 + d * (-at * (4 * s * s - 20 * s + 15) / 90)))));
    const found = table[k] + slope * d * terms;
    return x < 0 ? -found : found;
  }
  function silu_back(g, x) {
    const s = 1 / (1 + exp(-x));
    return g * s * (1 + x * (1 - s));
  }
  function gelu_tanh_back(g, x) {
    const c = 0.7978845608028654, t = Math.tanh(c * (x + 0.044715 * x * x * x));
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x));
  }
  // An int64 is kept as a float64: what it cannot hold is told to Python after the loop.
  let lost = false;
  function exact(value) {
    if (!(value < 2 ** 53 && value > -(2 ** 53))) lost = true;
    return value;
  }
  function isLost() {
    const before = lost;
    lost = false;
    return before;
  }
  return { exact, isLost, floored, abs, exp, log, floor, trunc, sqrt, min, max, bf16, f16, even, remainder, power, bits, logaddexp, erf, silu_back, gelu_tanh_back };
})();

/** Return `formula` as it is stored in a tensor of type `to`; `from` is the type of what is copied, if any. */
function stored(formula, to, from) {
  const cast = from === F32 || from === F64 || from === BF16 || from === F16;
  if (to === BOOL) return `(${formula}) ? 1 : 0`.replace("(a)", "a !== 0");
  if (to === BF16) return `bf16(${formula})`;
  if (to === F16) return `f16(${formula})`;
  if (to === I64) return `exact(${cast ? `trunc(${formula}) + 0` : formula})`;
  return formula;
}

const names = (table) => Object.keys(table).join(" ");

export default function kernels(module) {
  let params = 0;
  const made = new Map();

  const view = (type) => {
    switch (type) {
      case F64: case I64: return module.HEAPF64;
      case I32: return module.HEAP32;
      case U8: case BOOL: return module.HEAPU8;
      case I16: return module.HEAP16;
      case I8: return module.HEAP8;
      default: return module.HEAPF32;
    }
  };

  /** Return the function of this code, with HELPERS in its scope; one for each `key`, so that each is compiled for its types. */
  function compiled(key, args, code) {
    let found = made.get(key);
    if (!found) {
      const make = new Function(...Object.keys(HELPERS), `return function (${args}) {${code}}`);
      made.set(key, (found = make(...Object.values(HELPERS))));
    }
    return found;
  }

  /** Merge dimensions that every operand walks as one: returns shape and strides, the last two for the inner loops. */
  function merged(at, dims, count) {
    const U = module.HEAPU32, shape = [], strides = [];
    for (let d = 0; d < dims; d++) {
      const size = U[at + d];
      if (size === 1) continue;
      const steps = [];
      for (let k = 0; k < count; k++) steps.push(U[at + dims * (k + 1) + d]);
      const last = shape.length - 1;
      if (last >= 0 && steps.every((step, k) => strides[last][k] === step * size)) {
        shape[last] *= size;
        strides[last] = steps;
      } else {
        shape.push(size);
        strides.push(steps);
      }
    }
    while (shape.length < 2) {
      shape.unshift(1);
      strides.unshift(new Array(count).fill(0));
    }
    return { shape, strides };
  }

  /** Call `visit(places)` once for each position of the outer dimensions, the operands' places moving along. */
  function walk(shape, strides, places, visit) {
    const dims = shape.length, index = new Array(dims).fill(0);
    for (;;) {
      visit(places);
      let d = dims - 1;
      for (; d >= 0; d--) {
        const steps = strides[d];
        for (let k = 0; k < places.length; k++) places[k] += steps[k];
        if (++index[d] < shape[d]) break;
        for (let k = 0; k < places.length; k++) places[k] -= steps[k] * shape[d];
        index[d] = 0;
      }
      if (d < 0) return;
    }
  }

  let tiles, scratch = 0, room = 0;

  /** Return the function that multiplies matrices tile by tile in wasm; null where there is no wasm of this kind. */
  function products(wide, n, k) {
    if (tiles === undefined) tiles = compiledTiles(module.memory);
    if (!tiles) return null;
    const width = wide ? 4 : 8, size = wide ? 8 : 4, need = (Math.ceil(n / width) * k * width + 4 * width + 8) * size;
    if (need > room) {
      if (scratch) module._free(scratch);
      scratch = module._malloc((room = need));
      if (!scratch) return (room = 0, null);
    }
    const tile = wide ? tiles.f64 : tiles.f32, heap = () => (wide ? module.HEAPF64 : module.HEAPF32);
    const own = Math.ceil(scratch / 16) * 16 / size, panels = own + 4 * width;
    return (O, o, a, ar, ac, b, br, bc, m, n, k, again) => {
      const H = heap(), direct = bc === 1 && m <= 16;
      for (let j = 0; j < n; j += width) {
        const columns = Math.min(width, n - j), panel = panels + j * k;
        if (!again && (!direct || columns < width))
          for (let c = 0; c < width; c++)
            if (c < columns) for (let p = 0, x = b + (j + c) * bc, y = panel + c; p < k; p++, x += br, y += width) H[y] = H[x];
            else for (let p = 0, y = panel + c; p < k; p++, y += width) H[y] = 0;
        const inPlace = direct && columns === width, from = inPlace ? b + j : panel, step = inPlace ? br : width;
        for (let i = 0; i < m; i += 4) {
          const [p, q, r, s] = [0, 1, 2, 3].map((d) => (a + Math.min(i + d, m - 1) * ar) * size);
          const full = columns === width && i + 4 <= m;
          tile(p, q, r, s, ac * size, from * size, step * size, (full ? o + i * n + j : own) * size, (full ? n : width) * size, k);
          if (!full)
            for (let d = 0; d < 4 && i + d < m; d++)
              for (let c = 0; c < columns; c++) O[o + (i + d) * n + j + c] = H[own + d * width + c];
        }
      }
    };
  }

  const FORMULAS = Object.values(ELEMENTWISE), REDUCTIONS = Object.values(REDUCE), SCANS = Object.values(SCAN);

  return {
    elementwise_names: names(ELEMENTWISE),
    reduce_names: names(REDUCE),
    scan_names: names(SCAN),

    init(address) { params = address >> 2; },

    /** operation, operands, dims, (place, type) of each operand, shape, strides of each; the first is written. */
    elementwise() {
      const U = module.HEAPU32, operation = U[params], count = U[params + 1], dims = U[params + 2];
      const places = [], heaps = [];
      let key = operation * 8 + count; // of the operation, the types, and what is one number
      for (let k = 0; k < count; k++) {
        places.push(U[params + 3 + 2 * k]);
        const type = U[params + 4 + 2 * k];
        heaps.push(view(type));
        key = key * 10 + type;
      }
      const { shape, strides } = merged(params + 3 + 2 * count, dims, count);
      const [s, t] = strides.slice(-2);
      let fixed = 0; // operands that are one number for both inner loops
      for (let k = 1; k < count; k++) if (!s[k] && !t[k]) fixed |= 1 << k;
      key = key * 8 + (fixed >> 1);
      let run = made.get(key);
      if (!run) {
        const to = U[params + 4], from = operation === 0 ? U[params + 6] : -1;
        const inputs = ["a", "b", "c"].slice(0, count - 1);
        const all = ["o", ...inputs], still = all.filter((_, k) => (fixed >> k) & 1), walking = all.filter((x) => !still.includes(x));
        const row = `O[o] = ${stored(FORMULAS[operation], to, from)};`;
        run = compiled(key, [...all.map((x) => x.toUpperCase()), "p", "s", "t", "rows", "n"].join(), `
          let ${all.map((x, k) => `${x}0 = p[${k}]`).join()};
          const ${all.map((x, k) => `${x}s = s[${k}], ${x}t = t[${k}]`).join()};
          ${still.map((x) => `const ${x} = ${x.toUpperCase()}[${x}0];`).join(" ")}
          for (let j = 0; j < rows; j++) {
            let ${walking.map((x) => `${x}1 = ${x}0`).join()};
            for (let i = 0; i < n; i++) {
              const o = o1${inputs.filter((x) => walking.includes(x)).map((x) => `, ${x} = ${x.toUpperCase()}[${x}1]`).join("")};
              ${row}
              ${walking.map((x) => `${x}1 += ${x}t`).join("; ")};
            }
            ${walking.map((x) => `${x}0 += ${x}s`).join("; ")};
          }`);
      }
      const n = shape.pop(), rows = shape.pop();
      strides.length -= 2;
      const [O, A, B, C] = heaps;
      const visit = count === 2 ? (p) => run(O, A, p, s, t, rows, n)
        : count === 3 ? (p) => run(O, A, B, p, s, t, rows, n)
        : count === 4 ? (p) => run(O, A, B, C, p, s, t, rows, n) : (p) => run(O, p, s, t, rows, n);
      walk(shape, strides, places, visit);
      return HELPERS.isLost();
    },

    /** operation, out place, out type, in place, in type, kept dims, reduced dims, kept shape, strides, reduced shape, strides. */
    reduce() {
      const U = module.HEAPU32;
      const [operation, out, to, from, type, kept, dims] = U.subarray(params, params + 7);
      const key = `r${operation} ${to} ${type}`;
      let run = made.get(key);
      if (!run) {
        let [begin, step, end] = REDUCTIONS[operation];
        if (end === "sqrt(r)" && to !== F64) end = "sqrt(Math.fround(r) === Infinity ? Infinity : r)"; // as a float32 does
        run = compiled(key, "O, A, o, a0, rows, s, n, t, shape, strides, count", `
          let r = ${begin};
          const outer = shape.length, index = new Array(outer).fill(0);
          for (;;) {
            for (let j = 0, row = a0; j < rows; j++, row += s)
              for (let i = 0, at = row; i < n; i++, at += t) { const a = A[at]; ${step} }
            let d = outer - 1;
            for (; d >= 0; d--) {
              a0 += strides[d][0];
              if (++index[d] < shape[d]) break;
              a0 -= strides[d][0] * shape[d];
              index[d] = 0;
            }
            if (d < 0) break;
          }
          O[o] = ${stored(end, to, -1)};`);
      }
      const inner = merged(params + 7 + 2 * kept, dims, 1);
      const count = inner.shape.reduce((a, b) => a * b, 1);
      const n = inner.shape.pop(), rows = inner.shape.pop(), [t] = inner.strides.pop(), [s] = inner.strides.pop();
      const O = view(to), A = view(type), outer = merged(params + 7, kept, 1);
      let o = out;
      walk(outer.shape, outer.strides, [from], ([a]) => run(O, A, o++, a, rows, s, n, t, inner.shape, inner.strides, count));
      return HELPERS.isLost();
    },

    /** operation, out place, out type, in place, in type, dims, shape, strides in, strides out; along the last dimension. */
    scan() {
      const U = module.HEAPU32, [operation, out, to, from, type, dims] = U.subarray(params, params + 6);
      const [begin, step] = SCANS[operation];
      const run = compiled(`s${operation} ${to} ${type}`, "O, A, o, a0, n, so, sa", `
        let r = ${begin};
        for (let i = 0; i < n; i++, a0 += sa, o += so) { const a = A[a0]; ${step} O[o] = ${stored("r", to, -1)}; }`);
      const shape = [...U.subarray(params + 6, params + 6 + dims)];
      const strides = shape.map((_, d) => [U[params + 6 + dims + d], U[params + 6 + 2 * dims + d]]);
      const n = shape.pop(), [sa, so] = strides.pop(), O = view(to), A = view(type);
      walk(shape, strides, [from, out], ([a, o]) => run(O, A, o, a, n, so, sa));
      return HELPERS.isLost();
    },

    /** (place, type) of out, a and b; batch dims, m, n, k; strides of a: row, column; of b; batch shape, strides of a, of b. */
    matmul() {
      const U = module.HEAPU32;
      const [out, to, at, atype, bt, btype, dims, m, n, k, ar, ac, br, bc] = U.subarray(params, params + 14);
      const shape = [...U.subarray(params + 14, params + 14 + dims)];
      const strides = shape.map((_, d) => [U[params + 14 + dims + d], U[params + 14 + 2 * dims + d]]);
      const wide = to === F64 || to === I64, width = wide ? 4 : 8;
      const whole = to === F32 || to === BF16 || to === F16 || wide;
      const fast = whole && m > 1 && n >= width && m * n * k > 4096 && products(wide, n, k);
      let o = out, packed = -1;
      walk(shape, strides, [at, bt], ([a, b]) => {
        if (fast) {
          fast(view(to), o, a, ar, ac, b, br, bc, m, n, k, packed === b);
          packed = b;
        } else plain(view(to), o, view(atype), a, ar, ac, view(btype), b, br, bc, m, n, k);
        o += m * n;
      });
      if (scratch) module._free(scratch); // nothing stays that Python's memory does not know of: see moments.mjs
      scratch = room = 0;
      const round = to === BF16 ? HELPERS.bf16 : to === F16 ? HELPERS.f16 : null;
      if (round) for (let i = out, O = view(to); i < o; i++) O[i] = round(O[i]);
    },

    /** out place, type, in place, type, dims, logarithm?, shape, strides; along the last dimension, out contiguous. */
    softmax() {
      const U = module.HEAPU32, [out, to, from, type, dims, logs] = U.subarray(params, params + 6);
      const run = compiled(`softmax ${to} ${type} ${logs}`, "O, A, o, a, n, t", `
        let most = -Infinity, sum = 0;
        for (let i = 0, p = a; i < n; i++, p += t) { const v = A[p]; if (v > most || v !== v) most = v; }
        for (let i = 0, p = a; i < n; i++, p += t) { const e = exp(A[p] - most); sum += e; ${logs ? "" : "O[o + i] = e;"} }
        ${logs ? "const shift = log(sum);" : "const scale = 1 / sum;"}
        for (let i = 0, p = a; i < n; i++, p += t) O[o + i] = ${stored(logs ? "A[p] - most - shift" : "O[o + i] * scale", to, -1)};`);
      const shape = [...U.subarray(params + 6, params + 6 + dims)];
      const strides = shape.map((_, d) => [U[params + 6 + dims + d]]);
      const n = shape.pop(), [t] = strides.pop(), O = view(to), A = view(type);
      let o = out;
      walk(shape, strides, [from], ([a]) => { run(O, A, o, a, n, t); o += n; });
    },

    /** Gradient of softmax or its logarithm, all contiguous: (place, type) of out, gradient and output; rows, n, logarithm? */
    softmax_back() {
      const [out, to, g, gtype, y, ytype, rows, n, logs] = module.HEAPU32.subarray(params, params + 9);
      compiled(`softmax_back ${to} ${gtype} ${ytype} ${logs}`, "O, G, Y, o, g, y, rows, n", `
        for (let r = 0; r < rows; r++, o += n, g += n, y += n) {
          let sum = 0;
          for (let i = 0; i < n; i++) sum += G[g + i]${logs ? "" : " * Y[y + i]"};
          for (let i = 0; i < n; i++) O[o + i] = ${stored(logs ? "G[g + i] - exp(Y[y + i]) * sum" : "Y[y + i] * (G[g + i] - sum)", to, -1)};
        }`)(view(to), view(gtype), view(ytype), out, g, y, rows, n);
    },

    /** Norm rows, all contiguous: (place, type) of out and in, of weight and bias (place 0: none); place of the eps; place of the mean and the factor of each row, float64; rows, n, no mean? */
    norm() {
      const [out, to, from, type, w, wtype, b, btype, eps, kept, rows, n, root] = module.HEAPU32.subarray(params, params + 13);
      const scaled = `(A[a + i] - mean) * by${w ? " * W[w + i]" : ""}${b ? " + B[b + i]" : ""}`;
      compiled(`norm ${to} ${type} ${w && wtype + 1} ${b && btype + 1} ${root}`, "O, A, W, B, K, o, a, w, b, k, eps, rows, n", `
        for (let r = 0; r < rows; r++, o += n, a += n, k += 2) {
          let mean = 0, sum = 0;
          ${root ? "" : "for (let i = 0; i < n; i++) mean += A[a + i]; mean /= n;"}
          for (let i = 0; i < n; i++) { const far = A[a + i] - mean; sum += far * far; }
          const by = 1 / sqrt(sum / n + eps);
          K[k] = mean; K[k + 1] = by;
          for (let i = 0; i < n; i++) O[o + i] = ${stored(scaled, to, -1)};
        }`)(view(to), view(type), view(wtype), view(btype), module.HEAPF64, out, from, w, b, kept, module.HEAPF64[eps], rows, n);
    },

    /** Gradients of a norm, all contiguous: (place, type) of out, gradient, input and weight (place 0: none); places of those of weight and bias, float64; of what `norm` kept; rows, n, no mean? */
    norm_back() {
      const [out, to, g, gtype, x, xtype, w, wtype, dw, db, kept, rows, n, root] = module.HEAPU32.subarray(params, params + 14);
      const above = w ? "G[g + i] * W[w + i]" : "G[g + i]";
      compiled(`norm_back ${to} ${gtype} ${xtype} ${w && wtype + 1} ${root}`, "O, G, X, W, D, o, g, x, w, dw, db, k, rows, n", `
        for (let r = 0; r < rows; r++, o += n, g += n, x += n, k += 2) {
          const mean = D[k], by = D[k + 1];
          let first = 0, second = 0;
          for (let i = 0; i < n; i++) {
            const even = (X[x + i] - mean) * by, up = ${above};
            first += up; second += up * even;
            D[dw + i] += G[g + i] * even; D[db + i] += G[g + i];
          }
          first = ${root ? "0" : "first / n"}; second /= n;
          for (let i = 0; i < n; i++) {
            const even = (X[x + i] - mean) * by;
            O[o + i] = ${stored(`by * (${above} - first - even * second)`, to, -1)};
          }
        }`)(view(to), view(gtype), view(xtype), view(wtype), module.HEAPF64, out, g, x, w, dw, db, kept, rows, n);
    },

    /** Sort along the last dimension: values, indices (each contiguous), in, type, rows, n (in contiguous), descending? */
    sort() {
      const [values, indices, from, type, rows, n, descending] = module.HEAPU32.subarray(params, params + 7);
      const A = view(type), I = module.HEAPF64;
      const less = (a, b) => (a !== a ? (b !== b ? 0 : 1) : b !== b ? -1 : a - b);
      for (let r = 0; r < rows; r++) {
        const row = Array.from(A.subarray(from + r * n, from + (r + 1) * n)), order = row.map((_, i) => i);
        order.sort(descending ? (i, j) => less(row[j], row[i]) || i - j : (i, j) => less(row[i], row[j]) || i - j);
        order.forEach((i, at) => { A[values + r * n + at] = row[i]; I[indices + r * n + at] = i; });
      }
    },

    /** Add up index · stride of index tensors, checked: out (float64), count of elements, indices, then each place, size, stride. Returns -1, or the number of the index that is out of range, its value at `out`. */
    offsets() {
      const U = module.HEAPU32, I = module.HEAPF64, [out, n, count] = U.subarray(params, params + 3);
      for (let k = 0; k < count; k++) {
        const [place, size, stride] = U.subarray(params + 3 + 3 * k, params + 6 + 3 * k);
        for (let i = 0; i < n; i++) {
          const index = I[place + i];
          if (!(index >= -size && index < size)) { I[out] = index; return k; }
          const step = (index < 0 ? index + size : index) * stride;
          I[out + i] = k ? I[out + i] + step : step;
        }
      }
      return -1;
    },

    /** Between a tensor and its elements at offsets: mode (0 read, 1 write, 2 add), tensor place, type, other place, type, offsets place, offsets' dims, dims; shape, strides of the tensor, of the other, of the offsets. */
    pick() {
      const U = module.HEAPU32, I = module.HEAPF64, [mode, at, type, other, otype, offs, dims] = U.subarray(params, params + 7);
      const run = compiled(`p${mode} ${type} ${otype}`, "X, Y, I, p, s, t, rows, n", `
        let [x0, y0, i0] = p;
        for (let j = 0; j < rows; j++) {
          let x = x0, y = y0, i = i0;
          for (let k = 0; k < n; k++) {
            const to = x + I[i];
            ${mode === 0 ? `Y[y] = ${stored("X[to]", otype, -1)}` : mode === 1 ? `X[to] = ${stored("Y[y]", type, -1)}` : `X[to] = ${stored("X[to] + Y[y]", type, -1)}`};
            x += t[0]; y += t[1]; i += t[2];
          }
          x0 += s[0]; y0 += s[1]; i0 += s[2];
        }`);
      const { shape, strides } = merged(params + 7, dims, 3);
      const n = shape.pop(), rows = shape.pop(), t = strides.pop(), s = strides.pop(), X = view(type), Y = view(otype);
      walk(shape, strides, [at, other, offs], (p) => run(X, Y, I, p, s, t, rows, n));
    },

    /** Singular values: u (m, n), s (n), v (n, n, rows are directions), a (m, n), all float64 and contiguous, m ≥ n. */
    svd() {
      const [u, s, v, a, m, n] = module.HEAPU32.subarray(params, params + 6), H = module.HEAPF64;
      singular(H.subarray(a, a + m * n), m, n, H.subarray(u, u + m * n), H.subarray(s, s + n), H.subarray(v, v + n * n));
    },

    /** Q (m, n) and R (n, n) of a (m, n), float64 and contiguous; Q stands for a and is written over it. */
    qr() {
      const [a, r, m, n] = module.HEAPU32.subarray(params, params + 4), H = module.HEAPF64;
      for (let j = 0; j < n; j++) {
        // Twice, since once leaves a rest where columns are nearly alike.
        for (let again = 0; again < 2; again++)
          for (let k = 0; k < j; k++) {
            let dot = 0;
            for (let i = 0; i < m; i++) dot += H[a + i * n + k] * H[a + i * n + j];
            for (let i = 0; i < m; i++) H[a + i * n + j] -= dot * H[a + i * n + k];
            H[r + k * n + j] += dot;
          }
        let size = 0;
        for (let i = 0; i < m; i++) size += H[a + i * n + j] ** 2;
        size = Math.sqrt(size);
        H[r + j * n + j] = size;
        for (let i = 0; i < m; i++) H[a + i * n + j] /= size;
      }
    },

    /** One step of AdamW, all contiguous: type, n, places of parameter, gradient, both means (and of the largest); the numbers at `numbers`, in float64: 1 - lr · decay, 1 - beta1, beta2, 1 - beta2, root of the second correction, eps, step. */
    adamw() {
      const [type, n, p, g, m, v, numbers] = module.HEAPU32.subarray(params, params + 7), X = view(type);
      const [decay, rest1, beta2, rest2, root, eps, step] = module.HEAPF64.subarray(numbers, numbers + 7);
      const r = type === F64 ? (x) => x : Math.fround;
      compiled(`adamw ${type}`, "X, n, p, g, m, v, r, decay, rest1, beta2, rest2, root, eps, step", `
        for (let i = 0; i < n; i++) {
          const d = X[g + i], first = r(X[m + i] + r(rest1 * r(d - X[m + i])));
          const second = r(r(X[v + i] * beta2) + r(r(rest2 * d) * d));
          X[m + i] = first; X[v + i] = second;
          X[p + i] = r(r(X[p + i] * decay) - r(step * r(first / r(r(r(sqrt(second)) / root) + eps))));
        }`)(X, n, p, g, m, v, r, r(decay), r(rest1), r(beta2), r(rest2), r(root), r(eps), r(step));
    },

    /** Indices of what is not zero: out place (float64), in place, type, n; returns how many. */
    nonzero() {
      const [out, from, type, n] = module.HEAPU32.subarray(params, params + 4), A = view(type), I = module.HEAPF64;
      let found = 0;
      for (let i = 0; i < n; i++) if (A[from + i] !== 0) I[out + found++] = i;
      return found;
    },
  };
}

/** O (m, n) = A (m, k) @ B (k, n), summed in float64. */
function plain(O, o, A, a, ar, ac, B, b, br, bc, m, n, k) {
  const row = new Float64Array(n);
  for (let i = 0; i < m; i++, o += n) {
    if (bc === 1 || n > 4) {
      row.fill(0);
      for (let p = 0, x = a + i * ar, y = b; p < k; p++, x += ac, y += br) {
        const f = A[x];
        for (let j = 0, z = y; j < n; j++, z += bc) row[j] += f * B[z];
      }
      O.set(row, o);
    } else
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let p = 0, x = a + i * ar, y = b + j * bc; p < k; p++, x += ac, y += br) sum += A[x] * B[y];
        O[o + j] = sum;
      }
  }
}

/** Compile the product of four rows and 32 bytes of columns, for float32 and float64: {f32, f64}, or null.
 *
 * f(four places of rows, step of a column, place of b, step of its rows, place of c, step of its rows, k), in bytes.
 * Written as WebAssembly's own bytes, since it is one loop: a text of it and a compiler would be longer.
 */
function compiledTiles(memory) {
  const number = (value) => value < 128 ? [value] : [(value & 127) | 128, ...number(value >> 7)];
  const part = (id, ...bytes) => [id, ...number(bytes.flat().length), ...bytes.flat()];
  const list = (...items) => [items.length, ...items.flat()];
  const text = (value) => [value.length, ...[...value].map((c) => c.charCodeAt(0))];
  const get = (local) => [0x20, local], set = (local) => [0x21, local], simd = (code, ...more) => [0xfd, ...number(code), ...more];
  const [STEP, B, B_STEP, C, C_STEP, K, SUM, LEFT, RIGHT, SCALAR] = [4, 5, 6, 7, 8, 9, 10, 18, 19, 20];
  const body = (splat, align, add, mul) => {
    const rows = [0, 1, 2, 3], moved = (local, by) => [get(local), get(by), 0x6a, set(local)].flat();
    const sum = (r, half) => [get(SUM + 2 * r + half), get(SCALAR), get(half ? RIGHT : LEFT), simd(mul), simd(add), set(SUM + 2 * r + half)].flat();
    const code = [
      0x03, 0x40, // loop
      get(B), simd(0, 0, 0), set(LEFT), get(B), simd(0, 0, 16), set(RIGHT), moved(B, B_STEP),
      rows.map((r) => [get(r), simd(splat, align, 0), set(SCALAR), moved(r, STEP), sum(r, 0), sum(r, 1)]),
      get(K), 0x41, 1, 0x6b, 0x22, K, 0x0d, 0, 0x0b, // k - 1; again while it is not 0; end
      rows.map((r) => [get(C), get(SUM + 2 * r), simd(11, 0, 0), get(C), get(SUM + 2 * r + 1), simd(11, 0, 16), moved(C, C_STEP)]),
      0x0b,
    ].flat(4);
    const locals = [1, 11, 0x7b]; // eleven vectors
    return [...number(locals.length + code.length), ...locals, ...code];
  };
  const bytes = [
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...part(1, list([0x60, 10, ...new Array(10).fill(0x7f), 0])),
    ...part(2, list([...text("m"), ...text("m"), 2, 0, 0])),
    ...part(3, list([0], [0])),
    ...part(7, list([...text("f32"), 0, 0], [...text("f64"), 0, 1])),
    ...part(10, list(body(9, 2, 228, 230), body(10, 3, 240, 242))),
  ];
  try {
    return new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array(bytes)), { m: { m: memory } }).exports;
  } catch {
    return null; // an engine without vectors: products are then plain loops
  }
}

/** One-sided Jacobi: turn pairs of columns of `a` until all are at right angles; their lengths are the singular values. */
function singular(a, m, n, u, s, v) {
  const columns = Array.from({ length: n }, (_, j) => Float64Array.from({ length: m }, (_, i) => a[i * n + j]));
  const turns = Array.from({ length: n }, (_, j) => Float64Array.from({ length: n }, (_, i) => +(i === j)));
  for (let sweep = 0, moved = true; moved && sweep < 60; sweep++) {
    moved = false;
    for (let p = 0; p < n; p++)
      for (let q = p + 1; q < n; q++) {
        const x = columns[p], y = columns[q];
        let xx = 0, yy = 0, xy = 0;
        for (let i = 0; i < m; i++) { xx += x[i] * x[i]; yy += y[i] * y[i]; xy += x[i] * y[i]; }
        if (Math.abs(xy) <= 1e-15 * Math.sqrt(xx * yy)) continue;
        moved = true;
        const z = (yy - xx) / (2 * xy), t = Math.sign(z || 1) / (Math.abs(z) + Math.sqrt(1 + z * z));
        const c = 1 / Math.sqrt(1 + t * t), d = c * t;
        turn(x, y, c, d);
        turn(turns[p], turns[q], c, d);
      }
  }
  const sizes = columns.map((column) => Math.sqrt(column.reduce((sum, x) => sum + x * x, 0)));
  const order = sizes.map((_, j) => j).sort((i, j) => sizes[j] - sizes[i]);
  order.forEach((j, place) => {
    s[place] = sizes[j];
    for (let i = 0; i < m; i++) u[i * n + place] = sizes[j] > 0 ? columns[j][i] / sizes[j] : 0;
    v.set(turns[j], place * n);
  });
}

function turn(f, g, c, d) {
  for (let i = 0; i < f.length; i++) {
    const x = f[i], y = g[i];
    f[i] = c * x - d * y;
    g[i] = d * x + c * y;
  }
}
