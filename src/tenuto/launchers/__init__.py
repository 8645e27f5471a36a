"""How a job runs: launchers start a job's runner; the runner, inside the job, does the rest."""
