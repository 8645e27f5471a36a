"""Every error Tenuto raises.
Nothing else lives here, and nothing here imports the rest of Tenuto.

TenutoError
├── DeclarationError          a Config class is written wrongly
├── ParameterError            a value does not fit the parameter or argument it was given to
│   ├── UnknownParameter      no parameter has this name
│   ├── InvalidValue          the value is not of the declared type
│   ├── MissingValue          a required parameter has no value yet
│   ├── SealedConfig          a sealed config cannot change
│   ├── DefaultChanged        a result is of another value than the default has now
│   ├── InvalidOption         an option of the command line does not fit the script
│   └── AmbiguousComposition  ``outer @ inner`` fits no parameter, or several
├── GraphError                configs are connected in a way that cannot run
│   ├── ConfigCycle           a config contains itself
│   └── UnsubmittedTask       a task's result is used, but the task was not submitted
├── RequirementError          what a job needs cannot be read
├── LauncherNotFound          no launcher satisfies what a job needs
├── NoExperiment              ``submit()`` was called with no experiment open
├── NotInJob                  asked for something only a running job has
├── ClassNotFound             a class cannot be found again from another process
├── SettingsError             the settings cannot be used
│   ├── UnknownSetting        no setting has this name
│   └── InvalidSetting        the value does not fit the setting
├── ExperimentFileError       a YAML file does not describe an experiment
├── DirtyGitError             a project has uncommitted changes, and the settings forbid that
├── FilterError               a filter of the command line cannot be read
├── NotFound                  nothing in the workspace has this name
├── Ambiguous                 a name fits several things, and one is needed
├── SerializationError        a stored config cannot be read
│   ├── MalformedFile         the content is not what Tenuto writes
│   └── NewerFormat           written by a newer version of Tenuto
├── LifecycleError            something that cannot happen to a job was asked for
│   ├── IllegalTransition     this state may not follow that one
│   ├── JobNotEnded           a job that has not ended cannot be forgotten
│   └── MalformedEvent        a record does not describe an event
├── SchedulerClosed           the scheduler was closed, and answers no more
├── NoResult                  a job has nothing to return, because it is not done or kept nothing
├── ExperimentError           an experiment cannot be run like this
│   ├── ExperimentLocked      another process runs an experiment of this name
│   ├── ExperimentInJob       an experiment was opened inside a job
│   ├── FailedExperiment      jobs of the experiment failed
│   ├── PreparationFailed     `Prepare` work raised
│   ├── SubmissionRefused     a submit hook does not want this task
│   ├── SubmitHookError       a submit hook raised
│   ├── ServiceError          a service beside the experiment cannot be run like this
│   │   └── PortTaken         another process listens on the port of a service
│   └── GracefulExperimentExit  raised to leave an experiment while its jobs continue
├── DatabaseError             the SQL database of a service or a search cannot be used
│   ├── DatabaseUnavailable   it cannot be reached, or took too long to answer
│   ├── DatabaseDamaged       the file is damaged
│   ├── ForeignDatabase       the file belongs to another program
│   └── NewerDatabase         its tables were made by a newer version of Tenuto
├── SearchError               a search cannot be run like this
│   ├── GitError              git could not do what a search of programs asked of it
│   ├── SearchDiffers         a stored search of this name was declared otherwise
│   ├── SearchInJob           a search was opened inside a job
│   ├── CapReached            the search may have no more candidates
│   └── WorkerDied            the part of a search that evaluates candidates failed
├── MonitorError              the monitor cannot answer
│   ├── BadQuestion           a question to the monitor is not one
│   ├── NotAllowed            the monitor may not do this, or not for this caller
│   └── MonitorUnavailable    the monitor cannot be reached, or has ended
├── TokenError                a token cannot be used like this
├── JobServiceError           the job service cannot do this
│   ├── UnsafeService         a setting would let strangers run programs here
│   ├── DataInUse             another server or node works in this data directory
│   ├── ForeignData           the data directory belongs to another database
│   ├── RequestRefused        a request over HTTP is answered with an error
│   └── NodeError             a node did not do its task
│       ├── NodeNotReached    the request certainly did not arrive
│       ├── NodeSilent        the request may have arrived; there was no answer
│       ├── NodeRefusal       the node will never take this
│       ├── PayloadGone       the node does not know the payload
│       ├── NotOurs           the node has the job of another under this number or key
│       └── DamagedResult     a result is not what its digest says
├── LaunchRefused             a launcher cannot ever start this job
├── GracefulTimeout           raised by a task that stops in time; it is resumed later
└── WorkspaceError            a file of a workspace cannot be used
    ├── InvalidName           an id that cannot name a directory
    ├── DirectoryUnusable     a directory cannot be created or written
    ├── NotRegularFile        a pipe, link or device lies where a file should be
    ├── FileTooLarge          a file exceeds what Tenuto ever writes there
    ├── LockLost              the lock file was replaced while the lock was held
    ├── LocksUnsupported      the file system cannot lock
    └── JournalError          an event file cannot be claimed or written

BaseException
└── TaskCancelled             the job is being stopped; `except Exception` does not catch it
"""

