"""One job, for every door: made, looked at, stopped, run again, removed, compared.
Knows jobs and their directories; experiments, services and searches are the doors' business.
"""
