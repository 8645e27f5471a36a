"""The runner's process: it starts one payload, watches it, and writes the last word on the attempt."""
