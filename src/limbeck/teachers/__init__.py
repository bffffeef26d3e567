"""Which teacher: several of them, one sampled for each step, or an ensemble.

Training asks a team at each step which of its members to run.
"""
