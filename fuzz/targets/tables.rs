//! The files of a run that are not the journal, out of nothing and with bytes changed.

#![no_main]

use std::sync::LazyLock;

use blackstart_fuzz::{edited, every_gap, folder, gaps, made, records};
use blackstart_record::{
    GapParquetWriter, MetricSample, MetricTable, RunFiles, for_each_gap, read_events, read_gaps,
    read_metrics_parquet, read_requests_parquet, write_gaps, write_metrics_parquet,
    write_requests_parquet,
};
use libfuzzer_sys::fuzz_target;

/// Requests, single gaps, metrics, histograms of gaps, events.
static ORIGINALS: LazyLock<[Vec<u8>; 5]> = LazyLock::new(|| {
    [
        made(RunFiles::requests, |path| {
            write_requests_parquet(path, &records()).expect("room for it");
        }),
        made(RunFiles::every_gap, |path| {
            let mut writer = GapParquetWriter::create(path).expect("a new file");
            writer.extend(&every_gap()).expect("room for it");
            writer.finish().expect("room for it");
        }),
        made(RunFiles::metrics, |path| {
            let table = MetricTable {
                series: vec![("a".to_owned(), "waiting{}".to_owned())],
                samples: (0..3)
                    .map(|i| MetricSample {
                        at_ns: i,
                        series: 0,
                        value: 0.5,
                    })
                    .collect(),
            };
            write_metrics_parquet(path, &table).expect("room for it");
        }),
        made(RunFiles::gaps, |path| {
            write_gaps(path, &gaps()).expect("room for it");
        }),
        made(RunFiles::events, |path| {
            let line = "{\"at_ns\":1,\"kind\":\"interrupted\"}\n";
            std::fs::write(path, line).expect("room for it");
        }),
    ]
});

fuzz_target!(
    init: {
        LazyLock::force(&ORIGINALS);
        // The Parquet library may panic inside, which the readers turn into "damaged"; what they let
        // through still ends the fuzzer.
        std::panic::set_hook(Box::new(|_| {}));
    },
    |input: &[u8]| {
        let Some((&kind, bytes)) = input.split_first() else {
            return;
        };
        let table = usize::from(kind % 5);
        let bytes = match kind / 5 % 4 {
            0 => bytes.to_vec(),
            _ => edited(&ORIGINALS[table], bytes),
        };
        let dir = folder();
        let files = RunFiles::new(dir.path());
        let write = |path: std::path::PathBuf| {
            std::fs::write(&path, &bytes).expect("room for the input");
            path
        };
        match table {
            0 => drop(read_requests_parquet(&write(files.requests()))),
            1 => drop(for_each_gap(&write(files.every_gap()), drop)),
            2 => drop(read_metrics_parquet(&write(files.metrics()))),
            3 => drop(read_gaps(&write(files.gaps()))),
            _ => drop(read_events(&write(files.events()))),
        }
    }
);
