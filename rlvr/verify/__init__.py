"""Verifiers, one for each kind of task, and the graders that run them.

answers/ judges what can be read in a text; programs/ judges what has to be run. Nothing is imported
here, because a sandbox has the standard library alone.
"""
