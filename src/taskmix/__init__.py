"""taskmix learns to learn from a stream of small tasks whose kind changes without notice."""

__version__ = "0.1.0"
