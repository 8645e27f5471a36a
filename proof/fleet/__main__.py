"""`python -m proof.fleet SEED SECONDS [BUG]`: one play, told as one line of JSON."""

from proof.fleet.stage import main

main()
