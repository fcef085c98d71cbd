"""A file of the book, such as stored weights: the copy in this folder, or else the book's own.

Needs PyTorch and nothing else.
"""

import hashlib
from pathlib import Path

import torch

BOOK = "https://attention-executed.github.io/files/"


def book_file(name: str, sha256: str) -> Path:
    """Return the path of the file `name`, fetched from the book if it is not in this folder.

    Args:
        name: the file's name, without a folder.
        sha256: the digest that its bytes must have, in hexadecimal.

    Returns:
        The path, in the folder where Python runs.

    Raises:
        ValueError: the bytes have another digest; the message names the file and both.
        urllib.error.URLError: the file is not here, and the book cannot be reached.
    """
    path = Path(name)
    if not path.exists():
        torch.hub.download_url_to_file(BOOK + name, name, progress=False)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise ValueError(f"{name} must have the sha256 {sha256}, got {found}")
    return path
