"""Random numbers from PyTorch's streams: what a generator remembers. random.js draws from it."""

import time
from array import array

STATE = 4 * 628  # bytes
streams = None  # what random.js exports; the core sets it before anything is drawn


class Generator:
    """A source of random numbers: the same seed gives the numbers that PyTorch draws on a CPU."""

    device = "cpu"

    def __init__(self, device="cpu"):
        if str(device) != "cpu":
            from torch._signatures import lacks

            raise lacks(f"a Generator on {device}")
        self._state = array("I", bytes(STATE))
        self._place = self._state.buffer_info()[0] // 4
        self.manual_seed(67280421310721)

    def manual_seed(self, seed):
        """Begin the stream of this seed, and return the generator."""
        if not isinstance(seed, int):
            kind = type(seed).__name__
            raise RuntimeError(f"manual_seed expected a long, but got {kind}")
        if not -(2**63) <= seed < 2**64:
            raise ValueError("Overflow when unpacking long long")
        self._seed = seed % 2**64
        streams.seed(self._place, self._seed % 2**32)
        return self

    def seed(self):
        """Begin a stream that nobody can foresee, and return its seed."""
        return self.manual_seed(time.time_ns() % 2**53).initial_seed()

    def initial_seed(self):
        """Return the seed with which the stream began."""
        return self._seed

    def get_state(self):
        """Return what the generator remembers, as bytes: fewer than PyTorch's, and for `set_state` alone."""
        from torch import tensor, uint8

        held = self._state.tobytes() + self._seed.to_bytes(8, "little")
        return tensor(list(held), dtype=uint8)

    def set_state(self, state):
        """Go on from what `get_state` returned, and return the generator."""
        if str(getattr(state, "dtype", None)) != "torch.uint8":
            raise TypeError("RNG state must be a torch.ByteTensor")
        held = bytes(state.flatten().tolist())
        if len(held) != STATE + 8:
            raise RuntimeError("RNG state is wrong size")
        self._state[:] = array("I", held[:STATE])
        self._seed = int.from_bytes(held[STATE:], "little")
        return self

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        from torch._signatures import unknown

        raise unknown(f"torch.Generator.{name}", name, dir(type(self)))

    def draw(self, what, code, place, count, *arguments):
        """Fill `count` numbers at `place` with what random.js names; `code` says their dtype."""
        getattr(streams, what)(self._place, code, place, count, *arguments)
