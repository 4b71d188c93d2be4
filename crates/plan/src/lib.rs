//! Plans that never lose their place: an immutable DAG of tasks and an executor whose every step is
//! committed to a journal before and after it acts.

mod fence;
pub use fence::Fence;
