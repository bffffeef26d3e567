"""Values computed once from the training rows: a teacher's outputs, cached in memory or on disk.

Stored outputs replace the live teacher.
"""
