"""`tenuto completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = {
    "bash": 'eval "$(tenuto completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(tenuto completion zsh)"    # in ~/.zshrc',
    "fish": "tenuto completion fish | source     # in ~/.config/fish/config.fish",
}


@click.command(
    epilog="\b\nTo have it in every new shell:\n" + "\n".join(f"  {line}" for line in SHELLS.values())
)
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the code that lets a SHELL complete commands, options, jobs, runs and files of `tenuto`."""
    completion = get_completion_class(shell)
    assert completion is not None
    root = ctx.find_root().command
    click.echo(completion(root, {}, "tenuto", "_TENUTO_COMPLETE").source())
