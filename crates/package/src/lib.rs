//! CSAR packages and their VNFDs: bytes in, a typed descriptor or a reason with file and line out.
//!
//! Everything here is synchronous and works on files: callers run it where blocking is allowed. What
//! is read was written by strangers, so every size is bounded before it is used ([`Limits`]).

mod archive;
mod entry;
mod extract;
mod hash;
mod item;
mod manifest;
mod package;
mod policy;
mod read;
mod rejection;
mod signature;
mod sol001;
mod tosca;
mod vnfd;
mod yaml;

pub use archive::{Archive, EntryReader, open};
pub use extract::{PackError, extract, pack, vnfd_zip};
pub use package::{Artifact, ArtifactKind, Package};
pub use policy::{Limits, Policy, Signature};
pub use read::read;
pub use rejection::Rejection;
pub use vnfd::{
    Affinity, AffinityRule, Aspect, Checksum, Compute, Cp, ExtCp, Flavour, Image, Implementation, Input, L3,
    Level, Role, Storage, StorageKind, Vdu, VirtualLink, Vnfd,
};
