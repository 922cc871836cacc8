//! What a run saw: requests, gaps, events, boundaries, metrics, findings, and the files that hold them.
