"""Plain torch: the readable reference.

executor    one lane
int8        the same in int8
"""
