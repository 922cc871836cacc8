//! A component as a file: its digest, its identity stamp, its world and its imports,
//! all read from the bytes before anything is compiled or run.

use std::borrow::Cow;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use semver::Version;
use sha2::{Digest, Sha256};
use wasmparser::{ComponentExternalKind, Encoding, Parser, Payload};

use crate::api::{self, World};
use crate::census::Census;
use crate::error::{PluginError, Refusal};
use crate::grants::{Grants, ReplicaGrant};
use crate::limits::MAX_ARTIFACT_BYTES;
use crate::stamp::Stamp;
use crate::text::shown;
use crate::types::Label;

/// Most imports or exports of a component that are looked at.
const MAX_NAMES: usize = 64;
/// Longest import or export name shown in an error, in bytes.
const MAX_SHOWN_NAME: usize = 128;

/// A plugin that may be asked for its code: well-formed on the outside, stamped, of a
/// known world and of an API this host speaks. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Artifact {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    origin: String,
    bytes: Cow<'static, [u8]>,
    sha256: [u8; 32],
    stamp: Stamp,
    imports: Vec<String>,
}

impl Artifact {
    /// Reads a plugin from a file.
    ///
    /// # Errors
    /// [`PluginError::Refused`] with the path as origin.
    pub fn from_path(path: &Path) -> Result<Artifact, PluginError> {
        let origin = shown(&path.display().to_string(), 1024);
        let refuse = |reason| PluginError::refused(&origin, reason);
        let unreadable = |e: std::io::Error| refuse(Refusal::Unreadable(e.to_string()));
        // Without O_NONBLOCK, opening a pipe would wait for its writer.
        let file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(path)
            .map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        if !meta.is_file() {
            return Err(refuse(Refusal::Unreadable("not a plain file".into())));
        }
        if meta.len() > MAX_ARTIFACT_BYTES {
            return Err(refuse(Refusal::TooLarge {
                bytes: meta.len(),
                max: MAX_ARTIFACT_BYTES,
            }));
        }
        let mut bytes = Vec::with_capacity(meta.len() as usize + 1);
        // One byte over the bound, so that a file that grew meanwhile is noticed.
        file.take(MAX_ARTIFACT_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        Artifact::from_bytes(&origin, bytes)
    }

    /// Reads a plugin from bytes; `origin` is what errors call it.
    ///
    /// # Errors
    /// [`PluginError::Refused`].
    pub fn from_bytes(
        origin: &str,
        bytes: impl Into<Cow<'static, [u8]>>,
    ) -> Result<Artifact, PluginError> {
        let bytes = bytes.into();
        if bytes.len() as u64 > MAX_ARTIFACT_BYTES {
            let reason = Refusal::TooLarge {
                bytes: bytes.len() as u64,
                max: MAX_ARTIFACT_BYTES,
            };
            return Err(PluginError::refused(origin, reason));
        }
        let sha256 = Sha256::digest(&bytes).into();
        Artifact::digested(origin, bytes, sha256)
    }

    /// As [`Artifact::from_bytes`], for bytes whose digest is known already.
    pub(crate) fn digested(
        origin: &str,
        bytes: Cow<'static, [u8]>,
        sha256: [u8; 32],
    ) -> Result<Artifact, PluginError> {
        let outline = outline(&bytes).map_err(|r| PluginError::refused(origin, r))?;
        let imports = outline.imports.clone();
        let stamp = admit(outline).map_err(|r| PluginError::refused(origin, r))?;
        Ok(Artifact {
            inner: Arc::new(Inner {
                origin: origin.to_owned(),
                bytes,
                sha256,
                stamp,
                imports,
            }),
        })
    }

    /// Where it came from: a path, or `bundled:FILE`.
    pub fn origin(&self) -> &str {
        &self.inner.origin
    }

    /// SHA-256 of the file.
    pub fn sha256(&self) -> &[u8; 32] {
        &self.inner.sha256
    }

    /// SHA-256 of the file in lower-case hexadecimal.
    pub fn sha256_hex(&self) -> String {
        hex::encode(self.inner.sha256)
    }

    /// Name and version.
    pub fn label(&self) -> &Label {
        &self.inner.stamp.label
    }

    /// Plugin API it was built for.
    pub fn api(&self) -> &Version {
        &self.inner.stamp.api
    }

    /// Its world.
    pub fn world(&self) -> World {
        self.inner.stamp.world
    }

    /// Full names of the interfaces it imports, in its own order.
    pub fn imports(&self) -> &[String] {
        &self.inner.imports
    }

    /// True when it imports the interface of this bare name.
    pub fn imports_interface(&self, interface: &str) -> bool {
        self.inner
            .imports
            .iter()
            .filter_map(|full| api::parse_interface(full))
            .any(|name| name.interface == interface)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.inner.bytes
    }

    /// Refuses a digest other than `pin`, a SHA-256 in hexadecimal.
    ///
    /// # Errors
    /// [`Refusal::PinMismatch`].
    pub fn check_pin(&self, pin: &str) -> Result<(), PluginError> {
        let found = self.sha256_hex();
        if found.eq_ignore_ascii_case(pin) {
            return Ok(());
        }
        let expected = shown(pin, 128);
        Err(self.refuse(Refusal::PinMismatch { expected, found }))
    }

    /// Refuses a plugin of another world.
    ///
    /// # Errors
    /// [`Refusal::WrongWorld`].
    pub fn check_world(&self, expected: World) -> Result<(), PluginError> {
        if self.world() == expected {
            return Ok(());
        }
        Err(self.refuse(Refusal::WrongWorld {
            plugin: self.label().clone(),
            expected,
            found: self.world(),
        }))
    }

    /// Refuses a plugin that imports an interface the configuration does not grant.
    ///
    /// # Errors
    /// [`Refusal::NotGranted`], which names the interface and the line to add.
    pub fn check_grants(&self, grants: &Grants) -> Result<(), PluginError> {
        for (interface, granted) in [
            (api::EFFECT_PROCESS, grants.grants(ReplicaGrant::Process)),
            (
                api::EFFECT_CONTAINER,
                grants.grants(ReplicaGrant::Container),
            ),
            (api::EFFECT_NETWORK, grants.grants(ReplicaGrant::Network)),
            (
                api::EFFECT_RESOURCES,
                grants.grants(ReplicaGrant::Resources),
            ),
            (api::EFFECT_HTTP, grants.grants_http()),
        ] {
            if self.imports_interface(interface) && !granted {
                return Err(self.refuse(Refusal::NotGranted {
                    plugin: self.label().clone(),
                    interface,
                }));
            }
        }
        Ok(())
    }

    pub(crate) fn refuse(&self, reason: Refusal) -> PluginError {
        PluginError::refused(self.origin(), reason)
    }
}

/// What can be read off a component without compiling it.
#[derive(Debug, Default)]
struct Outline {
    stamp: Option<Stamp>,
    imports: Vec<String>,
    exports: Vec<String>,
}

fn outline(bytes: &[u8]) -> Result<Outline, Refusal> {
    if !bytes.starts_with(b"\0asm") {
        return Err(Refusal::NotWasm);
    }
    let malformed = |e: wasmparser::BinaryReaderError| {
        Refusal::Malformed(shown(&e.to_string(), MAX_SHOWN_NAME))
    };
    let mut outline = Outline::default();
    // The stamp of the component itself goes before one of a module inside it.
    let mut own: Option<&[u8]> = None;
    let mut inner: Option<&[u8]> = None;
    let mut depth = 0_usize;
    let mut census = Census::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(malformed)?;
        census.count(&payload, depth + 1, malformed)?;
        match payload {
            Payload::Version { encoding, .. } => {
                if depth == 0 && encoding == Encoding::Module {
                    return Err(Refusal::CoreModule);
                }
                depth += 1;
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) if section.name() == api::STAMP_SECTION => {
                let seen = if depth == 1 { &mut own } else { &mut inner };
                if seen.is_some_and(|earlier| earlier != section.data()) {
                    return Err(Refusal::BadStamp("there are two, and they differ".into()));
                }
                *seen = Some(section.data());
            }
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section {
                    let import = import.map_err(malformed)?;
                    push_name(&mut outline.imports, import.name.name)?;
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    let export = export.map_err(malformed)?;
                    if export.kind == ComponentExternalKind::Instance {
                        push_name(&mut outline.exports, export.name.name)?;
                    }
                }
            }
            _ => {}
        }
    }
    if let Some(section) = own.or(inner) {
        outline.stamp = Some(Stamp::parse(section).map_err(Refusal::BadStamp)?);
    }
    Ok(outline)
}

