use blackstart_observe::parse_text;

/// Each line of a real server's body, read by the simplest means that its plain lines allow: the
/// last blank separates series and value.
fn reference(text: &str) -> Vec<(String, f64)> {
    text.lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| {
            let (series, value) = l.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn recorded_bodies_parse_to_exact_values() {
    let load = include_str!("../fixtures/vllm-0.32.0-metrics-load.txt");
    let cold = include_str!("../fixtures/vllm-0.32.0-metrics-cold.txt");
    for text in [load, cold] {
        let parsed: Vec<_> = parse_text(text.as_bytes())
            .map(|(line, sample)| {
                let sample = sample.unwrap_or_else(|e| panic!("line {line}: {e}"));
                (sample.series, sample.value)
            })
            .collect();
        assert_eq!(parsed, reference(text));
    }
    let value = |series: &str| {
        parse_text(load.as_bytes())
            .filter_map(|(_, s)| s.ok())
            .find(|s| s.series == series)
            .map(|s| s.value)
    };
    let label = "{engine=\"0\",model_name=\"tiny\"}";
    assert_eq!(
        value(&format!("vllm:num_requests_running{label}")),
        Some(8.0)
    );
    assert_eq!(
        value(&format!("vllm:num_requests_waiting{label}")),
        Some(0.0)
    );
    assert_eq!(
        value(&format!("vllm:kv_cache_usage_perc{label}")),
        Some(0.000_488_311_054_141_488_1)
    );
    assert_eq!(
        value("process_resident_memory_bytes"),
        Some(1_034_514_432.0)
    );
    assert_eq!(value("vllm:absent"), None);
}
