"""What people look at: progress, summaries and charts."""