fn push_name(names: &mut Vec<String>, name: &str) -> Result<(), Refusal> {
    if names.len() == MAX_NAMES {
        return Err(Refusal::Malformed(format!(
            "more than {MAX_NAMES} imports or exports"
        )));
    }
    names.push(shown(name, MAX_SHOWN_NAME));
    Ok(())
}

/// Decides whether a component of this outline can be a plugin of this host.
fn admit(outline: Outline) -> Result<Stamp, Refusal> {
    let Some(stamp) = outline.stamp else {
        return Err(Refusal::NoStamp);
    };
    let plugin = || stamp.label.clone();
    if !api::compatible(&stamp.api) {
        let api = stamp.api.clone();
        return Err(if api > api::HOST_API {
            Refusal::NewerApi {
                plugin: plugin(),
                api,
            }
        } else {
            Refusal::OlderApi {
                plugin: plugin(),
                api,
            }
        });
    }
    let worlds: Vec<World> = outline
        .exports
        .iter()
        .filter_map(|full| api::parse_interface(full))
        .filter(|name| api::compatible(&name.version))
        .filter_map(|name| World::from_export(name.interface))
        .collect();
    let &[world] = worlds.as_slice() else {
        let found = if outline.exports.is_empty() {
            "no interface".to_owned()
        } else {
            outline.exports.join(", ")
        };
        return Err(Refusal::NoWorld {
            plugin: plugin(),
            found,
        });
    };
    if world != stamp.world {
        return Err(Refusal::WorldMismatch {
            plugin: plugin(),
            stamp: stamp.world,
            exports: world,
        });
    }
    for import in &outline.imports {
        let known = api::parse_interface(import)
            .filter(|name| api::compatible(&name.version))
            .map(|name| name.interface)
            .filter(|interface| api::is_known_import(interface));
        let Some(interface) = known else {
            // An import that only a later release of the same line has.
            if stamp.api > api::HOST_API && import.starts_with(api::PACKAGE) {
                let api = stamp.api.clone();
                return Err(Refusal::NewerApi {
                    plugin: plugin(),
                    api,
                });
            }
            let import = import.clone();
            return Err(Refusal::UnknownImport {
                plugin: plugin(),
                import,
            });
        };
        if !world.imports().contains(&interface) {
            return Err(Refusal::NotInWorld {
                plugin: plugin(),
                import: import.clone(),
                world,
            });
        }
    }
    Ok(stamp)
}
