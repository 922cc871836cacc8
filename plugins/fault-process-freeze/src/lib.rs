//! Stops one process of each victim with SIGSTOP and lets it go on.
