"""The site of a project, as MkDocs reads its configuration: which extensions draw its pages, and where they lie."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from markdown import Markdown
from mkdocs.config import base
from mkdocs.config import config_options as options
from mkdocs.exceptions import ConfigurationError
from mkdocs.utils.yaml import get_yaml_loader, yaml_load

from literate.errors import Misread, PageError, name_of

CONFIGS = ("mkdocs.yml", "mkdocs.yaml")
BUILT_IN = [
    "toc",
    "tables",
    "fenced_code",
]  # what MkDocs loads before the extensions of its configuration
SNIPPETS = ("pymdownx.snippets", "literate.includes")


class Settings(base.Config):
    """What of a configuration the checker needs; MkDocs' own options read it."""

    docs_dir = options.Type(str, default="docs")
    markdown_extensions = options.MarkdownExtensions(builtins=BUILT_IN, default=[])
    mdx_configs = options.Private[dict]()


class Site:
    """The site that a configuration file describes."""

    def __init__(self, config: Path):
        self.root, settings = config.parent, Settings(config_file_path=str(config))
        try:
            loader = get_yaml_loader(config=settings)  # type: ignore[arg-type]
            with config.open("rb") as file:
                settings.load_dict(yaml_load(file, loader))
            _leave_out_missing(settings, config)
            failed, _ = settings.validate()
        except ConfigurationError as error:
            mark = getattr(error.__context__, "problem_mark", None)
            problem = getattr(error.__context__, "problem", None) or error
            raise PageError(config, Misread(mark.line + 1 if mark else 0, f"{problem}")) from None
        for name, refused in failed:
            said = str(refused).split("\n")  # an extension that cannot be loaded brings a traceback
            what = said[0] if len(said) == 1 else f"{said[0]} {said[-1]}"
            raise PageError(config, Misread(0, f"{name}: {what}"))
        self.docs = self.root / settings.docs_dir
        self.extensions: list[str] = settings.markdown_extensions
        self.settings: dict[str, dict] = settings.mdx_configs

    def markdown(self, settings: Mapping[str, dict] = MappingProxyType({})) -> Markdown:
        """Return the Markdown of the site, with other `settings` of some extensions."""
        configs = {name: self.settings.get(name, {}) for name in self.extensions}
        for name in configs.keys() & {*SNIPPETS}:
            base_path = configs[name].get("base_path", ["."])
            folders = [base_path] if isinstance(base_path, str | os.PathLike) else base_path
            # MkDocs is started in the root.
            configs[name] = configs[name] | {"base_path": [str(self.root / one) for one in folders]}
        for name in configs.keys() & settings.keys():
            configs[name] = configs[name] | settings[name]
        return Markdown(extensions=list(configs), extension_configs=configs)


class MissingExtension(UserWarning):
    """An extension of the site that is not installed where its pages are checked."""


def _leave_out_missing(settings: Settings, config: Path) -> None:
    """Take the extensions that are not installed out of the `settings`, and say so."""
    named = settings.markdown_extensions
    if not isinstance(named, dict | list):  # which MkDocs refuses
        return
    entries = [{name: one} for name, one in named.items()] if isinstance(named, dict) else named
    settings.markdown_extensions = []
    for entry in entries:
        name = entry if isinstance(entry, str) else next(iter(entry))
        if _is_installed(name):
            settings.markdown_extensions.append(entry)
        else:
            said = f"{name_of(config)}: pages are read without the extension {name}, which is not installed"
            warnings.warn(said, MissingExtension, stacklevel=2)


@lru_cache
def _is_installed(extension: str) -> bool:
    if extension in entry_points(group="markdown.extensions").names:
        return True
    try:
        return find_spec(extension.partition(":")[0]) is not None
    except ModuleNotFoundError:  # of a package around it
        return False


def site_of(root: Path) -> Site | None:
    """Return the site of the project at `root`, as its configuration was last saved; None where it has none."""
    config = next((root / name for name in CONFIGS if (root / name).exists()), None)
    return _site(config, config.stat().st_mtime_ns) if config else None


@lru_cache
def _site(config: Path, _saved: int) -> Site:
    return Site(config)


def markdown(root: Path) -> Markdown:
    """Return the Markdown of the site at `root`."""
    site = site_of(root)
    assert site, f"{root} has a site"
    return site.markdown()
