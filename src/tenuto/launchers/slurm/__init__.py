"""Jobs that Slurm runs: submitted in arrays, followed by one poll for all, found again after a crash."""
