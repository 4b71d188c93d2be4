//! The example's own script, from its decision to an answer on port 8080.

use std::path::{Path, PathBuf};

use guywire_model::{AddressPair, ObservedMachine};
use guywire_plan::PlanState;
use guywire_roles::script::{
    Change, Decision, Invocation, ScriptInput, ScriptLimits, ScriptMachine, ScriptVnf, decide,
};
use serde_json::{Map, json};
use tokio::io::AsyncReadExt;

use crate::{
    harness::{Manager, script_plan},
    starter::starter,
};

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hello").canonicalize().unwrap()
}

async fn asked(point: &str, machines: &[(&ObservedMachine, Change)], greeting: &str) -> Decision {
    let seen = |(at, (machine, change)): (usize, &(&ObservedMachine, Change))| ScriptMachine {
        name: machine.spec.name.clone(),
        vdu: "hello".into(),
        vnfc: format!("hello-{at}"),
        change: *change,
        addresses: Some(machine.addresses),
    };
    let mut request = Map::new();
    request.insert("additionalParams".into(), json!({"greeting": greeting}));
    let input = ScriptInput {
        operation: point.split('_').next().unwrap().to_uppercase(),
        point: point.into(),
        vnf: ScriptVnf { id: "1".into(), name: "x".into(), vnfd_id: "d".into(), flavour_id: "f".into() },
        request,
        machines: machines.iter().enumerate().map(seen).collect(),
        outputs: Map::new(),
    };
    let file = "Scripts/hello.py".into();
    let invocation = Invocation { package: package(), file, input, limits: ScriptLimits::default() };
    decide(&invocation, &starter()).await.unwrap()
}

async fn hello(at: AddressPair) -> std::io::Result<String> {
    let mut said = String::new();
    tokio::net::TcpStream::connect((at.v4, 8080)).await?.read_to_string(&mut said).await?;
    Ok(said)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_greets_until_its_machine_goes() {
    let manager = Manager::new().await;
    let observed = manager.observe().await;
    let [m1, m2] = &observed.machines[..] else { panic!("{observed:?}") };
    let decision =
        asked("instantiate_end", &[(m1, Change::Added), (m2, Change::Kept)], "it's a $(good) day").await;
    assert!(decision.steps.iter().all(|step| step.machine == m1.spec.name));
    let plan = script_plan(&decision.steps, &package());
    for _ in 0..2 {
        let outcome = manager.run_plan(&plan).await.1;
        assert_eq!(outcome.state, PlanState::Succeeded, "{:?}", outcome.reason);
        assert_eq!(hello(m1.addresses).await.unwrap(), "it's a $(good) day from m1\n");
    }
    assert!(hello(m2.addresses).await.is_err());

    assert_eq!(asked("heal_start", &[(m1, Change::Replaced)], "x").await, Decision::default());
    let decision = asked("terminate_start", &[(m1, Change::Removed), (m2, Change::Removed)], "x").await;
    assert!(decision.steps.iter().all(|step| step.optional) && decision.steps.len() == 2);
    let outcome = manager.run_plan(&script_plan(&decision.steps, &package())).await.1;
    assert_eq!(outcome.state, PlanState::Succeeded, "{:?}", outcome.reason);
    assert!(hello(m1.addresses).await.is_err());
}
