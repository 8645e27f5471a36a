"""One window on all doors: what is shown of jobs, and which of them.
Sees a door only through its `source`.
"""
