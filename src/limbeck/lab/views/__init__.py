"""How analyses are shown on pages, and stored in run folders."""
