//! The field's own words for the stable names of the report.

use blackstart_analyze::{RecoveryStatus, WindowName};

/// Phases and segments: stable name, words, what happens in it.
const PHASES: [(&str, &str, &str); 38] = [
    (
        "process_end",
        "end of the process",
        "from the fire until the main process was gone",
    ),
    (
        "memory_released",
        "orphans gone",
        "until processes that outlived the main process were gone and their memory free",
    ),
    (
        "restart",
        "wait for the restart",
        "until the supervisor or container runtime started the new process",
    ),
    (
        "process_bringup",
        "process start-up",
        "until the new process printed its first line: interpreter and imports",
    ),
    (
        "engine_bringup",
        "engine start-up",
        "until the engine announced itself",
    ),
    (
        "worker_init",
        "worker start-up",
        "until the workers began to load the model",
    ),
    (
        "weight_fetch",
        "weight fetching",
        "from the start of the load until the weights were fetched",
    ),
    (
        "weight_read",
        "weight loading",
        "reading the model's weights into memory, once they are there",
    ),
    (
        "weight_download",
        "weight download",
        "the seconds of the download, as the log's line names them",
    ),
    (
        "weight_load",
        "weight load in full",
        "from the start of the load to weights in memory, with any download",
    ),
    (
        "model_finalize",
        "model set-up",
        "from weights in memory to a model that is ready",
    ),
    (
        "torch_compile",
        "torch.compile",
        "compiling the model's graph",
    ),
    (
        "kv_profile",
        "KV-cache sizing",
        "profiling memory and allocating the KV cache",
    ),
    ("graph_capture", "graph capture", "capturing device graphs"),
    (
        "profile_kv_capture",
        "profiling to graph capture",
        "from the compiled model to captured graphs: KV-cache sizing and graph capture together",
    ),
    (
        "engine_warmup",
        "engine warm-up",
        "until the engine called itself ready",
    ),
    (
        "frontend_start",
        "API start-up",
        "until the API server began to start",
    ),
    (
        "server_startup",
        "server start-up",
        "until the API server called itself ready",
    ),
    (
        "first_inference",
        "first inference",
        "from a server that calls itself ready to the first answer it gave",
    ),
    (
        "routing_propagation",
        "routing",
        "from a replica that answers to a service that sends traffic to it",
    ),
    (
        "goodput_return",
        "return of goodput",
        "until goodput held at its level again",
    ),
    (
        "fault_in_effect",
        "fault in effect",
        "from the fire until the fault was undone",
    ),
    (
        "service_return",
        "return of service",
        "from the undoing to the first answer",
    ),
    (
        "unexplained",
        "unexplained",
        "no measured boundary says what happened here",
    ),
    (
        "reschedule",
        "rescheduling",
        "until a scheduler placed the new replica",
    ),
    (
        "container_start",
        "new process started",
        "from the fire until the new main process (or container) started",
    ),
    (
        "log_bringup",
        "log bring-up",
        "from the first log line to the start of the API server",
    ),
    (
        "engine_init",
        "engine start seen",
        "from the fire until the engine announced itself",
    ),
    (
        "engine_ready",
        "engine ready",
        "from the fire until the engine called itself ready",
    ),
    (
        "server_ready",
        "server ready",
        "from the fire until the API server called itself ready",
    ),
    (
        "replica_ready",
        "replica ready",
        "from the fire to the first inference that the replica itself answered: the outage",
    ),
    (
        "traffic_restored",
        "traffic restored",
        "from the fire to the first answer through the service by the recovered replica",
    ),
    (
        "goodput_restored",
        "goodput restored",
        "from the fire until goodput held at its level again",
    ),
    ("fire", "fire", "the instant of the fault"),
    ("process_exited", "process gone", "the main process ended"),
    (
        "orphans_gone",
        "orphans gone",
        "processes that outlived the main process ended",
    ),
    (
        "timeout",
        "end of the fault window",
        "the run stopped watching",
    ),
    (
        "cut_off",
        "the cut",
        "the run was interrupted, and watched no longer",
    ),
];

/// Words for a phase, segment or boundary, the same on the page and in the terminal; an unknown name
/// stays as it is.
pub fn phase(name: &str) -> &str {
    PHASES
        .iter()
        .find(|(key, ..)| *key == name)
        .map_or(name, |(_, words, _)| words)
}

/// What happens in a phase or segment.
pub(super) fn phase_help(name: &str) -> Option<&'static str> {
    PHASES
        .iter()
        .find(|(key, ..)| *key == name)
        .map(|(.., help)| *help)
}

