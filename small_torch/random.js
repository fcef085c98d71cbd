// The random numbers of PyTorch on a CPU, from the same seeds.
//
// A generator is 628 unsigned integers in the memory of Pyodide, which Python makes: the 624 words of
// mt19937, how many of them are used up, whether a second normal number is kept, and that number as a
// float64. Each function takes the place of these integers, then the type, place and count of the numbers
// to be written: places are indices into the view of their type, as in kernels.js.

const WORDS = 624, USED = 624, KEPT = 625, SECOND = 626;
const F64 = 1, I64 = 2, I32 = 3, U8 = 4, BOOL = 5, BF16 = 6, F16 = 7, I16 = 8, I8 = 9;
const TWO_PI = Math.fround(2 * Math.PI);

const single = new Float32Array(1), bits = new Uint32Array(single.buffer);
const double = new Float64Array(1), halves = new Uint32Array(double.buffer);
const f32 = Math.fround;

/** a · b + c in float32, rounded once, as a processor's fused instruction does. */
const fused = (a, b, c) => f32(a * b + c);

/** The polynomial with these coefficients, highest power first, each step in float32. */
function polynomial(x, coefficients) {
  let sum = coefficients[0];
  for (let i = 1; i < coefficients.length; i++) sum = fused(sum, x, coefficients[i]);
  return sum;
}

const LOG = Float32Array.of(
  7.0376836292e-2, -1.151461031e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
  -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
);
const SIN = Float32Array.of(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1);
// A quarter of π in three parts, whose products with small whole numbers are exact.
const PI_QUARTER = Float32Array.of(-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8);
const COS = Float32Array.of(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2);

/** The logarithm in float32 by Cephes's polynomial, of 0 < x ≤ 1: PyTorch's to the bit where it has AVX2. */
function log32(x) {
  single[0] = x;
  let exponent = (bits[0] >>> 23) - 126;
  bits[0] = (bits[0] & 0x7fffff) | 0x3f000000;
  let m = single[0];
  if (m < f32(Math.SQRT1_2)) {
    exponent -= 1;
    m += m;
  }
  m -= 1;
  const square = f32(m * m);
  let y = f32(polynomial(m, LOG) * m);
  y = fused(y, square, f32(exponent * f32(-2.1219444e-4)));
  y = fused(square, -0.5, y);
  return fused(exponent, 0.693359375, f32(m + y));
}

/** Write r · cos(angle) and r · sin(angle) in float32, of 0 ≤ angle, by Cephes's polynomials. */
function polar32(r, angle, out, cosine, sine) {
  const octant = (Math.trunc(f32(angle * f32(1.27323954473516))) + 1) & ~1;
  let x = angle;
  for (let i = 0; i < 3; i++) x = fused(octant, PI_QUARTER[i], x);
  const square = f32(x * x);
  const c = f32(fused(f32(polynomial(square, COS) * square), square, f32(square * -0.5)) + 1);
  const s = fused(f32(polynomial(square, SIN) * square), x, x);
  const swap = octant & 2;
  out[cosine] = r * ((octant + 2) & 4 ? -1 : 1) * (swap ? s : c);
  out[sine] = r * (octant & 4 ? -1 : 1) * (swap ? c : s);
}

