"""The words of a marker's flags that several rooms know.
Kept apart from `markers`, whose imports the process of every task would pay for.
"""

RESULT_NOT_KEPT = "result_not_kept"
"""The task returned something that cannot be kept."""
STORED_RESULT_LIMIT = 256 << 20
"""The bytes of the largest result that is kept, and read again."""
