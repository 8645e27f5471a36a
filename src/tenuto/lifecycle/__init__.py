"""The course of a job: states, transitions, events. Pure; imports nothing of Tenuto but `errors`."""
