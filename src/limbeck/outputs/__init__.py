"""What is computed once about the training rows: a teacher's outputs, kept in memory or on disk.

Stored outputs take the live teacher's place.
"""
