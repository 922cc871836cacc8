//! The load path: pacer, connections, SSE decoder, outcomes, client self-observation.
