//! A mock OpenAI-compatible server that starts, queues, streams and fails as vLLM does; also the canary endpoint.
