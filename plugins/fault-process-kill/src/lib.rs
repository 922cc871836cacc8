//! Sends a signal to one process of each victim and proves that it died.
