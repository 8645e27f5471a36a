"""Jobs that a batch system runs: submitted in arrays, followed by one thread, found again after a crash."""
