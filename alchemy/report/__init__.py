"""Reports: records as one self-contained HTML page."""
