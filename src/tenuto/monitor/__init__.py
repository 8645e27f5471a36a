"""One window on all doors: the fields of jobs to show, and which jobs.
Sees a door only through its `source`.
"""
