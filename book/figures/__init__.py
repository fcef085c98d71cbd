"""The figures of the book. Each kind is a folder: its Python, and its style and script, if it has them."""


class FigureError(ValueError):
    """A text cannot be shown as asked: the message says what came and what was wanted."""
