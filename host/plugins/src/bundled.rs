//! Plugins that were embedded in the program when it was built.

/// A plugin inside the program.
#[derive(Debug)]
pub struct Bundled {
    /// Name of the file it was embedded from.
    pub file_name: &'static str,
    /// The component.
    pub bytes: &'static [u8],
    /// SHA-256 of the component, taken when it was embedded.
    pub sha256: [u8; 32],
}

include!(concat!(env!("OUT_DIR"), "/bundled.rs"));

/// Plugins inside the program, ordered by file name; none when the program was built
/// before `cargo xtask plugins` had run.
pub fn bundled() -> &'static [Bundled] {
    BUNDLED
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    #[test]
    fn digests_are_those_of_the_bytes() {
        for plugin in bundled() {
            assert_eq!(
                Sha256::digest(plugin.bytes)[..],
                plugin.sha256,
                "{}",
                plugin.file_name
            );
        }
    }
}
