"""Door 1: experiments."""
