"""Progress, summaries, pages, charts and tables about runs; knows nothing of the paper."""
