"""What stands above a chapter that is taken away, as a notebook or as a script."""

import re

STORED = re.compile(r"[\w.-]+-[0-9a-f]{8,}\.pt\b")  # a stored file, whose name carries its digest
FETCHES = "load_state_dict_from_url"
SOURCE = re.compile(r"https?://[^\s\"']+/files/")


def heading(named: str, code: str, torch: str) -> str:
    """Return the heading of a page: its name, with a link, which torch is pinned, what its code loads."""
    text = f"*From the book **Attention, Executed**: {named}. Text CC BY 4.0, code MIT.*"
    if torch:
        text += (
            f"\n\n*Checked with PyTorch {torch}. Nothing is installed here: `torch.__version__` names "
            "yours, which may print another last digit.*"
        )
    if FETCHES in code and (names := dict.fromkeys(STORED.findall(code))):
        source = SOURCE.search(code)
        files = " and ".join(f"`{name}`" for name in names)
        origin = f" from {source[0]}" if source else ""
        text += (
            f"\n\n*The code loads {files}{origin} once. Without a "
            "network, put what it loads into the folder `checkpoints` below the one that "
            "`torch.hub.get_dir()` names.*"
        )
    return text
