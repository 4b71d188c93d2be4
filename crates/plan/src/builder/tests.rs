use super::*;
use crate::{Context, Probe, TaskError};

struct Step;

impl Handler for Step {
    const NAME: &'static str = "step";
    const VERSION: u32 = 1;
    type Input = ();
    type Output = ();

    async fn probe(&self, _: &Context, (): &()) -> Result<Probe<()>, TaskError> {
        Ok(Probe::Needed)
    }

    async fn apply(&self, _: &Context, (): &()) -> Result<(), TaskError> {
        Ok(())
    }
}

fn builder() -> (PlanBuilder, u32) {
    let mut builder = PlanBuilder::new("test", "a test");
    let phase = builder.phase("only");
    (builder, phase)
}

#[test]
fn a_circle_is_told_by_name() {
    let (mut builder, phase) = builder();
    let a = builder.task::<Step>(phase, "a", &()).after([TaskIndex(2)]).add();
    let b = builder.task::<Step>(phase, "b", &()).after([a]).add();
    builder.task::<Step>(phase, "c", &()).after([b]).add();
    let error = builder.build().unwrap_err().to_string();
    assert_eq!(error, "these tasks wait for each other: a -> c -> b -> a; take one of the dependencies away");
}

#[test]
fn two_tasks_of_one_name_are_refused() {
    let (mut builder, phase) = builder();
    builder.task::<Step>(phase, "a", &()).add();
    builder.task::<Step>(phase, "a", &()).add();
    assert_eq!(builder.build().unwrap_err(), PlanError::DuplicateTask { name: "a".into() });
}

#[test]
fn a_scope_must_not_wait_outside_while_it_is_held() {
    let (mut builder, phase) = builder();
    let scope = builder.scope("node/m1", None);
    let lock = builder.task::<Step>(phase, "lock", &()).enters(scope).add();
    let outside = builder.task::<Step>(phase, "outside", &()).after([lock]).add();
    builder.task::<Step>(phase, "inside", &()).within(scope).after([outside]).add();
    let error = builder.build().unwrap_err();
    assert!(
        matches!(&error, PlanError::ScopeWaitsOutside { resource, inside, outside }
        if resource == "node/m1" && inside == "inside" && outside == "outside"),
        "{error}"
    );
}

#[test]
fn scopes_order_their_tasks() {
    let (mut builder, phase) = builder();
    let outer = builder.scope("node/m1", None);
    let inner = builder.scope("node/m1/disk", Some(outer));
    let body = builder.task::<Step>(phase, "body", &()).within(inner).add();
    let unlock = builder.task::<Step>(phase, "unlock", &()).exits(outer).add();
    let lock = builder.task::<Step>(phase, "lock", &()).enters(outer).add();
    let inner_lock = builder.task::<Step>(phase, "inner lock", &()).enters(inner).add();
    let plan = builder.build().unwrap();
    assert_eq!(plan.task(body).after, vec![lock, inner_lock]);
    assert_eq!(plan.task(inner_lock).after, vec![lock]);
    assert_eq!(plan.task(unlock).after, vec![body, lock, inner_lock]);
    assert_eq!(plan.resources(outer), vec!["node/m1", "node/m1/disk"]);
}

#[test]
fn gates_and_scopes_and_widths_are_checked() {
    let mut gated = PlanBuilder::new("test", "a test");
    let first = gated.phase("first");
    let second = gated.gated_phase("second");
    let late = gated.task::<Step>(second, "late", &()).add();
    gated.task::<Step>(first, "early", &()).after([late]).add();
    assert!(matches!(gated.build().unwrap_err(), PlanError::AgainstGate { .. }));

    let mut across = PlanBuilder::new("test", "a test");
    let first = across.phase("first");
    let second = across.gated_phase("second");
    let scope = across.scope("node/m1", None);
    across.task::<Step>(first, "a", &()).within(scope).add();
    across.task::<Step>(second, "b", &()).within(scope).add();
    assert!(
        matches!(across.build().unwrap_err(), PlanError::ScopeAcrossGate { phase, .. } if phase == "second")
    );

    let (mut unlimited, phase) = builder();
    unlimited.task::<Step>(phase, "a", &()).uses("disk").add();
    assert!(matches!(unlimited.build().unwrap_err(), PlanError::NoWidth { .. }));
}

#[test]
fn an_unknown_handler_is_told_with_those_that_are_known() {
    let (mut builder, phase) = builder();
    builder.task::<Step>(phase, "a", &()).add();
    let plan = builder.build().unwrap();
    let error = crate::Handlers::new().check(&plan.tasks[0]).unwrap_err().to_string();
    assert_eq!(error, "task \"a\" needs handler step@1, which is not registered; registered are none");
    crate::Handlers::new().with(Step).check(&plan.tasks[0]).unwrap();
    let mut wrong = plan.tasks[0].clone();
    wrong.input = serde_json::json!({"colour": "red"});
    let error = crate::Handlers::new().with(Step).check(&wrong).unwrap_err();
    assert!(matches!(error, PlanError::BadInput { .. }), "{error}");
}
