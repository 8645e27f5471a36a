"""Tenuto: experiments, job services and searches on one job lifecycle.
The public names: its names are frozen by a test; all others may change.

Names that most programs do not need are imported when they are first asked for.
"""

from typing import TYPE_CHECKING

from tenuto.errors import (
    DefaultChanged,
    DirtyGitError,
    ExperimentLocked,
    FailedExperiment,
    GracefulExperimentExit,
    GracefulTimeout,
    InvalidOption,
    InvalidValue,
    LauncherNotFound,
    NoResult,
    PortTaken,
    RequirementError,
    ServiceError,
    SubmissionRefused,
    TaskCancelled,
    TenutoError,
    TokenError,
)
from tenuto.light import on_demand
from tenuto.tasks import (
    STDERR,
    STDOUT,
    Choices,
    CommandTask,
    Config,
    Constant,
    DataPath,
    InputFile,
    LightweightTask,
    Meta,
    Option,
    Output,
    Param,
    PathGenerator,
    Prepare,
    ResumableTask,
    Task,
    cache,
    copyconfig,
    deprecate,
    field,
    former_identity,
    help,
    identity,
    initializer,
    input_file,
    param_group,
    partial,
    pathgenerator,
    sealed_set,
    setmeta,
    stop_tags,
    tag,
    tags,
    tagspath,
)

if TYPE_CHECKING:
    from tenuto.catalogue import Catalogue
    from tenuto.client import Client
    from tenuto.experiments.checked_arguments import RunMode
    from tenuto.experiments.environment import DirtyGitAction
    from tenuto.experiments.experiment import experiment
    from tenuto.experiments.process_service import ProcessService, Service, ServiceState
    from tenuto.experiments.run_info import load_xp_info
    from tenuto.experiments.script_options import options, sweep
    from tenuto.experiments.submissions import SubmitHook
    from tenuto.experiments.web_service import WebService
    from tenuto.experiments.workspace import Workspace
    from tenuto.jobs.directories import from_task_dir
    from tenuto.launchers.cluster.dialect import ClusterOptions
    from tenuto.launchers.cluster.dialects.slurm import SlurmOptions
    from tenuto.launchers.cluster.launcher import ClusterLauncher, SlurmLauncher
    from tenuto.launchers.nodes import nodes
    from tenuto.launchers.requirements import Alternative, Gpu, Gpus, Host, Match, Requirement
    from tenuto.launchers.selection import find_launcher
    from tenuto.launchers.spawn import SpawnLauncher
    from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
    from tenuto.scheduler.jobs import Job
    from tenuto.scheduler.listeners import Listener
    from tenuto.scheduler.loop import keep_loops_free
    from tenuto.scheduler.owners import PlainOwner
    from tenuto.scheduler.scheduler import Scheduler, WaitsFor
    from tenuto.scheduler.tokens import CounterToken
    from tenuto.scheduler.workers import OutputKey
    from tenuto.tasks.documentation import describe_config
    from tenuto.tasks.explain import explain
    from tenuto.tasks.functions import task
    from tenuto.tasks.grid import grid
    from tenuto.tasks.progress import log_metrics, progress, tqdm
    from tenuto.tasks.serialization import state_dict
    from tenuto.tasks.stored_configs import deserialize, from_state_dict, load, save, serialize
    from tenuto.version import __version__ as __version__

