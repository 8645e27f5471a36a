"""Hooks of an experiment: each is asked before a task is submitted, and may change or refuse it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tenuto.errors import SubmissionRefused, SubmitHookError
from tenuto.tasks.base import class_name
from tenuto.tasks.ports import Submission


class SubmitHook:
    """Asked at each `submit()`, in the order the hooks were given; override `before_submit`."""

    def before_submit(self, task: Any, submission: Submission) -> Submission | None:
        """What to make of a submission: another one, as in ``submission._replace(launcher=...)``, or None.

        The task is sealed: how it is run can be changed, not what it is. To refuse it, raise
        `SubmissionRefused` with the reason.
        """
        return None


def ask_hooks(hooks: Iterable[SubmitHook], task: Any, submission: Submission) -> Submission:
    """The submission that all hooks agree to; their errors name the hook and the task."""
    for hook in hooks:
        name, what = type(hook).__name__, class_name(task)
        try:
            changed = hook.before_submit(task, submission)
        except SubmissionRefused as refused:
            raise SubmissionRefused(f"{name} refuses {what}: {refused}") from refused
        except Exception as error:
            raise SubmitHookError(
                f"{name}.before_submit failed for {what} ({type(error).__name__}: {error}); "
                f"the task was not submitted"
            ) from error
        if changed is not None:
            if not isinstance(changed, Submission):
                raise SubmitHookError(
                    f"{name}.before_submit returned {type(changed).__name__} for {what}: "
                    f"return the submission, changed by its _replace(), or None"
                )
            submission = changed
    return submission
