//! Shared helpers for tests: free ports, temporary servers, fixtures.
