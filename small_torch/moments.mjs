// Python's memory as it was at several moments of a page: where a block has changed, the page goes on from before it.
//
// All that Python knows lies in one stretch of memory: names, tensors, classes, how far a stream of random numbers has
// come. A copy of it between two blocks is the page at that moment, whatever a later block changes in place, and to
// write it back takes as long as to copy it. Two things must hold: no call of Python is on its way, and Python keeps no
// object of JavaScript that it did not have then (`page.py` takes the kernels once, and keeps them).

const PART = 1024; // integers of 32 bits, which are copied together where one of them has changed
const MOST = 64 * 2 ** 20; // bytes that differ from one moment to the next, of all moments together
const LARGE = 256 * 2 ** 20; // bytes of a memory of which nothing is kept

export default function moments(module) {
  let kept = []; // { ran, parts, own }: the steps that had run, the memory, how many bytes are no earlier moment's
  let ran; // the steps that have run by now, each as a text; none where nobody knows
  let parts = []; // the memory as it was last taken or written back

  const isBegun = (steps, by) => by && by.length < steps.length && by.every((step, at) => step === steps[at]);

  /** The memory in parts, and how many bytes of it have changed; what has not is shared with `parts`. */
  function taken() {
    const now = module.HEAP32, found = [];
    let changed = 0;
    for (let from = 0; from < now.length; from += PART) {
      const before = parts[found.length];
      let i = before ? 0 : -1;
      while (i >= 0 && i < PART && before[i] === now[from + i]) i++;
      if (i < PART) changed += 4 * PART;
      found.push(i < PART ? now.slice(from, from + PART) : before);
    }
    return [found, changed];
  }

  return {
    /** Go to where most of `steps` but the last have run, and return how many; -1 where no such moment is kept. */
    goTo(steps) {
      const there = kept.filter((moment) => isBegun(steps, moment.ran));
      const best = there.reduce((a, b) => (b.ran.length >= a.ran.length ? b : a), { ran: [] });
      if (isBegun(steps, ran) && ran.length >= best.ran.length) return ran.length;
      if (!best.parts) return -1;
      best.parts.forEach((part, at) => module.HEAP32.set(part, at * PART));
      module.HEAP32.fill(0, best.parts.length * PART);
      [ran, parts] = [best.ran, best.parts];
      return ran.length;
    },

    /** Forget all moments: a page begins. */
    begin() { [kept, ran, parts] = [[], [], []]; },

    /** Say which steps have run by now; none where that is not known. */
    stand(steps) { ran = steps; },

    /** Keep this moment. The first stays; of the others the oldest go, where it is too much. */
    keep() {
      if (module.HEAPU8.length > LARGE || kept.some((moment) => moment.ran.join("\0") === ran.join("\0"))) return;
      let own;
      [parts, own] = taken();
      kept.push({ ran, parts, own });
      const room = () => kept.slice(1).reduce((sum, moment) => sum + moment.own, 0) <= MOST;
      while (kept.length > 2 && !room()) kept.splice(1, 1);
    },
  };
}
