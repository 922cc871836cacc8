//! What operations can tell about themselves while they are in force, for the proof.

use std::sync::{Arc, Mutex, PoisonError};

/// Name and value; `None` = not readable.
type Reading = Vec<(String, Option<String>)>;

struct Source {
    replica: String,
    read: Box<dyn Fn() -> Reading + Send + Sync>,
    /// The last reading, of what cannot be read any more.
    last: Mutex<Option<Reading>>,
}

/// Where operations leave their facts.
#[derive(Default)]
pub struct FactBoard(Mutex<Vec<Arc<Source>>>);

/// One operation's facts.
pub struct FactSource(Arc<Source>);

impl FactBoard {
    /// Adds what can be read about a replica.
    pub fn add(
        self: &Arc<Self>,
        replica: &str,
        read: impl Fn() -> Reading + Send + Sync + 'static,
    ) -> FactSource {
        let source = Arc::new(Source {
            replica: replica.to_owned(),
            read: Box::new(read),
            last: Mutex::default(),
        });
        lock(&self.0).push(source.clone());
        FactSource(source)
    }

    /// All facts about a replica now. Of several sources of one name the last counts.
    pub fn read(&self, replica: &str) -> Reading {
        let sources: Vec<Arc<Source>> = lock(&self.0)
            .iter()
            .filter(|s| s.replica == replica)
            .cloned()
            .collect();
        let mut all: Reading = Vec::new();
        for source in sources {
            let last = lock(&source.last).clone();
            for (name, value) in last.unwrap_or_else(|| (source.read)()) {
                all.retain(|(n, _)| *n != name);
                all.push((name, value));
            }
        }
        all
    }
}

impl FactSource {
    /// Reads a last time, and stays with that.
    pub fn freeze(&self) {
        let mut last = lock(&self.0.last);
        if last.is_none() {
            *last = Some((self.0.read)());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_frozen_source_keeps_its_last_reading() {
        let board = Arc::new(FactBoard::default());
        let count = Arc::new(AtomicU64::new(1));
        let seen = count.clone();
        let source = board.add("r0", move || {
            vec![(
                "n".to_owned(),
                Some(seen.load(Ordering::Relaxed).to_string()),
            )]
        });
        source.freeze();
        count.store(2, Ordering::Relaxed);
        assert_eq!(board.read("r0")[0].1.as_deref(), Some("1"));
        assert!(board.read("r1").is_empty());
    }
}
