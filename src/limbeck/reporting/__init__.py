"""What is read after a run: records, tables, pages, analysis."""
