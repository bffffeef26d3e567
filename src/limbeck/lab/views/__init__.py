"""What analyses look like on pages, and how they are kept beside runs."""
