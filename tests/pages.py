"""The pages of the book, read once for all tests."""

from literate.page import pages, read
from tools.mutants import ROOT

PAGES = [read(path) for path in pages(ROOT)]
RUNNING = [page for page in PAGES if page.blocks]