from __future__ import annotations


class TenutoError(Exception):
    """The base of every error that Tenuto raises on purpose."""


class DeclarationError(TenutoError):
    """A Config class is written wrongly."""


class ParameterError(TenutoError, ValueError):
    """A value does not fit the parameter, or the argument of a function, that it was given to."""


class UnknownParameter(ParameterError, AttributeError):
    """No parameter has this name."""


class InvalidValue(ParameterError, TypeError):
    """The value is not of the declared type."""


class MissingValue(ParameterError, AttributeError):
    """A required parameter has no value yet."""


class SealedConfig(ParameterError, AttributeError):
    """A sealed config cannot change."""


class DefaultChanged(ParameterError):
    """A result that was found done is of another value of a parameter than its default has now."""


class InvalidOption(ParameterError):
    """An option of the command line is none that the script declares, or has no value of its type."""


class AmbiguousComposition(ParameterError):
    """``outer @ inner`` fits no parameter, or several."""


class GraphError(TenutoError, ValueError):
    """Configs are connected in a way that cannot run."""


class ConfigCycle(GraphError):
    """A config contains itself."""


class UnsubmittedTask(GraphError):
    """A task's result is used, but the task was not submitted."""


class NoExperiment(TenutoError):
    """``submit()`` was called with no experiment open."""


class NotInJob(TenutoError):
    """Asked for something only a running job has."""


class ClassNotFound(TenutoError):
    """A class cannot be found again from another process."""


class SettingsError(TenutoError):
    """The settings cannot be used."""


class UnknownSetting(SettingsError):
    """No setting has this name."""


class InvalidSetting(SettingsError):
    """The value does not fit the setting."""


class ExperimentFileError(TenutoError):
    """A YAML file does not describe an experiment."""


class DirtyGitError(TenutoError):
    """A project has uncommitted changes, and the settings forbid that."""


class FilterError(TenutoError):
    """A filter of the command line cannot be read; ``position`` is the character where it breaks."""

    def __init__(self, message: str, text: str, position: int) -> None:
        super().__init__(message)
        self.text = text
        self.position = position


class RequirementError(TenutoError, ValueError):
    """What a job needs cannot be read; ``position`` is the character of ``text`` where it breaks."""

    def __init__(self, message: str, text: str = "", position: int = 0) -> None:
        super().__init__(message)
        self.text = text
        self.position = position


class LauncherNotFound(TenutoError, LookupError):
    """No launcher satisfies what a job needs."""


class NotFound(TenutoError):
    """Nothing in the workspace has this name."""


class Ambiguous(TenutoError):
    """A name fits several things, and one is needed."""


class SerializationError(TenutoError):
    """A stored config cannot be read."""


class MalformedFile(SerializationError):
    """The content is not what Tenuto writes."""


class NewerFormat(SerializationError):
    """Written by a newer version of Tenuto."""


class LifecycleError(TenutoError):
    """Something that cannot happen to a job was asked for."""


class IllegalTransition(LifecycleError):
    """This state may not follow that one."""


class JobNotEnded(LifecycleError):
    """A job that has not ended cannot be forgotten."""


class MalformedEvent(LifecycleError, ValueError):
    """A record does not describe an event."""


class SchedulerClosed(TenutoError):
    """The scheduler was closed, and answers no more; its jobs continue, and another scheduler finds them."""


class NoResult(TenutoError):
    """A job has nothing to return, because it is not done or kept nothing."""


