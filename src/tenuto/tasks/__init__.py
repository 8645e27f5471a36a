"""What to run: typed configurations, their identity, and how they are stored."""

from tenuto.tasks.config import Config, copyconfig, sealed_set
from tenuto.tasks.deprecation import deprecate
from tenuto.tasks.hints import (
    STDERR,
    STDOUT,
    Choices,
    Constant,
    DataPath,
    Meta,
    Option,
    Output,
    Param,
    PathGenerator,
    field,
    help,
    param_group,
    partial,
    pathgenerator,
)
from tenuto.tasks.identity import former_identity, identity, setmeta
from tenuto.tasks.methods import cache, initializer
from tenuto.tasks.tags import stop_tags, tag, tags, tagspath
from tenuto.tasks.task import (
    CommandTask,
    InputFile,
    LightweightTask,
    Prepare,
    ResumableTask,
    Task,
    input_file,
)

__all__ = [
    "STDERR",
    "STDOUT",
    "Choices",
    "CommandTask",
    "Config",
    "Constant",
    "DataPath",
    "InputFile",
    "LightweightTask",
    "Meta",
    "Option",
    "Output",
    "Param",
    "PathGenerator",
    "Prepare",
    "ResumableTask",
    "Task",
    "cache",
    "copyconfig",
    "deprecate",
    "field",
    "former_identity",
    "help",
    "identity",
    "initializer",
    "input_file",
    "param_group",
    "partial",
    "pathgenerator",
    "sealed_set",
    "setmeta",
    "stop_tags",
    "tag",
    "tags",
    "tagspath",
]
