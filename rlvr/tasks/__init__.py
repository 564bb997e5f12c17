"""Tasks: problems, data sets, verifiers, and the processes that judge completions.

Nothing here imports torch, so that a grader starts at once.
"""
