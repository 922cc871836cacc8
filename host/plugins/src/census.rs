//! How much there is in a component to compile, counted off its bytes before the
//! compiler sees any of them: the compiler knows no bound on time or memory.

use wasmparser::{BinaryReaderError, Payload};

use crate::error::Refusal;
use crate::limits::{
    MAX_BODY_BYTES, MAX_BODY_LOCALS, MAX_CODE_BYTES, MAX_DEFINITIONS, MAX_FUNCTIONS,
    MAX_INNER_COMPONENTS, MAX_NESTING,
};

/// Counts over a whole component, with all modules and components inside it.
#[derive(Debug, Default)]
pub(crate) struct Census {
    code_bytes: u64,
    functions: u64,
    types: u64,
    imports: u64,
    exports: u64,
    instances: u64,
    tables: u64,
    memories: u64,
    globals: u64,
    segments: u64,
    aliases: u64,
    inner: u64,
}

/// Refuses more than `limit` of `what`.
fn within(found: u64, limit: u64, what: &'static str) -> Result<(), Refusal> {
    if found > limit {
        return Err(Refusal::Outsized { what, found, limit });
    }
    Ok(())
}

fn add(sum: &mut u64, count: u32, limit: u64, what: &'static str) -> Result<(), Refusal> {
    *sum += u64::from(count);
    within(*sum, limit, what)
}

impl Census {
    /// Takes in a payload that lies `depth` modules or components deep.
    ///
    /// # Errors
    /// [`Refusal::Outsized`] with the first limit that is passed.
    pub(crate) fn count(
        &mut self,
        payload: &Payload<'_>,
        depth: usize,
        malformed: impl Fn(BinaryReaderError) -> Refusal,
    ) -> Result<(), Refusal> {
        match payload {
            Payload::Version { .. } => within(
                depth as u64,
                MAX_NESTING,
                "levels of modules and components inside each other",
            ),
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => add(
                &mut self.inner,
                1,
                MAX_INNER_COMPONENTS,
                "modules and components inside it",
            ),
            Payload::CodeSectionEntry(body) => {
                let bytes = body.range().len() as u64;
                within(bytes, MAX_BODY_BYTES, "bytes in one function")?;
                self.code_bytes += bytes;
                within(self.code_bytes, MAX_CODE_BYTES, "bytes of code")?;
                let mut locals = 0;
                for group in body.get_locals_reader().map_err(&malformed)? {
                    let (count, _) = group.map_err(&malformed)?;
                    add(
                        &mut locals,
                        count,
                        MAX_BODY_LOCALS,
                        "locals in one function",
                    )?;
                }
                Ok(())
            }
            Payload::FunctionSection(s) => {
                add(&mut self.functions, s.count(), MAX_FUNCTIONS, "functions")
            }
            Payload::ComponentCanonicalSection(s) => {
                add(&mut self.functions, s.count(), MAX_FUNCTIONS, "functions")
            }
            Payload::TypeSection(s) => add(&mut self.types, s.count(), MAX_DEFINITIONS, "types"),
            Payload::CoreTypeSection(s) => {
                add(&mut self.types, s.count(), MAX_DEFINITIONS, "types")
            }
            Payload::ComponentTypeSection(s) => {
                add(&mut self.types, s.count(), MAX_DEFINITIONS, "types")
            }
            Payload::ImportSection(s) => {
                add(&mut self.imports, s.count(), MAX_DEFINITIONS, "imports")
            }
            Payload::ComponentImportSection(s) => {
                add(&mut self.imports, s.count(), MAX_DEFINITIONS, "imports")
            }
            Payload::ExportSection(s) => {
                add(&mut self.exports, s.count(), MAX_DEFINITIONS, "exports")
            }
            Payload::ComponentExportSection(s) => {
                add(&mut self.exports, s.count(), MAX_DEFINITIONS, "exports")
            }
            Payload::InstanceSection(s) => {
                add(&mut self.instances, s.count(), MAX_DEFINITIONS, "instances")
            }
            Payload::ComponentInstanceSection(s) => {
                add(&mut self.instances, s.count(), MAX_DEFINITIONS, "instances")
            }
            Payload::TableSection(s) => add(&mut self.tables, s.count(), MAX_DEFINITIONS, "tables"),
            Payload::MemorySection(s) => {
                add(&mut self.memories, s.count(), MAX_DEFINITIONS, "memories")
            }
            Payload::GlobalSection(s) => {
                add(&mut self.globals, s.count(), MAX_DEFINITIONS, "globals")
            }
            Payload::ElementSection(s) => {
                add(&mut self.segments, s.count(), MAX_DEFINITIONS, "segments")
            }
            Payload::DataSection(s) => {
                add(&mut self.segments, s.count(), MAX_DEFINITIONS, "segments")
            }
            Payload::ComponentAliasSection(s) => {
                add(&mut self.aliases, s.count(), MAX_DEFINITIONS, "aliases")
            }
            _ => Ok(()),
        }
    }
}
