"""What MkDocs draws the book with."""

import os

# Material announces MkDocs 2 as it is loaded; requirements.txt pins mkdocs below it.
os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
