"""Decides when each job runs: dependencies, tokens, slots, retries, completion.
Starts no process itself: launchers do.
"""
