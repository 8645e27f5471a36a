"""`python -m tenuto` is `tenuto`."""

from tenuto.cli import main

main()
