"""The routes of a server: each turns a request into a call of `operations`, and its answer into HTTP.
No route decides who may do what: it names its scope, and `common.allow` does.
"""
