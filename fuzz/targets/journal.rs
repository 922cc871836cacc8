//! A journal of records, as a killed instrument leaves it: read, and sealed into tables.

#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use blackstart_fuzz::{edited, every_gap, folder, gaps, made, records};
use blackstart_record::{RequestJournalWriter, RunFiles, read_recorded, seal_journal};
use libfuzzer_sys::fuzz_target;

static EMPTY: LazyLock<Vec<u8>> = LazyLock::new(|| journal(|_| {}));
static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    journal(|journal| {
        for record in records() {
            journal.append(&record).expect("room for it");
        }
        for (bucket, histogram) in &gaps().buckets {
            journal
                .append_gaps(*bucket, histogram)
                .expect("room for it");
        }
        journal.append_every_gap(&every_gap()).expect("room for it");
    })
});

fuzz_target!(|input: &[u8]| {
    let Some((&kind, bytes)) = input.split_first() else {
        return;
    };
    let journal = match kind % 3 {
        0 => bytes.to_vec(),
        1 => edited(&WHOLE, bytes),
        // Frames whose checksums are right, so that what they hold is looked at.
        _ => {
            let mut journal = EMPTY.clone();
            for payload in bytes.split(|&b| b == b'|') {
                journal.extend((payload.len() as u32).to_le_bytes());
                journal.extend(crc32fast::hash(payload).to_le_bytes());
                journal.extend(payload);
            }
            journal
        }
    };
    let dir = folder();
    std::fs::write(RunFiles::new(dir.path()).journal(), journal).expect("room for the input");
    let _ = read_recorded(dir.path());
    if seal_journal(dir.path()).is_ok() {
        let sealed = read_recorded(dir.path());
        assert!(
            sealed.is_ok(),
            "what was sealed can be read: {:?}",
            sealed.err()
        );
    }
});

fn journal(fill: impl FnOnce(&mut RequestJournalWriter)) -> Vec<u8> {
    made(RunFiles::journal, |path: &Path| {
        let mut journal = RequestJournalWriter::create(path).expect("a new file");
        fill(&mut journal);
        journal.flush().expect("room for it");
    })
}
