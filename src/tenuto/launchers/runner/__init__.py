"""The program inside every job's process: a supervisor and, forked by it, the payload."""
