"""One job, for every door: made, looked at, stopped, run again, removed, compared.
Knows jobs and their directories; the doors know experiments, services and searches.
"""
