//! The system under test: processes that the instrument supervises, and servers that already run.
