"""The book's files, by PyTorch's call."""

from ._load import load_state_dict_from_url as load_state_dict_from_url
