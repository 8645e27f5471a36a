"""Door 1: experiments, a researcher's way in."""