export default function random(module) {
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

  /** Return a function that draws the next 32 bits of the generator at `g`. */
  function words(g) {
    const U = module.HEAPU32;
    return () => {
      if (U[g + USED] === WORDS) {
        for (let i = 0; i < WORDS; i++) {
          const y = (U[g + i] & 0x80000000) | (U[g + ((i + 1) % WORDS)] & 0x7fffffff);
          U[g + i] = U[g + ((i + 397) % WORDS)] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
        }
        U[g + USED] = 0;
      }
      let y = U[g + U[g + USED]++];
      y ^= y >>> 11;
      y ^= (y << 7) & 0x9d2c5680;
      y ^= (y << 15) & 0xefc60000;
      return (y ^ (y >>> 18)) >>> 0;
    };
  }

  /** Return a function that draws from [0, 1): 24 bits of one word for a float32, 53 of two for a float64. */
  function uniforms(g, type) {
    const word = words(g);
    if (type === F64) return () => ((word() & 0x1fffff) * 2 ** 32 + word()) * 2 ** -53;
    return () => (word() & 0xffffff) * 2 ** -24;
  }

  return {
    seed(g, low) {
      const U = module.HEAPU32;
      U[g] = low;
      for (let i = 1; i < WORDS; i++) {
        const before = U[g + i - 1] ^ (U[g + i - 1] >>> 30);
        U[g + i] = Math.imul(before, 1812433253) + i;
      }
      U[g + USED] = WORDS;
      U[g + KEPT] = 0;
    },

    /** Numbers of [low, high). */
    uniform(g, type, at, n, low, high) {
      const draw = uniforms(g, type), out = view(type), round = type === F64 ? (x) => x : f32;
      const width = round(round(high) - round(low));
      for (let i = 0; i < n; i++) out[at + i] = draw() * width + round(low);
    },

    /** Normal numbers. From 16 on, eight pairs at a time, and the last 16 again where some are left over. */
    normal(g, type, at, n, mean, std) {
      const out = view(type), draw = uniforms(g, type);
      if (n < 16) {
        const U = module.HEAPU32, precise = uniforms(g, F64);
        for (let i = 0; i < n; i++) {
          let found;
          if (U[g + KEPT]) {
            halves.set(U.subarray(g + SECOND, g + SECOND + 2));
            found = double[0];
          } else {
            const angle = 2 * Math.PI * precise(), r = Math.sqrt(-2 * Math.log1p(-precise()));
            found = r * Math.cos(angle);
            double[0] = r * Math.sin(angle);
            U.set(halves, g + SECOND);
          }
          U[g + KEPT] ^= 1;
          out[at + i] = found * std + mean;
        }
        return;
      }
      const pairs = (begin) => {
        for (let i = begin; i < begin + 8; i++) {
          const u = 1 - out[i], v = out[i + 8];
          if (type === F64) {
            const r = Math.sqrt(-2 * Math.log(u));
            out[i] = r * Math.cos(2 * Math.PI * v) * std + mean;
            out[i + 8] = r * Math.sin(2 * Math.PI * v) * std + mean;
          } else {
            polar32(f32(Math.sqrt(f32(-2 * log32(u)))), f32(TWO_PI * v), out, i, i + 8);
            out[i] = fused(out[i], f32(std), f32(mean));
            out[i + 8] = fused(out[i + 8], f32(std), f32(mean));
          }
        }
      };
      const first = type === BF16 || type === F16 ? n - n % 16 : n;
      for (let i = at; i < at + first; i++) out[i] = draw();
      for (let i = at; i + 16 <= at + n; i += 16) pairs(i);
      if (n % 16) {
        for (let i = at + n - 16; i < at + n; i++) out[i] = draw();
        pairs(at + n - 16);
      }
    },

    /** Whole numbers of [low, high). */
    integers(g, type, at, n, low, high) {
      const word = words(g), out = view(type), range = high - low;
      for (let i = 0; i < n; i++) {
        // From 2 ** 28 on, PyTorch takes 64 bits.
        out[at + i] = low + (range < 2 ** 28 ? word() % range
          : Number(((BigInt(word()) << 32n) | BigInt(word())) % BigInt(range)));
      }
    },

    /** 0 to n - 1 in a random order. */
    permutation(g, type, at, n) {
      const word = words(g), out = view(type);
      for (let i = 0; i < n; i++) out[at + i] = i;
      for (let i = 0; i < n - 1; i++) {
        const other = at + i + (word() % (n - i));
        [out[at + i], out[other]] = [out[other], out[at + i]];
      }
    },

    /** 1 with probability p, otherwise 0. */
    bernoulli(g, type, at, n, p) {
      const draw = uniforms(g, F64), out = view(type);
      for (let i = 0; i < n; i++) out[at + i] = draw() < p ? 1 : 0;
    },

    /** Exponential numbers with this rate. */
    exponential(g, type, at, n, rate) {
      const draw = uniforms(g, F64), out = view(type);
      for (let i = 0; i < n; i++) out[at + i] = -Math.log1p(-draw()) / rate;
    },
  };
}
