"""Where a page leads on other hosts, when a reader clicks: each address follows from the repository.

`repository` is `owner/name` on GitHub, which `mkdocs.yml` says once, under `extra`.
"""

from urllib.parse import urlencode

from literate.record import Record

GITHUB = "https://github.com"
COLAB = "https://colab.research.google.com/github"
SOURCES, PUBLISHED = "main", "gh-pages"  # the branches that hold the sources, and the built site
FORM = "wrong-number.yml"  # in .github/ISSUE_TEMPLATE; the names below are its fields


def colab(repository: str, notebook: str) -> str:
    """Return where Colab opens a notebook; `notebook` is its path in the built site."""
    return f"{COLAB}/{repository}/blob/{PUBLISHED}/{notebook}"


def edit(repository: str, path: str) -> str:
    """Return where GitHub edits a file; `path` is its path in the repository. A notebook is shown."""
    verb = "blob" if path.endswith(".ipynb") else "edit"
    return f"{GITHUB}/{repository}/{verb}/{SOURCES}/{path}"


def shown(repository: str, path: str) -> str:
    """Return where GitHub shows a file; `path` is its path in the repository."""
    return f"{GITHUB}/{repository}/blob/{SOURCES}/{path}"


def report(repository: str, source: str, record: Record | None) -> str:
    """Return where GitHub opens a form on a wrong number, with what is known of the page filled in."""
    lab = source.endswith(".ipynb")
    versions = "those that the lab prints" if lab else "the page was not checked"
    if record:
        versions = f"PyTorch {record.torch}, Python {record.python}, {record.platform}"
        versions += f", checked on {record.date}"
    known = {"template": FORM, "page": f"docs/{source}", "versions": versions}
    return f"{GITHUB}/{repository}/issues/new?{urlencode(known)}"
