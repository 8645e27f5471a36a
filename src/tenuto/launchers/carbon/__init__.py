"""The energy that jobs use: measured by a process beside each runner, with codecarbon or another tracker."""
