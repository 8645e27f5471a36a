"""The routes of a server: each turns a request into a call of `operations`, and its answer into HTTP.
No route decides what a principal may do: it names its scope, and `common.allow` does.
"""
