"""Find a program in a text, run it in a sandbox, and judge it by unit tests from outside."""
