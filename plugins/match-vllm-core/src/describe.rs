//! What the boundaries mean, for the host's listing.

/// Describes one boundary key.
#[derive(Debug, Clone, Copy)]
pub struct BoundaryInfo {
    /// The key as in [`crate::Boundary::key`].
    pub key: &'static str,
    /// What the server says with it.
    pub meaning: &'static str,
    /// Whether some release prints it once per rank.
    pub per_rank: bool,
}

const fn info(key: &'static str, per_rank: bool, meaning: &'static str) -> BoundaryInfo {
    BoundaryInfo {
        key,
        meaning,
        per_rank,
    }
}

/// Semver requirement on the releases whose wordings the rules know.
pub const VERSIONS: &str = ">=0.4.0";

/// Every boundary that a session can yield.
pub const BOUNDARIES: [BoundaryInfo; 29] = [
    info(
        "banner",
        false,
        "a front end starts: release, and the model where it is shown",
    ),
    info(
        "engine_init",
        false,
        "an engine begins to initialise, with its configuration",
    ),
    info("model_load_start", true, "a rank begins to load the model"),
    info(
        "weight_download",
        true,
        "weights were fetched over the network",
    ),
    info("weights_loaded", true, "weights are read into memory"),
    info(
        "model_loaded",
        true,
        "the model is in place: memory taken and time",
    ),
    info(
        "torch_compile",
        true,
        "compilation is done; may come once per model part",
    ),
    info(
        "kv_cache",
        true,
        "size of the KV cache: memory, tokens, blocks or concurrency",
    ),
    info("graph_capture", true, "device graphs are captured"),
    info(
        "engine_ready",
        false,
        "the engine is initialised: profiling, KV cache and warm-up",
    ),
    info(
        "server_start",
        false,
        "a front end starts to serve at its address",
    ),
    info("startup_complete", false, "the HTTP application is up"),
    info(
        "shutdown",
        true,
        "a part of the server shuts down in good order",
    ),
    info(
        "preempted",
        false,
        "requests were preempted for want of KV cache space",
    ),
    info("failure.cuda_oom", true, "the device ran out of memory"),
    info("failure.host_oom", true, "the host ran out of memory"),
    info(
        "failure.illegal_memory_access",
        true,
        "a kernel accessed memory it must not",
    ),
    info(
        "failure.cuda_error",
        true,
        "another error of the device runtime",
    ),
    info(
        "failure.graph_capture",
        true,
        "capturing a device graph failed",
    ),
    info(
        "failure.kv_too_small",
        true,
        "the KV cache cannot hold one request of the model's length",
    ),
    info(
        "failure.gpu_memory_utilization",
        true,
        "less device memory is free at start than the configured share",
    ),
    info("failure.engine_start", false, "the engine failed to start"),
    info(
        "failure.engine_dead",
        false,
        "the engine died or is found dead",
    ),
    info(
        "failure.worker_died",
        true,
        "a worker failed or died; exit code where it is shown",
    ),
    info("failure.nccl", true, "collective communication failed"),
    info("failure.ray", true, "the cluster framework failed"),
    info(
        "failure.port_in_use",
        false,
        "an address to listen on is taken",
    ),
    info(
        "failure.bad_argument",
        false,
        "the command line or configuration was refused",
    ),
    info("failure.download", true, "the model could not be fetched"),
];
