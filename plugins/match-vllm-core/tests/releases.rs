//! Every wording of every release column: message → key and figures.

use blackstart_match_vllm::{Boundary, Session};

/// (releases, line, key, figures, fields).
type Case = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, f64)],
    &'static [(&'static str, &'static str)],
);

fn read(text: &str) -> Vec<Boundary> {
    let mut session = Session::new();
    let mut found = session.feed(text);
    found.extend(session.finish());
    found
}

fn check(case: &Case, line: &str) {
    let (releases, _, key, figures, fields) = *case;
    let found = read(line);
    assert_eq!(found.len(), 1, "{releases}: {line}\n{found:#?}");
    let found = &found[0];
    assert_eq!(found.key, key, "{releases}: {line}");
    let measures: Vec<_> = found.measures.iter().map(|m| (m.name, m.value)).collect();
    assert_eq!(measures, figures, "{releases}: {line}");
    let texts: Vec<_> = found
        .fields
        .iter()
        .filter(|field| field.key != "pid")
        .map(|field| (field.key, field.value.as_str()))
        .collect();
    assert_eq!(texts, fields, "{releases}: {line}");
}

/// Records with a head: tried in every shape of head that any release or wrapper gives.
#[rustfmt::skip]
const MESSAGES: &[Case] = &[
    ("0.4-0.14", "vLLM API server version 0.4.1", "banner", &[], &[("version", "0.4.1")]),
    ("dev", "vLLM API server version 0.10.1rc2.dev34+g5b8f.d20250819", "banner", &[], &[("version", "0.10.1rc2.dev34+g5b8f.d20250819")]),
    ("0.15+", "vLLM server version 0.15.1.post1, serving model org/m-7b", "banner", &[], &[("version", "0.15.1.post1"), ("model", "org/m-7b")]),
    ("0.15+", "     \u{2588}  version 0.18.1", "banner", &[], &[("version", "0.18.1")]),
    ("0.3", "Initializing an LLM engine with config: model='a/b', tokenizer='a/b'", "engine_init", &[], &[("model", "a/b")]),
    ("0.4-0.7.0", "Initializing an LLM engine (v0.6.6) with config: model=\"a/b\", x", "engine_init", &[], &[("version", "0.6.6"), ("model", "a/b")]),
    ("0.7.3-0.10", "Initializing a V0 LLM engine (v0.8.5) with config: model='a/b', x", "engine_init", &[], &[("version", "0.8.5"), ("model", "a/b"), ("engine", "V0")]),
    ("0.7.3+", "Initializing a V1 LLM engine (vdev) with config: VllmConfig()", "engine_init", &[], &[("version", "dev"), ("engine", "V1")]),
    ("0.5.5+", "Starting to load model org/m...", "model_load_start", &[], &[("model", "org/m")]),
    ("0.9.2+", "Loading model from scratch...", "model_load_start", &[], &[]),
    ("0.7.3+", "Time spent downloading weights for org/m: 12.345678 seconds", "weight_download", &[("weight_download_s", 12.345678)], &[("model", "org/m")]),
    ("0.8+", "Loading weights took 3.10 seconds", "weights_loaded", &[("weights_loaded_s", 3.1)], &[]),
    ("bar tail", "Loading weights took 152.912391 seconds40G [00:20<00:00, 295MB/s]", "weights_loaded", &[("weights_loaded_s", 152.912391)], &[]),
    ("ray", "Loading weights took 3.10 seconds [repeated 7x across cluster]", "weights_loaded", &[("weights_loaded_s", 3.1)], &[]),
    ("0.4-0.7", "Loading model weights took 14.9888 GB", "model_loaded", &[("model_loaded_gib", 14.9888)], &[]),
    ("XPU to 0.9.2", "Loading model weights took 14.9888 GiB", "model_loaded", &[("model_loaded_gib", 14.9888)], &[]),
    ("0.8.0-0.8.2", "Model loading took 14.9888 GB and 4.823372 seconds", "model_loaded", &[("model_loaded_gib", 14.9888), ("model_loaded_s", 4.823372)], &[]),
    ("0.8.3-0.11", "Model loading took 14.9888 GiB and 4.823372 seconds", "model_loaded", &[("model_loaded_gib", 14.9888), ("model_loaded_s", 4.823372)], &[]),
    ("0.11.2+", "Model loading took 13.5 GiB memory and 4.823372 seconds", "model_loaded", &[("model_loaded_gib", 13.5), ("model_loaded_s", 4.823372)], &[]),
    ("0.14+", "Model loading took 7 GiB and 4 seconds", "model_loaded", &[("model_loaded_gib", 7.0), ("model_loaded_s", 4.0)], &[]),
    ("0.6.5 dev", "graph compilation takes 20.50 s in total", "torch_compile", &[("torch_compile_s", 20.5)], &[]),
    ("0.6.6-0.17", "torch.compile takes 28.41 s in total", "torch_compile", &[("torch_compile_s", 28.41)], &[]),
    ("0.18+", "torch.compile took 0.06 s in total", "torch_compile", &[("torch_compile_s", 0.06)], &[]),
    ("0.32+", "[backbone] torch.compile took 0.19 s in total", "torch_compile", &[("torch_compile_s", 0.19)], &[("tag", "backbone")]),
    ("0.6.4-0.6.5", "Memory profiling results: duration=3.44 seconds, total_gpu_memory=23.64GiB initial_memory_usage=15.19GiB kv_cache_size=5.04GiB gpu_memory_utilization=0.90", "kv_cache", &[("kv_cache_gib", 5.04)], &[]),
    ("0.6.6-0.10 V0", "model weights take 14.99GiB; non_torch_memory takes 0.09GiB; PyTorch activation peak memory takes 1.20GiB; the rest of the memory reserved for KV Cache is 5.04GiB.", "kv_cache", &[("kv_cache_gib", 5.04)], &[]),
    ("0.9.2+", "Available KV cache memory: 54.27 GiB", "kv_cache", &[("kv_cache_gib", 54.27)], &[]),
    ("0.11+", "Initial free memory 78.10 GiB, reserved 40.00 GiB memory for KV Cache as specified by kv_cache_memory_bytes config and skipped memory profiling.", "kv_cache", &[("kv_cache_gib", 40.0)], &[]),
    ("0.26+", "Applying persisted startup plan (key=abc, kv_cache_memory_bytes=42949672960 (40.00 GiB)): profiling skipped", "kv_cache", &[("kv_cache_gib", 40.0)], &[]),
    ("0.8-0.27", "GPU KV cache size: 2,097,152 tokens", "kv_cache", &[("kv_cache_tokens", 2_097_152.0)], &[("device", "GPU")]),
    ("0.28+", "GPU KV cache size: 2,097,152 tokens, Maximum concurrency for 2,048 tokens per request: 1024.00x", "kv_cache", &[("kv_cache_tokens", 2_097_152.0), ("max_concurrency", 1024.0)], &[("device", "GPU")]),
    ("0.30+", "XPU KV cache size: 512 tokens, Maximum concurrency for 2,048 tokens per request: 0.25x", "kv_cache", &[("kv_cache_tokens", 512.0), ("max_concurrency", 0.25)], &[("device", "XPU")]),
    ("0.6.3-0.7", "Maximum concurrency for 32768 tokens per request: 2.71x", "kv_cache", &[("max_concurrency", 2.71)], &[]),
    ("0.8+", "Maximum concurrency for 32,768 tokens per request: 2.71x", "kv_cache", &[("max_concurrency", 2.71)], &[]),
    ("0.4-0.6", "# GPU blocks: 7406, # CPU blocks: 512", "kv_cache", &[], &[("device", "GPU"), ("device_blocks", "7406"), ("cpu_blocks", "512")]),
    ("0.7-0.10 V0", "# hpu blocks: 7406, # CPU blocks: 512", "kv_cache", &[], &[("device", "hpu"), ("device_blocks", "7406"), ("cpu_blocks", "512")]),
    ("0.7 V1", "# GPU blocks: 7406", "kv_cache", &[], &[("device_blocks", "7406")]),
    ("0.9+", "Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 7406", "kv_cache", &[], &[("device_blocks", "7406")]),
    ("0.20+", "2 Engines: vllm cache_config_info with initialization after num_gpu_blocks is: 7406", "kv_cache", &[], &[("device_blocks", "7406")]),
    ("0.4-0.6", "Graph capturing finished in 21 secs.", "graph_capture", &[("graph_capture_s", 21.0)], &[]),
    ("0.6.6+", "Graph capturing finished in 5 secs, took 0.52 GiB", "graph_capture", &[("graph_capture_s", 5.0), ("graph_capture_gib", 0.52)], &[]),
    ("0.6.5-0.19", "init engine (profile, create kv cache, warmup model) took 133.05 seconds", "engine_ready", &[("init_engine_s", 133.05)], &[]),
    ("0.20+", "init engine (profile, create kv cache, warmup model) took 8.28 s (compilation: 0.19 s)", "engine_ready", &[("init_engine_s", 8.28), ("init_engine_compilation_s", 0.19)], &[]),
    ("0.20+", "init engine (profile, create kv cache, warmup model) took 8.28 s (compilation: 1.19 s \u{2014} language_model: 1.00 s, encoder: 0.19 s)", "engine_ready", &[("init_engine_s", 8.28), ("init_engine_compilation_s", 1.19)], &[]),
    ("0.7.3-0.9", "Starting vLLM API server on http://0.0.0.0:8000", "server_start", &[], &[("url", "http://0.0.0.0:8000")]),
    ("0.9.2-0.19", "Starting vLLM API server 3 on https://[::1]:8000", "server_start", &[], &[("server", "3"), ("url", "https://[::1]:8000")]),
    ("0.18+", "Starting vLLM server on http://0.0.0.0:8000", "server_start", &[], &[("url", "http://0.0.0.0:8000")]),
    ("0.6+", "Shutting down FastAPI HTTP server.", "shutdown", &[], &[("component", "API server"), ("event", "shutting down")]),
    ("0.10.2-0.22", "WorkerProc shutting down.", "shutdown", &[], &[("component", "WorkerProc"), ("event", "shutting down")]),
    ("0.18-0.22", "Shutdown initiated (timeout=30)", "shutdown", &[], &[("component", "API server"), ("event", "initiated"), ("timeout", "30")]),
    ("0.23+", "[shutdown] EngineCore: trigger received signal=SIGTERM", "shutdown", &[], &[("component", "EngineCore"), ("event", "trigger received"), ("signal", "SIGTERM")]),
    ("0.23+", "[shutdown] API server: stopping engine client mode=abort timeout=0s", "shutdown", &[], &[("component", "API server"), ("event", "stopping engine client"), ("mode", "abort"), ("timeout", "0s")]),
    ("0.32+", "[shutdown] force killing sub process VLLM::Worker pid 32633", "shutdown", &[], &[("event", "force killing sub process VLLM::Worker pid 32633")]),
    ("0.4.3-0.10 V0", "Sequence group chatcmpl-1 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. This can affect the end-to-end performance. total_num_cumulative_preemption=51", "preempted", &[], &[("request", "chatcmpl-1"), ("mode", "RECOMPUTE"), ("cumulative", "51")]),
    ("0.12+", "Engine 000: Avg prompt throughput: 4.1 tokens/s, Avg generation throughput: 2.1 tokens/s, Running: 1 reqs, Waiting: 0 reqs, Preemptions: 7", "preempted", &[], &[("preemptions", "7")]),
];

