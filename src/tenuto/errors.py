"""Every error Tenuto raises.
Nothing else lives here, and nothing here imports the rest of Tenuto.

TenutoError
├── DeclarationError          a Config class is written wrongly
├── ParameterError            a value does not fit the parameter it was given to
│   ├── UnknownParameter      no parameter has this name
│   ├── InvalidValue          the value is not of the declared type
│   ├── MissingValue          a required parameter has no value yet
│   ├── SealedConfig          a sealed config cannot change
│   └── AmbiguousComposition  ``outer @ inner`` fits no parameter, or several
├── GraphError                configs are connected in a way that cannot run
│   ├── ConfigCycle           a config contains itself
│   └── UnsubmittedTask       a task's result is used, but the task was not submitted
├── NoExperiment              ``submit()`` was called with no experiment open
├── NotInJob                  asked for something only a running job has
├── ClassNotFound             a class cannot be found again from another process
├── SettingsError             the settings cannot be used
│   ├── UnknownSetting        no setting has this name
│   └── InvalidSetting        the value does not fit the setting
├── ExperimentFileError       a YAML file does not describe an experiment
├── DirtyGitError             a project has uncommitted changes, and the settings forbid that
├── FilterError               a filter of the command line cannot be read
└── SerializationError        a stored config cannot be read
    ├── MalformedFile         the content is not what Tenuto writes
    └── NewerFormat           written by a newer version of Tenuto
"""

from __future__ import annotations


class TenutoError(Exception):
    """The base of every error that Tenuto raises on purpose."""


class DeclarationError(TenutoError):
    """A Config class is written wrongly."""


class ParameterError(TenutoError):
    """A value does not fit the parameter it was given to."""


class UnknownParameter(ParameterError, AttributeError):
    """No parameter has this name."""


class InvalidValue(ParameterError, TypeError):
    """The value is not of the declared type."""


class MissingValue(ParameterError, AttributeError):
    """A required parameter has no value yet."""


class SealedConfig(ParameterError, AttributeError):
    """A sealed config cannot change."""


class AmbiguousComposition(ParameterError):
    """``outer @ inner`` fits no parameter, or several."""


class GraphError(TenutoError):
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


class SerializationError(TenutoError):
    """A stored config cannot be read."""


class MalformedFile(SerializationError):
    """The content is not what Tenuto writes."""


class NewerFormat(SerializationError):
    """Written by a newer version of Tenuto."""
