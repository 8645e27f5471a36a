"""The text of retry rules: ``"memory: mem*2 to 32G; failed: 1 after 30s"``, read, checked and written.
Loaded when the first task has one; `scheduler.decisions` decides by them.

    rules = rule { ";" rule }      rule = cause ":" [ count ] [ need "*" factor "to" limit ] [ "after" time ]
    cause = "memory" | "timeout" | "lost" | "failed"                      need = "mem" | "duration"
"""

from __future__ import annotations

import logging
import math
from functools import cache
from statistics import median
from typing import Any

from tenuto.errors import RequirementError
from tenuto.jobs.nearest import newest
from tenuto.launchers.protocols import Launcher
from tenuto.launchers.requirements import LONGEST, RequirementReader, refuse, size_text, time_text
from tenuto.scheduler.decisions import Allowance, Cause, Growth, RetryRules, Rule
from tenuto.scheduler.jobs import held
from tenuto.workspace.layout import Layout
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.ports import Files

logger = logging.getLogger("tenuto.jobs")

MOST_COUNT = 1000
MOST_LEARNED = 200
"""Done jobs that are looked at to learn what a class needs."""
EXAMPLE = "memory: mem*2 to 32G; timeout: duration*2 to 8h; lost: 3; failed: 1 after 30s"
_LEAST_LEARNED = {"memory_bytes": 256 << 20, "duration_s": 60.0}
_NEEDS = {"mem": "memory_bytes", "duration": "duration_s"}


def read_rules(text: Any, said: str) -> RetryRules:
    """The rules of a text; a `RequirementError` shows where it breaks. `said`: where the text stands."""
    if not isinstance(text, str):
        raise RequirementError(f'{said} is a text, such as "{EXAMPLE}", not {text!r:.60}', "", 0)
    try:
        if len(text) > LONGEST:
            refuse(text[:LONGEST], 0, f"the rules are longer than {LONGEST} characters")
        return _RuleReader(text).rules()
    except RequirementError as error:
        raise RequirementError(f"{said} cannot be read:\n{error}", error.text, error.position) from None


def check_growth(rules: RetryRules, needs: Allowance, said: str) -> None:
    """Raises `RequirementError` for a growth that has nothing to begin with, or nowhere to go.

    `needs`: what the first attempt may use; `said`: where the rules stand.
    """
    for cause in Cause:
        rule = rules.rule(cause)
        if rule is None or rule.growth is None:
            continue
        begins = getattr(needs, rule.growth.need)
        told = f"{said}: {cause.value}: {written(rule)} cannot grow"
        if begins is None:
            is_memory = rule.growth.need == _NEEDS["mem"]
            word, example = ("memory", "cpu(mem=4G)") if is_memory else ("duration", "duration=1h")
            told = f'{told}: the job has no limit of its {word} yet; give it one, as in requires="{example}"'
            raise RequirementError(told, "", 0)
        if begins >= rule.growth.most:
            told = (
                f"{told}: the job begins with {amount(rule.growth.need, begins)}; raise the bound behind 'to'"
            )
            raise RequirementError(told, "", 0)


def held_rules(rules: RetryRules, launcher: Launcher, name: str) -> RetryRules:
    """The rules, none of which grows beyond what the launcher can give; of `name`, for a warning."""
    for cause in Cause:
        rule = rules.rule(cause)
        if rule is None or rule.growth is None:
            continue
        need, most = rule.growth.need, rule.growth.most
        asked = Allowance(int(most)) if need == _NEEDS["mem"] else Allowance(duration_s=most)
        held_to = getattr(held(launcher, asked), need)
        if held_to < most:
            told = f"{name}: {cause.value}: {written(rule)} is limited to {amount(need, held_to)}"
            _warn_once(f"{told}, the most that a partition of {launcher.name} has")
            growth = rule.growth._replace(most=held_to)
            rules = rules._replace(**{cause.value: rule._replace(growth=growth)})
    return rules


@cache
def _warn_once(told: str) -> None:
    """A sweep has a thousand jobs with the same rules."""
    logger.warning("%s", told)


