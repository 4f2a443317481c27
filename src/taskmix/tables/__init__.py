"""From rows of a table to tasks, and back: reading, preparing, rivals, results."""
