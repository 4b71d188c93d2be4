use crate::{
    cli::{HostsCommand, Output},
    installation::Installation,
};
use guywire_machines::{Infra, InfraError, InfraErrorKind};
use std::{path::Path, process::ExitCode, sync::Arc};

pub fn open(_: &Installation, file: &Path) -> Result<Arc<dyn Infra>, InfraError> {
    Err(InfraError::new(InfraErrorKind::Invalid, format!("{}", file.display())))
}
pub async fn run(_: HostsCommand, _: &Installation, _: Output) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::FAILURE)
}
