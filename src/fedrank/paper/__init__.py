"""The paper's tables and figures, with the published numbers beside ours."""
