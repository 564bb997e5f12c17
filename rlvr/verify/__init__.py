"""Verifiers, one for each kind of task, and the graders that run them.

Read verifiers.py, the table, then pool.py, whose `grade` everything else calls, and grader.py, the
process behind it. A student may skip answers/ and programs/, which judge what can be read in a text
and what has to be run. Nothing is imported here: a sandbox has the standard library alone.
"""
