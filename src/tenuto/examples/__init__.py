"""Experiments to start from. They use the public face of Tenuto only, as a user's would."""
