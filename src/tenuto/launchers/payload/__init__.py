"""The payload's process: what a runner starts for a task or a command. It knows nothing of its supervisor."""
