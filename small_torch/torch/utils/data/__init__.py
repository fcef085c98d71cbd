"""Tensors handed out in batches."""

import torch
from torch._signatures import absent, lacks


class Dataset:
    """What has samples, each by its number."""

    def __getitem__(self, index):
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")


class TensorDataset(Dataset):
    """Samples of several tensors, along their first dimension."""

    def __init__(self, *tensors):
        if any(len(tensor) != len(tensors[0]) for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self):
        return len(self.tensors[0])


class Subset(Dataset):
    """Those samples of another that stand at the given numbers."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]

    def __len__(self):
        return len(self.indices)


def random_split(dataset, lengths, generator=None):
    """Deal the samples at random into parts of these lengths."""
    if abs(sum(lengths) - 1) < 1e-9 and len(dataset) != 1:
        sizes = [int(len(dataset) * share) for share in lengths]
        for at in range(len(dataset) - sum(sizes)):
            sizes[at % len(sizes)] += 1
        lengths = sizes
    if sum(lengths) != len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = torch.randperm(len(dataset), generator=generator).tolist()
    ends = [sum(lengths[: at + 1]) for at in range(len(lengths))]
    return [
        Subset(dataset, order[end - length : end])
        for end, length in zip(ends, lengths, strict=True)
    ]


def default_collate(batch):
    """Put samples together: tensors and numbers into tensors, sequences one by one."""
    first = batch[0]
    if isinstance(first, torch.Tensor):
        return torch.stack(batch)
    if isinstance(first, float):
        return torch.tensor(batch, dtype=torch.float64)
    if isinstance(first, int):
        return torch.tensor(batch)
    if isinstance(first, dict):
        return {key: default_collate([each[key] for each in batch]) for key in first}
    if isinstance(first, list | tuple):
        return [default_collate([*column]) for column in zip(*batch, strict=True)]
    return batch


def _seed(generator):
    return int(torch.empty((), dtype=torch.int64).random_(0, 2**52, generator=generator))


class DataLoader:
    """Hands out the samples of a data set in batches, in order or shuffled, as PyTorch draws the order."""

    def __init__(
        self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None,
        pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None, multiprocessing_context=None, generator=None,
        *, prefetch_factor=None, persistent_workers=False, pin_memory_device="", in_order=True,
    ):  # fmt: skip
        if sampler is not None or batch_sampler is not None:
            raise lacks("DataLoader with a sampler")
        if num_workers:
            raise lacks("DataLoader(num_workers=): a page has one process, and what is more")
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.shuffle, self.generator = bool(shuffle), generator
        self.collate_fn = collate_fn or (default_collate if batch_size else lambda sample: sample)

    def __iter__(self):
        _seed(self.generator)  # that of PyTorch's other processes
        order = range(len(self.dataset))
        if self.shuffle:
            chance = self.generator or torch.Generator().manual_seed(_seed(None))
            order = torch.randperm(len(self.dataset), generator=chance).tolist()
        size = self.batch_size
        if not size:
            yield from (self.collate_fn(self.dataset[at]) for at in order)
            return
        for at in range(0, len(order), size):
            chosen = order[at : at + size]
            if len(chosen) == size or not self.drop_last:
                yield self.collate_fn([self.dataset[each] for each in chosen])
        if self.shuffle:  # PyTorch draws once more, for the samples that an order leaves over: none
            torch.randperm(len(order), generator=chance)

    def __len__(self):
        count, size = len(self.dataset), self.batch_size or 1
        return count // size if self.drop_last else -(-count // size)


__getattr__ = absent("torch.utils.data", globals())
