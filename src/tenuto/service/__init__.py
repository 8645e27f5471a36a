"""Door 2, the job service: uploads with a `run.sh` come in over HTTP, and ZIPs of results go out.
Knows no other door; jobs run through the scheduler, like those of every door.
"""
