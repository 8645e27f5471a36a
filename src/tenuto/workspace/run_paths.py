"""Every path of a run of an experiment, and of a config that was prepared for it, spelled once.
Only joins strings; creates and reads nothing.
"""

from __future__ import annotations

from tenuto.workspace.layout import checked_job_id, directory_name


class RunPaths:
    """The files of one run of an experiment."""

    __slots__ = ("directory",)

    def __init__(self, directory: str) -> None:
        self.directory = directory

    @property
    def environment(self) -> str:
        return f"{self.directory}/environment.json"

    @property
    def status(self) -> str:
        return f"{self.directory}/status.json"

    @property
    def jobs_list(self) -> str:
        return f"{self.directory}/jobs.jsonl"

    @property
    def columns(self) -> str:
        """The fields of its jobs by column, of very many that ended."""
        return f"{self.directory}/columns"

    @property
    def events(self) -> str:
        return f"{self.directory}/events"

    @property
    def jobs(self) -> str:
        return f"{self.directory}/jobs"

    @property
    def results(self) -> str:
        return f"{self.directory}/results"

    @property
    def data(self) -> str:
        return f"{self.directory}/data"

    @property
    def tags(self) -> str:
        return f"{self.directory}/tags"

    def tag(self, tag: str) -> str:
        """The file that stands for a tag of the run."""
        return f"{self.directory}/tags/{directory_name(tag)}"

    @property
    def cancellations(self) -> str:
        """What people want taken out of the queue: a file for each job, by its id, with who wants it."""
        return f"{self.directory}/cancel"

    def service_log(self, service_id: str) -> str:
        """What a service of the run has to say."""
        return f"{self.directory}/services/{directory_name(service_id)}.log"

    def job_link(self, task_id: str, job_id: str) -> str:
        return f"{self.directory}/jobs/{directory_name(task_id)}/{checked_job_id(job_id)}"

    def job_link_target(self, task_id: str, job_id: str) -> str:
        """The job's directory as seen from the link: relative, so that a workspace can move."""
        return f"../../../../../jobs/{directory_name(task_id)}/{checked_job_id(job_id)}"


class PreparedPaths:
    """The files that tell of one `Prepare` config."""

    __slots__ = ("directory",)

    def __init__(self, directory: str) -> None:
        self.directory = directory

    @property
    def lock(self) -> str:
        return f"{self.directory}/prepare.lock"

    def done(self, host: str) -> str:
        """Says that it is done on a machine."""
        return f"{self.directory}/prepared-{directory_name(host)}.json"
