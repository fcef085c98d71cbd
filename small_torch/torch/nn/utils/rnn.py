"""Sequences of different lengths in one tensor."""


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Put sequences (length, …) into one tensor, each filled up to the longest."""
    longest, rest = max(len(each) for each in sequences), sequences[0].shape[1:]
    made = sequences[0].new_full((len(sequences), longest, *rest), padding_value)
    for row, each in zip(made, sequences, strict=True):
        (row[: len(each)] if padding_side == "right" else row[longest - len(each) :]).copy_(each)
    return made if batch_first else made.transpose(0, 1)
