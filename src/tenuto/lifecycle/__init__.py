"""What can happen to a job: states, transitions, events. Pure; imports nothing of Tenuto but `errors`."""
