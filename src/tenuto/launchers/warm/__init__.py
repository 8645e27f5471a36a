"""The warm launcher: a parent process that has imported a task's modules forks a runner for each job."""
