"""Sentence pairs for training: written lines, templates with their values, and made names."""
