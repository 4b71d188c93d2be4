//! A package as a whole: what it holds, and the verdict on it.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::vnfd::Vnfd;

/// A package that was read and found right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Package {
    /// The descriptor.
    pub vnfd: Vnfd,
    /// Every file that makes up the descriptor, the entry first.
    pub vnfd_files: Vec<String>,
    /// Every other file, save `TOSCA.meta`, the manifest and its certificate.
    pub artifacts: Vec<Artifact>,
    /// The subject of the trusted certificate that the package is signed with.
    pub signer: Option<String>,
    /// The SHA-256 of the whole upload, in hexadecimal.
    pub sha256: String,
    /// The size of the whole upload.
    pub size: u64,
    /// What was passed over, for the package's author.
    pub warnings: Vec<String>,
}

/// A file in the package that is not part of the descriptor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its path inside the package.
    pub path: String,
    /// The hash's algorithm: the one that the package declares, or else `sha-256`.
    pub algorithm: String,
    /// The hash, in hexadecimal.
    pub hash: String,
    /// Its size.
    pub size: u64,
    /// What it is for.
    pub kind: ArtifactKind,
    /// What the package says about it, such as its `content_type`.
    pub metadata: BTreeMap<String, String>,
}

/// What an artifact is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactKind {
    /// The image of a VDU or a volume.
    SoftwareImage,
    /// The implementation of a point of an operation.
    Script,
    /// The change log.
    ChangeLog,
    /// Below the licences' directory.
    Licence,
    /// Below the tests' directory.
    Test,
    /// Anything else.
    Other,
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vnfd = &self.vnfd;
        writeln!(f, "{} {} by {}", vnfd.product_name, vnfd.software_version, vnfd.provider)?;
        writeln!(f, "  vnfd       {} version {}", vnfd.id, vnfd.version)?;
        writeln!(f, "  content    {} bytes, sha-256 {}", self.size, self.sha256)?;
        writeln!(f, "  signer     {}", self.signer.as_deref().unwrap_or("none"))?;
        for flavour in &vnfd.flavours {
            writeln!(f, "  flavour    {}", flavour.id)?;
            for vdu in &flavour.vdus {
                writeln!(f, "    vdu      {}: {} to {} machines", vdu.id, vdu.min, vdu.max)?;
            }
            for aspect in &flavour.aspects {
                writeln!(f, "    aspect   {}: levels 0 to {}", aspect.id, aspect.max_level)?;
            }
            for level in &flavour.levels {
                let is_default = flavour.default_level.as_deref() == Some(level.id.as_str());
                let counts: Vec<_> = level.counts.iter().map(|(vdu, n)| format!("{n} {vdu}")).collect();
                let note = if is_default { " (default)" } else { "" };
                writeln!(f, "    level    {}: {}{note}", level.id, counts.join(", "))?;
            }
            for (point, implementation) in &flavour.lcm {
                writeln!(f, "    {point}: {}", implementation.name)?;
            }
        }
        for warning in &self.warnings {
            writeln!(f, "  warning    {warning}")?;
        }
        Ok(())
    }
}
