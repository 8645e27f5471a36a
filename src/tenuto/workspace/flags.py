"""The words of a marker's flags that several rooms know.
Kept apart from `markers`, whose imports the process of every task would pay for.
"""

RESULT_NOT_KEPT = "result_not_kept"
"""The task returned something that cannot be kept."""
