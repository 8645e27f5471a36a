"""Where jobs are kept: layout, job directory, markers, locks, journal. Decides nothing about when to run."""
