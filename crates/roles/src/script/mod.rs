//! A package's own script: it is asked what is to be done, and what it answers becomes a plan.
//!
//! [`decide`] runs the script in a sandbox with the request and the machines on its standard input and
//! reads steps from its standard output. [`plan`] makes tasks of them, without I/O, and [`handlers`] do
//! these tasks. So what a script wants done survives crashes like everything else, and the script itself
//! never touches a machine.

mod answer;
mod decide;
mod handlers;
mod input;
mod payload;
mod plan;
mod run;
mod secrets;

pub use answer::{Action, Content, Decision, Put, Run, Step, Wait};
pub use decide::{Invocation, ScriptError, ScriptLimits, decide};
pub use handlers::{Scripts, Went, handlers};
pub use input::{Change, PROTOCOL, ScriptInput, ScriptMachine, ScriptVnf};
pub use plan::{ScriptPlan, plan};
