//! What a site asks of packages: who must have signed them, and how large they may become.

/// How packages are judged.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The certificates that signers are traced back to: DER, or text with any number of PEM blocks.
    pub trust: Vec<Vec<u8>>,
    /// Whether packages must be signed.
    pub signature: Signature,
    /// The bounds on what a package may contain.
    pub limits: Limits,
}

/// Whether a signature is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Signature {
    /// Signatures are not looked at. Hashes still are.
    Ignore,
    /// A signature that is there must be right, and its signer trusted if [`Policy::trust`] names anybody.
    #[default]
    IfPresent,
    /// A package without the signature of a trusted signer is refused.
    Required,
}

/// Bounds on a package, so that a small upload cannot fill memory or disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Entries in the archive, directories included.
    pub entries: u32,
    /// Bytes of all files together once unpacked.
    pub unpacked_bytes: u64,
    /// How many times larger than its compressed form a file of more than [`Limits::ratio_from_bytes`] may be.
    pub ratio: u64,
    /// Files up to this size are not measured against [`Limits::ratio`]: text compresses well.
    pub ratio_from_bytes: u64,
    /// Bytes in the name of an entry.
    pub path_bytes: usize,
    /// Bytes of one text file that is parsed: a definition, `TOSCA.meta`, a manifest, a signature.
    pub text_bytes: u64,
    /// Definition files that make up one VNFD.
    pub definitions: usize,
    /// How deep collections may nest in YAML.
    pub yaml_depth: usize,
    /// Values in all definition files together, with every alias followed.
    pub yaml_nodes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 20_000,
            unpacked_bytes: 20_000_000_000,
            ratio: 200,
            ratio_from_bytes: 16 << 20,
            path_bytes: 512,
            text_bytes: 1 << 20,
            definitions: 64,
            yaml_depth: 64,
            yaml_nodes: 200_000,
        }
    }
}
