"""A node: executes the payloads of servers as jobs of the scheduler.
Knows no quota and no user's rights; those are the server's.
"""