_ON_DEMAND = {
    "task": "tenuto.tasks.functions",
    "sweep": "tenuto.experiments.script_options",
    "options": "tenuto.experiments.script_options",
    "Alternative": "tenuto.launchers.requirements",
    "CounterToken": "tenuto.scheduler.tokens",
    "DirtyGitAction": "tenuto.experiments.environment",
    "Gpu": "tenuto.launchers.requirements",
    "Gpus": "tenuto.launchers.requirements",
    "Catalogue": "tenuto.catalogue",
    "Client": "tenuto.client",
    "Host": "tenuto.launchers.requirements",
    "Job": "tenuto.scheduler.jobs",
    "JobFailureStatus": "tenuto.lifecycle.states",
    "JobState": "tenuto.lifecycle.states",
    "Listener": "tenuto.scheduler.listeners",
    "Match": "tenuto.launchers.requirements",
    "OutputKey": "tenuto.scheduler.workers",
    "PlainOwner": "tenuto.scheduler.owners",
    "ProcessService": "tenuto.experiments.process_service",
    "Requirement": "tenuto.launchers.requirements",
    "RunMode": "tenuto.experiments.checked_arguments",
    "Service": "tenuto.experiments.process_service",
    "ServiceState": "tenuto.experiments.process_service",
    "Scheduler": "tenuto.scheduler.scheduler",
    "ClusterLauncher": "tenuto.launchers.cluster.launcher",
    "ClusterOptions": "tenuto.launchers.cluster.dialect",
    "SlurmLauncher": "tenuto.launchers.cluster.launcher",
    "SlurmOptions": "tenuto.launchers.cluster.dialects.slurm",
    "SpawnLauncher": "tenuto.launchers.spawn",
    "SubmitHook": "tenuto.experiments.submissions",
    "TransientMode": "tenuto.lifecycle.states",
    "WaitsFor": "tenuto.scheduler.scheduler",
    "WebService": "tenuto.experiments.web_service",
    "Workspace": "tenuto.experiments.workspace",
    "describe_config": "tenuto.tasks.documentation",
    "deserialize": "tenuto.tasks.stored_configs",
    "experiment": "tenuto.experiments.experiment",
    "explain": "tenuto.tasks.explain",
    "find_launcher": "tenuto.launchers.selection",
    "from_state_dict": "tenuto.tasks.stored_configs",
    "from_task_dir": "tenuto.jobs.directories",
    "grid": "tenuto.tasks.grid",
    "keep_loops_free": "tenuto.scheduler.loop",
    "load": "tenuto.tasks.stored_configs",
    "load_xp_info": "tenuto.experiments.run_info",
    "log_metrics": "tenuto.tasks.progress",
    "nodes": "tenuto.launchers.nodes",
    "progress": "tenuto.tasks.progress",
    "save": "tenuto.tasks.stored_configs",
    "serialize": "tenuto.tasks.stored_configs",
    "state_dict": "tenuto.tasks.serialization",
    "tqdm": "tenuto.tasks.progress",
    "__version__": "tenuto.version",
}

__all__ = [
    "STDERR",
    "STDOUT",
    "Alternative",
    "Catalogue",
    "Choices",
    "Client",
    "ClusterLauncher",
    "ClusterOptions",
    "CommandTask",
    "Config",
    "Constant",
    "CounterToken",
    "DataPath",
    "DefaultChanged",
    "DirtyGitAction",
    "DirtyGitError",
    "ExperimentLocked",
    "FailedExperiment",
    "Gpu",
    "Gpus",
    "GracefulExperimentExit",
    "GracefulTimeout",
    "Host",
    "InputFile",
    "InvalidOption",
    "InvalidValue",
    "Job",
    "JobFailureStatus",
    "JobState",
    "LauncherNotFound",
    "LightweightTask",
    "Listener",
    "Match",
    "Meta",
    "NoResult",
    "Option",
    "Output",
    "OutputKey",
    "Param",
    "PathGenerator",
    "PlainOwner",
    "PortTaken",
    "Prepare",
    "ProcessService",
    "Requirement",
    "RequirementError",
    "ResumableTask",
    "RunMode",
    "Scheduler",
    "Service",
    "ServiceError",
    "ServiceState",
    "SlurmLauncher",
    "SlurmOptions",
    "SpawnLauncher",
    "SubmissionRefused",
    "SubmitHook",
    "Task",
    "TaskCancelled",
    "TenutoError",
    "TokenError",
    "TransientMode",
    "WaitsFor",
    "WebService",
    "Workspace",
    "cache",
    "copyconfig",
    "deprecate",
    "describe_config",
    "deserialize",
    "experiment",
    "explain",
    "field",
    "find_launcher",
    "former_identity",
    "from_state_dict",
    "from_task_dir",
    "grid",
    "help",
    "identity",
    "initializer",
    "input_file",
    "keep_loops_free",
    "load",
    "load_xp_info",
    "log_metrics",
    "nodes",
    "options",
    "param_group",
    "partial",
    "pathgenerator",
    "progress",
    "save",
    "sealed_set",
    "serialize",
    "setmeta",
    "state_dict",
    "stop_tags",
    "sweep",
    "tag",
    "tags",
    "tagspath",
    "task",
    "tqdm",
]

__getattr__, __dir__ = on_demand(__name__, _ON_DEMAND)
