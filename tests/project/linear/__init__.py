"""The cases of `tests/project/test_linear.py`: patterns and parsers that read text from outside."""