/// Failures: as records of level ERROR, and without any head as tracebacks print them.
#[rustfmt::skip]
const FAILURES: &[Case] = &[
    ("0.4-0.6", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.64 GiB", "failure.cuda_oom", &[], &[("requested", "20.00 MiB")]),
    ("0.6+", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0", "failure.cuda_oom", &[], &[("requested", "1.96 GiB")]),
    ("warm-up", "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests.", "failure.cuda_oom", &[], &[]),
    ("0.20+", "RuntimeError: Triton Error [CUDA]: out of memory", "failure.cuda_oom", &[], &[]),
    ("rank", "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", "failure.cuda_oom", &[], &[("requested", "2 GiB")]),
    ("driver", "RuntimeError: CUDA error: out of memory", "failure.cuda_oom", &[], &[]),
    ("host", "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes.", "failure.host_oom", &[], &[]),
    ("host", "OSError: [Errno 12] Cannot allocate memory", "failure.host_oom", &[], &[]),
    ("ray", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "failure.host_oom", &[], &[]),
    ("any", "RuntimeError: CUDA error: an illegal memory access was encountered", "failure.illegal_memory_access", &[], &[]),
    ("any", "torch.AcceleratorError: CUDA error: device-side assert triggered", "failure.cuda_error", &[], &[("error", "device-side assert triggered")]),
    ("0.3+", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.", "failure.kv_too_small", &[], &[]),
    ("0.3+", "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (18432). Try increasing", "failure.kv_too_small", &[], &[("max_seq_len", "131072"), ("kv_cache_tokens", "18432")]),
    ("0.8.5+", "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (5.61 GiB).", "failure.kv_too_small", &[], &[("max_seq_len", "131072"), ("needed_gib", "16.00"), ("available_gib", "5.61")]),
    ("0.9+", "ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (5.61 GiB).", "failure.kv_too_small", &[], &[("max_seq_len", "131072"), ("needed_gib", "16.00"), ("available_gib", "5.61")]),
    ("0.9-0.12", "ValueError: Free memory on device (1.96/23.64 GiB) on startup is less than desired GPU memory utilization (0.9, 21.28 GiB).", "failure.gpu_memory_utilization", &[], &[("free_gib", "1.96"), ("total_gib", "23.64")]),
    ("0.13+", "ValueError: Free memory on device cuda:0 (1.96/23.64 GiB) on startup is less than desired GPU memory utilization (0.9, 21.28 GiB).", "failure.gpu_memory_utilization", &[], &[("free_gib", "1.96"), ("total_gib", "23.64")]),
    ("0.3+", "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)", "failure.nccl", &[], &[("error", "unhandled cuda error (run with NCCL_DEBUG=INFO for details)")]),
    ("torch", "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error", "failure.nccl", &[], &[("error", "../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error")]),
    ("torch", "ncclUnhandledCudaError: Call to CUDA function failed.", "failure.nccl", &[], &[]),
    ("torch", "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.", "failure.nccl", &[], &[]),
    ("ray", "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task", "failure.ray", &[], &[("error", "ActorDiedError")]),
    ("any", "OSError: [Errno 98] Address already in use", "failure.port_in_use", &[], &[]),
    ("any", "[Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use", "failure.port_in_use", &[], &[]),
    ("any", "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig", "failure.bad_argument", &[], &[("error", "ModelConfig")]),
    ("any", "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error.", "failure.download", &[], &[("error", "RepositoryNotFoundError")]),
    ("any", "OSError: We couldn't connect to 'https://huggingface.co' to load the files", "failure.download", &[], &[]),
    ("0.3-0.5", "vllm.engine.async_llm_engine.AsyncEngineDeadError: Task finished unexpectedly.", "failure.engine_start", &[], &[]),
    ("0.7-0.8.4", "EngineCore hit an exception: Traceback (most recent call last):", "failure.engine_start", &[], &[]),
    ("0.8.5+", "EngineCore failed to start.", "failure.engine_start", &[], &[]),
    ("0.8.5", "RuntimeError: Engine core initialization failed. See root cause above.", "failure.engine_start", &[], &[]),
    ("0.9+", "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_0': 1}", "failure.engine_start", &[], &[("failed", "{'EngineCore_0': 1}")]),
    ("0.17+", "TimeoutError: Timed out waiting for engine core processes to start.", "failure.engine_start", &[], &[]),
    ("0.31+", "RuntimeError: Frontend process failed during engine core initialization.", "failure.engine_start", &[], &[]),
    ("0.3-0.10 V0", "Engine background task failed", "failure.engine_dead", &[], &[]),
    ("0.3-0.10 V0", "Background loop has errored already.", "failure.engine_dead", &[], &[]),
    ("0.3-0.10 V0", "Engine iteration timed out. This should never happen!", "failure.engine_dead", &[], &[]),
    ("0.3-0.10 V0", "AsyncLLMEngine is already dead, terminating server process", "failure.engine_dead", &[], &[]),
    ("0.6-0.10 V0", "MQLLMEngine is already dead, terminating server process", "failure.engine_dead", &[], &[]),
    ("0.6-0.10 V0", "vllm.engine.multiprocessing.MQEngineDeadError: Engine loop is not running.", "failure.engine_dead", &[], &[]),
    ("0.7-0.8.2", "MulitprocExecutor got fatal signal from worker processes, shutting down", "failure.engine_dead", &[], &[]),
    ("0.7-0.8.2", "Got fatal signal from worker processes, shutting down. See stack trace above for root cause issue.", "failure.engine_dead", &[], &[]),
    ("0.8.5+", "EngineCore encountered a fatal error.", "failure.engine_dead", &[], &[]),
    ("0.8.5+", "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.", "failure.engine_dead", &[], &[]),
    ("0.10.1-0.19", "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.", "failure.engine_dead", &[], &[("engine", "EngineCore_DP0")]),
    ("0.20+", "RuntimeError: Engine core process EngineCore died unexpectedly.", "failure.engine_dead", &[], &[("engine", "EngineCore")]),
    ("0.9+", "AsyncLLM output_handler failed.", "failure.engine_dead", &[], &[]),
    ("0.23+", "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup", "failure.engine_dead", &[], &[]),
    ("0.4.3-0.10 V0", "Worker VllmWorkerProcess pid 4711 died, exit code: -9", "failure.worker_died", &[], &[("event", "died"), ("worker", "VllmWorkerProcess"), ("worker_pid", "4711"), ("exit_code", "-9")]),
    ("0.6-0.8.4 V1", "WorkerProc hit an exception: %s", "failure.worker_died", &[], &[("event", "hit an exception")]),
    ("0.8.5-0.25", "Worker proc VllmWorker-0 died unexpectedly, shutting down executor.", "failure.worker_died", &[], &[("event", "died unexpectedly"), ("worker", "VllmWorker-0")]),
    ("0.26+", "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.", "failure.worker_died", &[], &[("event", "died unexpectedly"), ("worker", "VllmWorker-0"), ("exit_code", "-9")]),
    ("0.26+ ray", "RayWorkerProc rank=3 died unexpectedly", "failure.worker_died", &[], &[("event", "died unexpectedly"), ("rank", "3")]),
    ("0.8.5+", "WorkerProc failed to start.", "failure.worker_died", &[], &[("event", "failed to start")]),
    ("0.16+", "WorkerProc was terminated", "failure.worker_died", &[], &[("event", "was terminated")]),
];

/// (shape with `LEVEL` and `MSG`, process).
#[rustfmt::skip]
const SHAPES: &[(&str, Option<&str>)] = &[
    ("LEVEL 01-02 03:04:05 core.py:140] MSG", None),
    ("(VllmWorkerProcess pid=72) LEVEL 01-02 03:04:05 worker.py:140] MSG", Some("VllmWorkerProcess")),
    ("(RayWorkerWrapper pid=72, ip=192.0.2.7) LEVEL 01-02 03:04:05 worker.py:140] MSG", Some("RayWorkerWrapper")),
    ("\x1b[36m(RayWorkerWrapper pid=72)\x1b[0m LEVEL 01-02 03:04:05 worker.py:140] MSG", Some("RayWorkerWrapper")),
    ("LEVEL 01-02 03:04:05 [core.py:140] MSG", None),
    ("(VllmWorker rank=1 pid=72) LEVEL 01-02 03:04:05 [core.py:140] MSG", Some("VllmWorker rank=1")),
    ("\x1b[1;36m(VllmWorker TP1 pid=72)\x1b[0;0m LEVEL 01-02 03:04:05 [core.py:140] MSG\r", Some("VllmWorker TP1")),
    ("\x1b[0;36m(Worker_DP0_PP1_TP1_EP9 pid=72)\x1b[0;0m LEVEL 01-02 03:04:05 [v1/engine/core.py:140] MSG", Some("Worker_DP0_PP1_TP1_EP9")),
    ("(EngineCore_DP0 pid=72) [my prefix] LEVEL 01-02 03:04:05 [core.py:140] MSG", Some("EngineCore_DP0")),
    ("my prefix (EngineCore pid=72) LEVEL 01-02 03:04:05 [entrypoints/.../sleep/api_router.py:38] MSG", Some("EngineCore")),
    ("\x1b[0;36m(EngineCore pid=72)\x1b[0;0m \x1b[32mLEVEL\x1b[0m \x1b[90m01-02 03:04:05\x1b[0m \x1b[90m[core.py:140]\x1b[0m MSG", Some("EngineCore")),
    ("^[[0;36m(EngineCore pid=72)^[[0;0m ESC[32mLEVELESC[0m ^[[90m01-02 03:04:05^[[0m ^[[90m[core.py:140]^[[0m MSG^M", Some("EngineCore")),
    ("(RayWorkerProc pid=71, ip=192.0.2.7) (Worker_TP1 pid=72) LEVEL 01-02 03:04:05 [core.py:140] MSG", Some("Worker_TP1")),
    ("(Worker_DP2 pid=71) (Worker_DP3 pid=72) LEVEL 01-02 03:04:05 [core.py:140] MSG", Some("Worker_DP3")),
    ("2/2 [00:03<00:00, 4.58it/s](Worker_TP2_EP2 pid=72) LEVEL 01-02 03:04:05 [core.py:140] MSG", Some("Worker_TP2_EP2")),
    ("(EngineCore pid=72) \rLoading:  50%| 1/2 [00:01, 4.5it/s]\rLoading: 100%| 2/2 [00:02, 4.58it/s]LEVEL 01-02 03:04:05 [core.py:140] MSG", Some("EngineCore")),
    ("vllm-1  | (EngineCore pid=72) LEVEL 01-02 03:04:05 [core.py:140] MSG", Some("EngineCore")),
    ("Jan 02 11:04:05 gpu-host-3 vllm[4711]: (EngineCore pid=72) LEVEL 01-02 03:04:05 [core.py:140] MSG", Some("EngineCore")),
    ("[2026-01-02T11:04:05Z] (EngineCore pid=72) LEVEL 01-02 03:04:05 [core.py:140] MSG", Some("EngineCore")),
    ("11:04:05.123456789Z (EngineCore pid=72) LEVEL 01-02 03:04:05 [core.py:140] MSG", Some("EngineCore")),
    ("  | (EngineCore pid=72) LEVEL 01-02 03:04:05 [core.py:140] MSG", Some("EngineCore")),
    ("\u{2502} (EngineCore pid=72) LEVEL 01-02 03:04:05 [core.py:140] MSG        \u{2502}", Some("EngineCore")),
    ("2026-01-02T11:04:05,123 [WARN ] W-9000-m_1.0-stderr MODEL_LOG - LEVEL 01-02 03:04:05 [core.py:140] MSG", None),
    ("2026-01-02 11:04:05 - relay - INFO - (EngineCore pid=72) LEVEL 01-02 03:04:05 [core.py:140] MSG", Some("EngineCore")),
];

fn fill(shape: &str, level: &str, message: &str) -> String {
    shape.replace("LEVEL", level).replace("MSG", message)
}

#[test]
fn every_wording_in_every_shape() {
    for case in MESSAGES.iter().chain(FAILURES) {
        let level = if case.2.starts_with("failure.") {
            "ERROR"
        } else {
            "INFO"
        };
        for &(shape, process) in SHAPES {
            let line = fill(shape, level, case.1);
            let in_runtime_file =
                serde_json::json!({"log": format!("{line}\n"), "stream": "stdout"});
            for line in [line, in_runtime_file.to_string()] {
                check(case, &line);
                let found = read(&line);
                assert_eq!(found[0].process.as_deref(), process, "{line}");
                assert_eq!(
                    found[0].stamp.as_deref(),
                    Some("--01-02T03:04:05"),
                    "{line}"
                );
            }
        }
    }
}

#[test]
fn every_wording_as_json() {
    for case in MESSAGES.iter().chain(FAILURES) {
        let level = if case.2.starts_with("failure.") {
            "ERROR"
        } else {
            "INFO"
        };
        let object = serde_json::json!({
            "asctime": "2027-01-01 00:00:02,345", "levelname": level, "name": "vllm.x",
            "processName": "MainProcess", "process": 72, "message": case.1,
            "vllm_process_name": "EngineCore",
        });
        for line in [
            object.to_string(),
            format!("(EngineCore pid=72) {object}"),
            format!("100% 2/2 [00:03<00:00]{object}"),
        ] {
            check(case, &line);
            let found = read(&line);
            assert_eq!(found[0].process.as_deref(), Some("EngineCore"), "{line}");
            assert_eq!(
                found[0].stamp.as_deref(),
                Some("2027-01-01T00:00:02.345"),
                "{line}"
            );
        }
    }
}

#[test]
fn failures_without_a_head() {
    for case in FAILURES {
        for before in [
            "",
            "(EngineCore pid=72) ",
            "vllm-1  | ",
            "Jan 02 11:04:05 host vllm[4711]: ",
            "2026-01-02T11:04:05.1Z ",
            "  | ",
            "bar 4.58it/s]",
        ] {
            check(case, &format!("{before}{}", case.1));
        }
    }
}

#[test]
fn messages_without_a_head() {
    // Re-logged and prefix-less pastes; the logo and short statistics need their head.
    for case in MESSAGES
        .iter()
        .filter(|case| !case.1.contains("  version "))
    {
        for before in [
            "",
            "(EngineCore pid=72) ",
            "2026-01-02T11:04:05.1Z  INFO core.run_engine: ",
            "INFO:relay:",
            "relay | ",
        ] {
            if case.2 == "preempted" && !before.is_empty() {
                continue;
            }
            check(case, &format!("{before}{}", case.1));
        }
    }
}

#[test]
fn framework_lines() {
    for (message, key) in [
        ("Application startup complete.", "startup_complete"),
        ("Shutting down", "shutdown"),
        ("Application shutdown complete.", "shutdown"),
    ] {
        for before in [
            "INFO:     ",
            "INFO: ",
            "(APIServer pid=1) INFO:     ",
            "\x1b[32mINFO\x1b[0m:     ",
            "vllm-1  | INFO:     ",
            "bar 4.58it/s]INFO:     ",
        ] {
            let line = format!("{before}{message}");
            let found = read(&line);
            assert_eq!(found.len(), 1, "{line}");
            assert_eq!(found[0].key, key, "{line}");
            assert_eq!(found[0].stamp, None, "{line}");
        }
    }
    let port = "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use";
    assert_eq!(read(port)[0].key, "failure.port_in_use");
    let usage = "vllm serve: error: unrecognized arguments: --nope";
    assert_eq!(read(usage)[0].key, "failure.bad_argument");
    let usage = "api_server.py: error: argument --port: invalid int value: 'x'";
    assert_eq!(read(usage)[0].key, "failure.bad_argument");
}

#[test]
fn decoys_yield_nothing() {
    for line in [
        "INFO 01-02 03:04:05 [gpu_worker.py:1] To avoid an out-of-memory error, lower gpu_memory_utilization: CUDA out of memory may follow",
        "INFO 01-02 03:04:05 [a.py:1] torch.OutOfMemoryError: CUDA out of memory. is what you would see",
        "host:1:2 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.7<0>",
        "host:1:2 [0] NCCL WARN NCCL error: unhandled",
        "    raise RuntimeError(f\"NCCL error: {error_str}\")",
        "ERROR 01-02 03:04:05 [a.py:1]     raise RuntimeError(f\"NCCL error: {error_str}\")",
        "(A pid=1)     raise EngineDeadError(",
        "    raise EngineDeadError: ",
        "ERROR 01-02 03:04:05 [a.py:1]     raise torch.OutOfMemoryError: x",
        "DEBUG 01-02 03:04:05 [a.py:1] Loading weights on cuda ...",
        "INFO 01-02 03:04:05 [a.py:1] Estimated CUDA graph memory: 0.52 GiB total",
        "INFO 01-02 03:04:05 [a.py:1] CUDA graph pool memory: 0.52 GiB (actual), 0.50 GiB (estimated)",
        "INFO 01-02 03:04:05 [a.py:1] In v0.19, CUDA graph memory profiling will be enabled by default",
        "INFO 01-02 03:04:05 [a.py:1] Reloading and processing weights took 3.1 seconds",
        "INFO 01-02 03:04:05 [logger.py:1] Received request cmpl-1: prompt: 'Loading weights took 3.1 seconds', params",
        "INFO 01-02 03:04:05 [logger.py:1] Received request cmpl-1: prompt: 'INFO 01-02 03:04:05 [a.py:1] Loading weights took 3.1 seconds', params",
        "INFO 01-02 03:04:05 [a.py:1] prompt 'INFO 01-02 03:04:05 [a.py:1] Loading weights took 3.1 seconds'",
        "INFO 01-02 03:04:05 [a.py:1] he said Loading weights took 3.1 seconds",
        "print(\"Loading weights took 3.1 seconds\")",
        "INFO:     127.0.0.1:1 - \"GET /Application startup complete. HTTP/1.1\" 200 OK",
        "INFO:     Waiting for application startup.",
        "INFO:     Started server process [1]",
        "INFO:     Waiting for application shutdown.",
        "Shutting down the neighbour",
        "INFO 01-02 03:04:05 [a.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, Preemptions: 0",
        "INFO 01-02 03:04:05 [a.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, GPU KV cache usage: 1.0%",
        "INFO 01-02 03:04:05 [a.py:1] Loading weights took 3.1",
        "INFO 01-02 03:04:05 [a.py:1] GPU KV cache size: 2,097,1",
        "INFO 01-02 03:04:05 [a.py:1] torch.compile took 0.06 s in to",
        "INFO 01-02 03:04:05 [a.py:1] Starting to load mod",
        "INFO 01-02 03:04:05 [a.py:1] Starting torch.compile",
        "INFO 01-02 03:04:05 [a.py:1] python  version 3.12.1",
        "ERROR 01-02 03:04:05 [serving.py:1] pydantic_core.ValidationError: 1 validation error for ChatCompletionRequest",
        "INFO 01-02 03:04:05 [shm_broadcast.py:1] No available shared memory broadcast block found in 60 seconds.",
        "{\"levelname\": \"INFO\", \"message\": \"Received request x: Loading weights took 3.1 seconds\\nLoading weights took 3 seconds\"}",
        "INFO 01-02 03:04:05 [a.py:1] got {\"levelname\": \"INFO\", \"message\": \"Loading weights took 3.1 seconds\"}",
        "{\"prompt\": \"Loading weights took 3.1 seconds\"}",
    ] {
        assert_eq!(read(line), [], "{line}");
    }
}

#[test]
fn client_text_of_several_lines_is_not_a_record() {
    let text = "INFO 01-02 03:04:05 [logger.py:39] Received request x: prompt: a\r\n\
        INFO 01-02 03:04:05 [logger.py:39] Loading weights took 3.1 seconds\r\n\
        INFO 01-02 03:04:06 [loader.py:1] Loading weights took 4.1 seconds";
    let found = read(text);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].line, 2);
}

#[test]
fn ranks_each_count() {
    let text: Vec<_> = (0..8)
        .map(|rank| format!("(VllmWorker rank={rank} pid=10{rank}) INFO 01-02 03:04:05 [gpu_model_runner.py:1] Model loading took 14.9888 GiB and 4.{rank} seconds"))
        .collect();
    let found = read(&text.join("\n"));
    assert_eq!(found.len(), 8);
    for (rank, boundary) in found.iter().enumerate() {
        assert_eq!(boundary.process, Some(format!("VllmWorker rank={rank}")));
        assert!((boundary.measures[1].value - (4.0 + rank as f64 / 10.0)).abs() < 1e-9);
    }
}

#[test]
fn glued_records_each_count() {
    let line = "(Worker_TP0 pid=1) INFO 01-02 03:04:05 [a.py:1] Loading weights took 3.1 seconds(Worker_TP1 pid=2) INFO 01-02 03:04:06 [a.py:1] Loading weights took 3.2 seconds";
    let found = read(line);
    let seen: Vec<_> = found
        .iter()
        .map(|b| (b.line, b.process.as_deref(), b.measures[0].value))
        .collect();
    assert_eq!(
        seen,
        [(0, Some("Worker_TP0"), 3.1), (0, Some("Worker_TP1"), 3.2)]
    );
}

/// A wording of old releases that tells a failed start only by what came before.
#[test]
fn death_after_the_start_is_death() {
    let hit = "ERROR 01-02 03:04:05 core.py:1] EngineCore hit an exception: Traceback (most recent call last):";
    let keys = |text: &str| read(text).iter().map(|b| b.key).collect::<Vec<_>>();
    assert_eq!(keys(hit), ["failure.engine_start"]);
    let started = "INFO:     Application startup complete.";
    assert_eq!(keys(&format!("{started}\n{hit}"))[1], "failure.engine_dead");
    let again = "INFO 01-02 03:04:05 api_server.py:1] vLLM API server version 0.7.3";
    assert_eq!(
        keys(&format!("{started}\n{again}\n{hit}"))[2],
        "failure.engine_start"
    );
}

#[test]
fn failures_of_a_server_that_was_asked_to_stop_say_so() {
    let dead = "ERROR 01-02 03:04:05 [a.py:1] AsyncLLM output_handler failed.";
    let stop = "INFO 01-02 03:04:05 [launcher.py:1] [shutdown] API server: shutdown triggered";
    let during = |text: &str| {
        read(text)
            .iter()
            .filter(|b| b.key == "failure.engine_dead")
            .map(|b| b.fields.iter().any(|f| f.key == "during"))
            .collect::<Vec<_>>()
    };
    assert_eq!(during(&format!("{stop}\n{dead}")), [true]);
    assert_eq!(during(&format!("{dead}\n{stop}\n{dead}")), [false, false]);
}

/// Two starts in one file: each banner is there, with the model that follows it.
#[test]
fn two_lives() {
    let banner = |pid: u32, version: &str| {
        let head = format!("(APIServer pid={pid}) INFO 01-02 03:04:05 [api_utils.py:347] ");
        format!(
            "{head}\r\n{head}   \u{2588}  version {version}\r\n(EngineCore pid=9) x\n{head}   \u{2588}  model   org/m{pid}\r\n{head}"
        )
    };
    let found = read(&format!(
        "{}\n{}",
        banner(68, "0.25.1"),
        banner(972, "0.26.0")
    ));
    let field = |b: &Boundary, key| {
        b.fields
            .iter()
            .find(|f| f.key == key)
            .map(|f| f.value.clone())
    };
    let seen: Vec<_> = found
        .iter()
        .map(|b| {
            (
                b.line,
                field(b, "version"),
                field(b, "model"),
                field(b, "pid"),
            )
        })
        .collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        seen,
        [
            (1, text("0.25.1"), text("org/m68"), text("68")),
            (6, text("0.26.0"), text("org/m972"), text("972")),
        ]
    );
}

#[test]
fn a_traceback_in_json_names_its_cause_beside_the_message() {
    let line = serde_json::json!({
        "asctime": "2027-01-01 00:00:10,000", "levelname": "ERROR", "process": 72,
        "message": "EngineCore failed to start.", "vllm_process_name": "EngineCore",
        "exc_info": "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    raise torch.OutOfMemoryError\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    });
    let keys: Vec<_> = read(&line.to_string()).iter().map(|b| b.key).collect();
    assert_eq!(keys, ["failure.engine_start", "failure.cuda_oom"]);
}
