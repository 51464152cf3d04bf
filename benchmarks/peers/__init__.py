"""The same work by other engines, each in its best form, on one thread."""
