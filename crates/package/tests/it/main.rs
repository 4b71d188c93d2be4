//! Packages as their authors write them, as attackers bend them, and the verdicts on both.

mod accepted;
mod builder;
mod hostile;
mod mutations;
mod rejected;
mod signed;