class ExperimentError(TenutoError):
    """An experiment cannot be run like this."""


class ExperimentLocked(ExperimentError):
    """Another process runs an experiment of this name."""


class ExperimentInJob(ExperimentError):
    """An experiment was opened inside a job."""


class FailedExperiment(ExperimentError):
    """Jobs of the experiment failed."""


class PreparationFailed(ExperimentError):
    """`Prepare` work raised."""


class SubmissionRefused(ExperimentError):
    """A submit hook does not want this task; raised by the hook, with the reason."""


class SubmitHookError(ExperimentError):
    """A submit hook raised."""


class ServiceError(ExperimentError):
    """A service beside the experiment cannot be run like this."""


class PortTaken(ServiceError):
    """Another process listens on the port of a service."""


class GracefulExperimentExit(ExperimentError):
    """Raised to leave an experiment while its jobs continue."""


class DatabaseError(TenutoError):
    """The SQL database of a service or a search cannot be used."""


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached, or took too long to answer."""


class DatabaseDamaged(DatabaseError):
    """The file of the database is damaged."""


class ForeignDatabase(DatabaseError):
    """The file of the database belongs to another program."""


class NewerDatabase(DatabaseError):
    """The tables were made by a newer version of Tenuto."""


class SearchError(TenutoError):
    """A search cannot be run like this."""


class SearchDiffers(SearchError):
    """A stored search of this name was declared otherwise."""


class GitError(SearchError):
    """Git could not do what a search of programs asked of it."""


class SearchInJob(SearchError):
    """A search was opened inside a job."""


class CapReached(SearchError):
    """The search may have no more candidates."""


class WorkerDied(SearchError):
    """The part of a search that evaluates candidates failed."""


class MonitorError(TenutoError):
    """The monitor cannot answer."""


class BadQuestion(MonitorError):
    """A question to the monitor is not one."""


class NotAllowed(MonitorError):
    """The monitor may not do this, or not for this caller."""


class MonitorUnavailable(MonitorError):
    """The monitor cannot be reached, or has ended."""


class TokenError(TenutoError, ValueError):
    """A token cannot be used like this."""


class JobServiceError(TenutoError):
    """The job service cannot do this."""


class UnsafeService(JobServiceError):
    """A setting would let strangers run programs here."""


class DataInUse(JobServiceError):
    """Another server or node works in this data directory."""


class ForeignData(JobServiceError):
    """The data directory belongs to another database, or the database to another data directory."""


class RequestRefused(JobServiceError):
    """A request over HTTP is answered with an error: its code, and what the body says."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        job_id: int = 0,
        status: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.job_id = job_id
        self.status = status
        self.retry_after_s = retry_after_s


class NodeError(JobServiceError):
    """A node did not do its task."""


class NodeNotReached(NodeError):
    """The request certainly did not arrive."""


class NodeTakesNothing(NodeNotReached):
    """The node is well and takes no job for now: it drains, or its disk is nearly full."""


class NodeSilent(NodeError):
    """The request may have arrived; there was no answer."""


class NodeRefusal(NodeError):
    """The node will never take this."""


class PayloadGone(NodeError):
    """The node does not know the payload."""


class NotOurs(NodeError):
    """The node has the job of another under this number or key."""


class DamagedResult(NodeError):
    """A result is not what its digest says."""


class LaunchRefused(TenutoError):
    """A launcher cannot ever start this job."""


class GracefulTimeout(TenutoError):
    """Raised by a task that stops in time; it is resumed later."""


class WorkspaceError(TenutoError):
    """A file of a workspace cannot be used."""


class InvalidName(WorkspaceError, ValueError):
    """An id that cannot name a directory."""


class DirectoryUnusable(WorkspaceError):
    """A directory cannot be created or written."""


class NotRegularFile(WorkspaceError):
    """A pipe, link or device lies where a file should be."""


class FileTooLarge(WorkspaceError):
    """A file exceeds what Tenuto ever writes there."""


class LockLost(WorkspaceError):
    """The lock file was replaced while the lock was held."""


class LocksUnsupported(WorkspaceError):
    """The file system cannot lock."""


class JournalError(WorkspaceError):
    """An event file cannot be claimed or written."""


class TaskCancelled(BaseException):
    """The job is being stopped; `except Exception` does not catch it."""
