"""Every number in the README comes from a command here: `python -m benchmarks.NAME`."""
