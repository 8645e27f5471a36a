"""Experiments to start from. They use the public names of Tenuto only, as a user's would."""
