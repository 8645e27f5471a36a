"""Experiments to start from. They use the public face of Tenuto only, as anybody's would."""
