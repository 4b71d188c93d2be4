//! `guywire plan`, and executing plans in this process while they are shown.

use std::{process::ExitCode, time::Duration};

use anyhow::{anyhow, bail};
use guywire_plan::{
    Cancel, CancelMode, Cursor, Engine, EngineError, JournalErrorKind, PlanId, PlanState, follow,
};

use crate::{
    cli::{Output, PlanCommand},
    installation::Installation,
    output::{Table, list},
    progress::Progress,
    show,
};

pub async fn run(
    command: PlanCommand,
    installation: &Installation,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let engine = installation.engine().await?;
    let journal = engine.journal().clone();
    match command {
        PlanCommand::List { limit } => {
            let plans = journal.list(limit).await?;
            let mut table = Table::new(["PLAN", "STATE", "TASKS", "CREATED", "TITLE"]);
            for plan in &plans {
                let state = if plan.state.is_active() && !plan.executing {
                    "interrupted"
                } else {
                    plan.state.as_str()
                };
                let created = plan.created.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
                table.row([
                    plan.id.to_string(),
                    state.to_owned(),
                    plan.tasks.to_string(),
                    created,
                    plan.title.clone(),
                ]);
            }
            list(output, &plans, &table, "no plans yet; `guywire lab up` makes one")?;
        }
        PlanCommand::Show { plan } => {
            let header = journal.header(plan).await?;
            let (plan, view) = engine.load(plan).await?;
            match output {
                Output::Table => println!("{}", show::draw(&header, &plan, &view)),
                Output::Json => {
                    println!("{}", serde_json::to_string_pretty(&show::data(&header, &plan, &view))?);
                }
            }
        }
        PlanCommand::Watch { plan } => return Ok(code(watch(&engine, plan).await?)),
        PlanCommand::Resume { plan } => {
            let header = journal.header(plan).await?;
            if header.state.is_resumable() {
                engine.resume(plan).await?;
            } else if !header.state.is_active() {
                bail!("plan {plan} is {}: there is nothing to go on with", header.state.as_str());
            }
            return Ok(code(execute(&engine, plan).await?));
        }
        PlanCommand::Cancel { plan, force, undo } => {
            let mode = if force { CancelMode::Forceful } else { CancelMode::Graceful };
            engine.cancel(plan, Cancel { mode, undo }).await?;
            // Where nobody is there to heed the wish, this process takes the plan to its end. The lease tells
            // for certain; the header may still name a process that was killed a moment ago.
            let Some(state) = execute_unless_taken(&engine, plan).await? else {
                println!(
                    "asked the process that executes plan {plan} to stop; `guywire plan watch {plan}` shows how it does"
                );
                return Ok(ExitCode::SUCCESS);
            };
            let good = matches!(state, PlanState::Cancelled | PlanState::Undone);
            return Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Follows a plan that somebody executes, until it ends.
pub async fn watch(engine: &Engine, plan: PlanId) -> anyhow::Result<PlanState> {
    let header = engine.journal().header(plan).await?;
    let nobody = || anyhow!("nobody executes plan {plan}; go on with it with `guywire plan resume {plan}`");
    if header.state.is_active() && !header.executing {
        return Err(nobody());
    }
    follow_other(engine, plan).await?.ok_or_else(nobody)
}

/// Follows the process that executes a plan until the plan ends; `None` if that process is gone before.
async fn follow_other(engine: &Engine, plan: PlanId) -> anyhow::Result<Option<PlanState>> {
    let journal = engine.journal();
    let (spec, _) = engine.load(plan).await?;
    let mut progress = Progress::new(&spec);
    let gone = async {
        let mut looks = 0;
        // Twice in a row: a plan that was only just accepted has no lease for a moment.
        while looks < 2 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let header = journal.header(plan).await?;
            looks = if header.state.is_active() && !header.executing { looks + 1 } else { 0 };
        }
        anyhow::Ok(())
    };
    tokio::select! {
        followed = follow(&**journal, plan, Cursor::default(), |event| progress.see(event)) => {
            followed?;
        }
        gone = gone => {
            gone?;
            return Ok(None);
        }
        interrupt = tokio::signal::ctrl_c() => {
            interrupt?;
            bail!("no longer following plan {plan}, which another process executes; `guywire plan cancel {plan}` stops it");
        }
    }
    let (_, view) = engine.load(plan).await?;
    progress.end(&spec.title, view.state, view.reason.as_deref());
    Ok(Some(view.state))
}

/// Executes a plan in this process, or follows the process that does, until it ends. Should that one go
/// away in the middle, this one takes over.
pub async fn execute(engine: &Engine, plan: PlanId) -> anyhow::Result<PlanState> {
    loop {
        if let Some(state) = execute_unless_taken(engine, plan).await? {
            return Ok(state);
        }
        eprintln!("another process executes plan {plan}; following it");
        if let Some(state) = follow_other(engine, plan).await? {
            return Ok(state);
        }
        eprintln!("the process that executed plan {plan} is gone; going on with it");
    }
}

/// Executes a plan in this process until it ends; `None` if another process does.
async fn execute_unless_taken(engine: &Engine, plan: PlanId) -> anyhow::Result<Option<PlanState>> {
    let (spec, view) = engine.load(plan).await?;
    let running = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(plan).await }
    });
    let interrupts = tokio::spawn(heed_interrupts(engine.clone(), plan));
    let mut progress = Progress::new(&spec);
    let journal = engine.journal().clone();
    let ended = {
        let following = follow(&*journal, plan, view.cursor, |event| progress.see(event));
        tokio::pin!(running, following);
        // An engine that ended with an error has left the plan unfinished: nobody may be left to follow.
        tokio::select! {
            ended = &mut running => {
                let ended = ended?;
                if ended.is_ok() {
                    (&mut following).await?;
                }
                ended
            }
            followed = &mut following => {
                followed?;
                running.await?
            }
        }
    };
    interrupts.abort();
    match ended {
        Ok(report) => {
            progress.end(&spec.title, report.outcome.state, report.outcome.reason.as_deref());
            Ok(Some(report.outcome.state))
        }
        Err(EngineError::Journal(error)) if error.kind == JournalErrorKind::Executing => Ok(None),
        Err(error) => Err(anyhow::Error::new(error)
            .context(format!("plan {plan} is unfinished; go on with `guywire plan resume {plan}`"))),
    }
}

/// The first Ctrl-C lets running tasks end, the second stops them, the third leaves the plan as it is.
async fn heed_interrupts(engine: Engine, plan: PlanId) {
    let wishes = [
        (CancelMode::Graceful, "stopping when running tasks have ended; press Ctrl-C again to stop them now"),
        (CancelMode::Forceful, "stopping running tasks; press Ctrl-C again to leave the plan as it is"),
    ];
    for (mode, words) in wishes {
        if tokio::signal::ctrl_c().await.is_err() {
            return;
        }
        eprintln!("{words}");
        if let Err(error) = engine.cancel(plan, Cancel { mode, undo: false }).await {
            eprintln!("{error}");
        }
    }
    if tokio::signal::ctrl_c().await.is_ok() {
        eprintln!("left as it is; go on with `guywire plan resume {plan}`");
        std::process::exit(1);
    }
}

/// Done is 0, anything else is 1.
pub fn code(state: PlanState) -> ExitCode {
    if state == PlanState::Succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