def needs_used(files: Files, layout: Layout, task_id: str) -> Allowance:
    """The median use of the last done jobs of a task, and a third more."""
    done = [
        read_markers(files, layout.job(*key)).done for key in newest(files, layout, task_id)[:MOST_LEARNED]
    ]
    used = [marker.usage for marker in done if isinstance(marker, Marker)]
    memory = [one["max_rss_bytes"] for one in used if one.get("max_rss_bytes")]
    lasted = [one["wall_s"] for one in used if one.get("wall_s")]
    return Allowance(
        math.ceil(median(memory) * 4 / 3) if memory else None, median(lasted) * 4 / 3 if lasted else None
    )


def begun_with(rules: RetryRules, needs: Allowance, used: Allowance) -> Allowance:
    """The needs of a first attempt, where they may grow: the usual use, but never beyond the bound.

    A need as small as most machines have it is never cut: a job that took 20 ms may take a second next time.
    """
    growths = [rule.growth for cause in Cause if (rule := rules.rule(cause)) is not None and rule.growth]
    for growth in growths:
        enough = getattr(used, growth.need)
        if enough is not None:
            asked = min(getattr(needs, growth.need), _LEAST_LEARNED[growth.need])
            needs = needs._replace(**{growth.need: type(enough)(max(min(enough, growth.most), asked))})
    return needs


def written(rule: Rule) -> str:
    """A rule as the language writes it."""
    said = [] if rule.further is None else [str(rule.further)]
    growth = rule.growth
    if growth is not None:
        word = next(word for word, need in _NEEDS.items() if need == growth.need)
        said.append(f"{word}*{growth.factor:g} to {amount(growth.need, growth.most)}")
    if rule.after_s:
        said.append(f"after {time_text(rule.after_s)}")
    return " ".join(said)


def amount(need: str, value: float) -> str:
    """A need as the language writes it."""
    return size_text(int(value)) if need == _NEEDS["mem"] else time_text(value)


class _RuleReader(RequirementReader):
    """Reads the rules from left to right."""

    def rules(self) -> RetryRules:
        causes = [cause.value for cause in Cause]
        found: dict[str, Rule] = {}
        while True:
            cause = self.next.text
            if cause not in causes:
                self.refuse(f"expected a cause: {', '.join(causes)}")
            if cause in found:
                self.refuse(f"{cause} said twice")
            self.take()
            self.expect(":", f"expected ':', as in {cause}: 2")
            found[cause] = self._rule(Cause(cause))
            if self.next.text != ";":
                break
            self.take()
        if self.next.kind != "end":
            self.refuse("expected ';' or the end")
        return RetryRules(**found)

    def _rule(self, cause: Cause) -> Rule:
        begin, further, growth, after_s = self.next, None, None, 0.0
        if self.next.kind == "number":
            if not self.next.text.isdecimal() or int(self.next.text) > MOST_COUNT:
                self.refuse(f"expected an integer from 0 to {MOST_COUNT}")
            further = int(self.take().text)
        if self.next.text in _NEEDS:
            growth = self._growth(cause)
        if further is None and growth is None:
            self.refuse("expected a number of further attempts, or a need that grows: mem*2 to 32G", begin)
        if self.next.text == "after":
            self.take()
            after_s = self.time()
        return Rule(further, growth, after_s)

    def _growth(self, cause: Cause) -> Growth:
        if cause is Cause.LOST:
            self.refuse("a job that was lost does not grow: what it needs was not the cause")
        word = self.take().text
        self.expect("*", f"expected '*' and a factor, as in {word}*2")
        at = self.next
        factor = float(self.number("a factor, such as 2"))
        if not 1 < factor <= MOST_COUNT:
            self.refuse(f"expected a factor of more than 1 and at most {MOST_COUNT}", at)
        example = "32G" if word == "mem" else "8h"
        self.expect("to", f"expected 'to' and a bound, as in {word}*{factor:g} to {example}")
        most = float(self.size()) if word == "mem" else self.time()
        return Growth(_NEEDS[word], factor, most)
