"""The monitor over HTTP: routes to calls of a state provider, guarded; needs the extra `web`.
Holds no logic of the display.
"""