/// Words for a boundary: the instant at which one phase ends and the next begins.
pub(super) fn boundary(name: &str) -> &str {
    match name {
        "container_start" => "new process",
        "banner" => "first log line",
        "engine_init" => "engine starts",
        "model_load_start" => "model load starts",
        "weight_download" => "weights fetched",
        "weights_loaded" => "weights loaded",
        "model_loaded" => "model loaded",
        "torch_compile" => "compiled",
        "kv_cache" => "KV cache sized",
        "graph_capture" => "graphs captured",
        "engine_ready" => "engine ready",
        "server_start" => "API server starts",
        "startup_complete" => "server ready",
        "fault_undone" => "fault undone",
        other => phase(other),
    }
}

/// Words for an endpoint of a campaign, and what it is.
pub(super) fn endpoint(name: &str) -> Option<(&'static str, &'static str)> {
    Some(match name {
        "outage_s" => (
            "outage",
            "fire → first inference that the replica itself answered",
        ),
        "container_start_s" => (
            "new process started",
            "fire → start of the new main process",
        ),
        "ttr_pre_fault_s" => (
            "goodput back",
            "fire → goodput holds at its level from before the fault",
        ),
        "ttr_equilibrium_s" => (
            "goodput back, against the degraded level",
            "fire → goodput holds at the level of the degraded plateau; a question about survivors",
        ),
        "in_flight_loss_fraction" => (
            "in-flight loss",
            "share of the requests in flight at the fire that were lost",
        ),
        "survivor_p95_ms" => (
            "survivors' end-to-end p95",
            "of fault-window requests that unharmed replicas served",
        ),
        "integrated_goodput_deficit" => (
            "goodput deficit",
            "goodput lost until recovery, as seconds of full service",
        ),
        _ => return None,
    })
}

/// Words for a window, and what it holds.
pub(super) fn window(name: WindowName) -> (&'static str, &'static str) {
    match name {
        WindowName::Baseline => (
            "baseline",
            "end of warm-up → one client timeout before the fire",
        ),
        WindowName::Guard => (
            "guard",
            "the last client timeout before the fire; feeds no baseline figure",
        ),
        WindowName::Fault => ("fault\u{a0}window", "fire → end of the fault window"),
        WindowName::FaultDegraded => ("degraded", "fire → recovery"),
        WindowName::FaultRecovered => ("recovered", "recovery → end of the fault window"),
        WindowName::Outage => ("outage", "fire → first inference that the replica answered"),
    }
}

/// What an error class means.
pub(super) fn error_class(name: &str) -> &'static str {
    match name {
        "connect" => "no connection: refused, unreachable, or no such host",
        "tls" => "TLS handshake or certificate",
        "reset" => "the connection was reset",
        "http_status" => "an HTTP status of 400 or above",
        "not_sse" => "status 200, but no event stream",
        "empty" => "the stream ended without an event",
        "truncated" => "the stream ended before its end marker",
        "malformed_stream" => "an event that is not valid JSON, or a broken chunk",
        "in_stream_error" => "an error object inside a stream with status 200",
        "aborted" => "the server gave the request up (finish reason abort)",
        "short_completion" => "fewer tokens than were asked for",
        "undispatched" => "never sent: a failure of the client, not of the server",
        _ => "a class that this page does not know",
    }
}

/// Words for the recovery detector's conclusion.
pub(super) fn recovery(status: RecoveryStatus) -> &'static str {
    match status {
        RecoveryStatus::Recovered => "recovered",
        RecoveryStatus::NoOutage => "no outage seen",
        RecoveryStatus::NotRecovered => "not recovered",
        RecoveryStatus::Unconfirmed => "unconfirmed",
        RecoveryStatus::NotEstimable => "not estimable",
    }
}

/// What the rule of a gate is and why it matters.
pub(super) fn gate(id: &str) -> &'static str {
    match id {
        "G1" => {
            "Each replica served its fair share of the baseline. If not, the load never tested what the plan declares."
        }
        "G2" => {
            "The client itself kept up: sends on time, CPU to spare, no stalls. If not, the latencies are partly the client's own."
        }
        "G3" => {
            "No request in flight on the victim ended with an explicit error. If one did, the fault was not the silence of a lost node."
        }
        "G4" => {
            "The dead endpoint stayed routable and took traffic. If not, the route went stale sooner than at the loss of a node."
        }
        "G5" => {
            "The same accelerators, drivers, clocks and power limits everywhere and all the time. If not, runs do not compare."
        }
        "G6" => "Service was healthy before the fault. If not, there is no level to recover to.",
        "G7" => "No queue stood before the fault. If one did, the service was overloaded already.",
        _ => "",
    }
}

/// Words for a signal's number.
pub(super) fn signal(number: i32) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return None,
    })
}

/// First letter in upper case.
pub(super) fn sentence_case(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}
