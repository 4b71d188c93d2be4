//! TOSCA Simple Profile in YAML: the files of a service template, the types they define, and functions in values.

pub mod documents;
pub mod functions;
pub mod types;

pub use documents::{Document, Documents};
pub use functions::Scope;
pub use types::{NodeKind, Types};
