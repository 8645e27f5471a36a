"""What every implementation of a port must do, as plain functions that take the implementation."""
