"""Find a program in a text, run it in a sandbox, and judge it by unit tests from outside.

Read code.py, which judges, then solution.py, which runs inside a sandbox; a student may skip
isolation.py, which starts sandboxes.
"""
