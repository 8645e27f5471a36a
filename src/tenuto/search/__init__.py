"""Door 3: searches. A sampler proposes candidates, jobs evaluate them, an archive keeps the best.
Every job of a search imports the script that names these, so each is loaded when it is first asked for.
"""

from typing import TYPE_CHECKING

from tenuto.errors import CapReached, GitError, SearchDiffers, SearchError, SearchInJob
from tenuto.light import on_demand

if TYPE_CHECKING:
    from tenuto.compat.loreley import EvolutionScheduler, JobScheduler, MapElitesSampler
    from tenuto.search.archive import Archive, Elite, Verdict
    from tenuto.search.evolution import Evolution
    from tenuto.search.map_elites import Gaussian, IsoLine, MapElites, Mixed
    from tenuto.search.optuna_sampler import OptunaSampler
    from tenuto.search.outcome import Outcome
    from tenuto.search.plain_samplers import GridSearch, RandomSearch
    from tenuto.search.programs import Repository
    from tenuto.search.proposals import Candidate, Proposal
    from tenuto.search.pruning import Halving, Median
    from tenuto.search.reporter import SearchResult
    from tenuto.search.ribs_sampler import RibsSampler
    from tenuto.search.spaces import Choice, Integer, Real, Sub
    from tenuto.search.study import Study

_ON_DEMAND = {
    "Archive": "archive",
    "Candidate": "proposals",
    "Choice": "spaces",
    "Elite": "archive",
    "Evolution": "evolution",
    "Gaussian": "map_elites",
    "GridSearch": "plain_samplers",
    "Halving": "pruning",
    "Integer": "spaces",
    "IsoLine": "map_elites",
    "MapElites": "map_elites",
    "Median": "pruning",
    "Mixed": "map_elites",
    "OptunaSampler": "optuna_sampler",
    "Outcome": "outcome",
    "Proposal": "proposals",
    "RandomSearch": "plain_samplers",
    "Real": "spaces",
    "Repository": "programs",
    "RibsSampler": "ribs_sampler",
    "SearchResult": "reporter",
    "Study": "study",
    "Sub": "spaces",
    "Verdict": "archive",
}

__all__ = [
    "Archive",
    "Candidate",
    "CapReached",
    "Choice",
    "Elite",
    "Evolution",
    "EvolutionScheduler",
    "Gaussian",
    "GitError",
    "GridSearch",
    "Halving",
    "Integer",
    "IsoLine",
    "JobScheduler",
    "MapElites",
    "MapElitesSampler",
    "Median",
    "Mixed",
    "OptunaSampler",
    "Outcome",
    "Proposal",
    "RandomSearch",
    "Real",
    "Repository",
    "RibsSampler",
    "SearchDiffers",
    "SearchError",
    "SearchInJob",
    "SearchResult",
    "Study",
    "Sub",
    "Verdict",
]

_LORELEY = dict.fromkeys(("EvolutionScheduler", "JobScheduler", "MapElitesSampler"), "tenuto.compat.loreley")
__getattr__, __dir__ = on_demand(
    __name__, {name: f"{__name__}.{at}" for name, at in _ON_DEMAND.items()} | _LORELEY
)
