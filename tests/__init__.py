"""The tests of the book."""
