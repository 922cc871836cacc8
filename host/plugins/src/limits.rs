//! Bounds on what a guest may use and on what the host takes from it, and the
//! limiter that holds an instance to them.

use std::time::Duration;

use wasmtime::ResourceLimiter;

use crate::error::Stopped;

/// Largest component the host looks at, in bytes.
pub const MAX_ARTIFACT_BYTES: u64 = 64 << 20;
/// Most bytes of code of a component, over all its functions.
pub const MAX_CODE_BYTES: u64 = 32 << 20;
/// Most bytes of one function.
pub const MAX_BODY_BYTES: u64 = 256 << 10;
/// Most locals of one function.
pub const MAX_BODY_LOCALS: u64 = 4096;
/// Most functions of a component, over all its modules.
pub const MAX_FUNCTIONS: u64 = 65_536;
/// Most types, imports, exports, instances, tables, memories, globals, segments and
/// aliases of a component, each, over all modules and components inside it.
pub const MAX_DEFINITIONS: u64 = 16_384;
/// Most modules and components inside a component.
pub const MAX_INNER_COMPONENTS: u64 = 256;
/// Deepest nesting of modules and components, the outermost included.
pub const MAX_NESTING: u64 = 8;
/// Most linear memory of one instance, over all its memories, in bytes.
pub const MAX_MEMORY_BYTES: usize = 64 << 20;
/// Most table elements of one instance, over all its tables.
pub const MAX_TABLE_ELEMENTS: usize = 100_000;
/// Most core instances inside one component instance.
pub const MAX_CORE_INSTANCES: usize = 64;
/// Most linear memories inside one component instance.
pub const MAX_MEMORIES: usize = 8;
/// Most tables inside one component instance.
pub const MAX_TABLES: usize = 32;
/// Stack that guest code may use, in bytes.
pub const MAX_WASM_STACK_BYTES: usize = 512 << 10;
/// Most data one call hands over from guest to host, in bytes as the host holds it.
pub const MAX_TRANSFER_BYTES: usize = 8 << 20;
/// Most resource handles a guest may hold.
pub const MAX_HANDLES: usize = 4096;

/// Processor time of `describe`, `arm`, `observe`, `prove`, `probe`, `evaluate` and
/// of the session constructor, each.
pub const CALL_BUDGET: Duration = Duration::from_secs(1);
/// Processor time of one batch of log lines.
pub const BATCH_BUDGET: Duration = Duration::from_millis(250);
/// A call is stopped at this multiple of its budget even if other programs kept the
/// processor from it.
pub const WALL_FACTOR: u32 = 10;

/// Longest name, key or unit taken from a guest, in bytes.
pub const MAX_NAME_BYTES: usize = 256;
/// Longest sentence taken from a guest, in bytes.
pub const MAX_TEXT_BYTES: usize = 4 << 10;
/// Longest value of a field taken from a guest, in bytes.
pub const MAX_VALUE_BYTES: usize = 16 << 10;
/// Longest configuration schema, in bytes.
pub const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Most elements of a list taken from a guest, where no other bound is named.
pub const MAX_LIST: usize = 1024;

/// Log messages of one call that are passed on; the rest is counted.
pub const MAX_LOG_MESSAGES: u32 = 64;
/// Longest log message that is passed on, in bytes.
pub const MAX_LOG_BYTES: usize = 2 << 10;

/// Bounds that an [`crate::Engine`] holds its instances to. The defaults are the
/// constants of this module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Most linear memory of one instance, in bytes.
    pub memory_bytes: usize,
    /// Most table elements of one instance.
    pub table_elements: usize,
    /// Processor time of one call.
    pub call_budget: Duration,
    /// Processor time of one batch of log lines.
    pub batch_budget: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory_bytes: MAX_MEMORY_BYTES,
            table_elements: MAX_TABLE_ELEMENTS,
            call_budget: CALL_BUDGET,
            batch_budget: BATCH_BUDGET,
        }
    }
}

/// Counts what one instance holds. A growth past a bound becomes a trap, because
/// most guests turn a plain failure into an abort that says nothing.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory_bytes: usize,
    max_memory_bytes: usize,
    table_elements: usize,
    max_table_elements: usize,
    /// The bound that was hit, if one was.
    pub hit: Option<Stopped>,
}

impl Limiter {
    pub fn new(limits: &Limits) -> Limiter {
        Limiter {
            memory_bytes: 0,
            max_memory_bytes: limits.memory_bytes,
            table_elements: 0,
            max_table_elements: limits.table_elements,
            hit: None,
        }
    }

    fn refuse(&mut self, stopped: Stopped) -> wasmtime::Result<bool> {
        let message = stopped.to_string();
        self.hit.get_or_insert(stopped);
        Err(wasmtime::Error::msg(message))
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let total = self
            .memory_bytes
            .saturating_sub(current)
            .saturating_add(desired);
        if total > self.max_memory_bytes {
            let limit_bytes = self.max_memory_bytes;
            return self.refuse(Stopped::Memory { limit_bytes });
        }
        self.memory_bytes = total;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let total = self
            .table_elements
            .saturating_sub(current)
            .saturating_add(desired);
        if total > self.max_table_elements {
            let limit = self.max_table_elements;
            return self.refuse(Stopped::Count {
                what: "table elements",
                limit,
            });
        }
        self.table_elements = total;
        Ok(true)
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn instances(&self) -> usize {
        MAX_CORE_INSTANCES
    }

    fn tables(&self) -> usize {
        MAX_TABLES
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_over_all_memories_of_an_instance() {
        let limits = Limits {
            memory_bytes: 3 << 16,
            ..Limits::default()
        };
        let mut limiter = Limiter::new(&limits);
        assert!(limiter.memory_growing(0, 1 << 16, None).unwrap());
        assert!(limiter.memory_growing(0, 1 << 16, None).unwrap());
        assert!(limiter.memory_growing(1 << 16, 2 << 16, None).unwrap());
        assert_eq!(limiter.hit, None);
        assert!(limiter.memory_growing(1 << 16, 2 << 16, None).is_err());
        assert!(matches!(limiter.hit, Some(Stopped::Memory { .. })));
    }

    #[test]
    fn table_elements_are_counted_over_all_tables() {
        let limits = Limits {
            table_elements: 10,
            ..Limits::default()
        };
        let mut limiter = Limiter::new(&limits);
        assert!(limiter.table_growing(0, 8, None).unwrap());
        assert!(limiter.table_growing(0, 3, None).is_err());
        assert!(matches!(limiter.hit, Some(Stopped::Count { .. })));
    }
}
