"""The demo: a year of real flights through one pipeline, on two clusters, checked row by row. `make demo` runs it."""
