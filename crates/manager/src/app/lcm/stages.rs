//! What each stage of an operation has to do, as a plan. Observing is all the I/O there is.

use guywire_package::Flavour;
use guywire_plan::Plan;
use serde_json::{Map, Value, json};

use super::outline::flavour;
use crate::{
    app::{
        App,
        works::{MachineOrder, PointMachine, PointOrder, WorksError},
    },
    domain::{Direction, Instance, Operation, OperationType, PackageRecord, Stage, Target, Vnfc},
};

/// What a stage has to do.
#[derive(Default)]
pub struct Work {
    /// The plan; `None` if there is nothing to be done.
    pub plan: Option<Plan>,
    /// What was accepted and ignored.
    pub warnings: Vec<String>,
}

/// The key under which a stage's plan is accepted once.
pub fn key(operation: &Operation) -> String {
    let direction = match operation.direction {
        Direction::Forward => "forward",
        Direction::Back => "back",
    };
    let stage = match operation.stage {
        Stage::Grant => "grant",
        Stage::Start => "start",
        Stage::Machines => "machines",
        Stage::End => "end",
        Stage::Finish => "finish",
    };
    format!("operation/{}/{direction}/{stage}", operation.id)
}

/// Plans the machines of an operation.
pub async fn machines(app: &App, operation: &Operation, target: &Target) -> Result<Work, WorksError> {
    let vim = app.store.vim(target.vim).await.map_err(trouble)?;
    let vim = vim.ok_or_else(|| WorksError {
        reason: format!("VIM {} is not registered any more; register it again", target.vim),
        retry: false,
    })?;
    let place = app.works.place(&vim).await?;
    let specs = |vnfcs: &[Vnfc]| vnfcs.iter().map(|vnfc| vnfc.machine.clone()).collect::<Vec<_>>();
    let names = |vnfcs: &[Vnfc]| vnfcs.iter().map(|vnfc| vnfc.machine.name.clone()).collect::<Vec<_>>();
    let replace: Vec<Vnfc> = target.replace.iter().map(|(next, _)| next.clone()).collect();
    let back = operation.direction == Direction::Back;
    let what = if back { "take back" } else { "machines of" };
    let mut order = MachineOrder {
        title: format!("{what} {} {}", operation.operation.as_str(), operation.instance),
        subject: subject(operation),
        place,
        add: Vec::new(),
        replace: Vec::new(),
        one_by_one: target.one_by_one,
        remove: Vec::new(),
        power: Vec::new(),
    };
    if back {
        order.remove = names(&target.add);
        if let Some((power, vnfcs)) = &target.power {
            // Back to on or off, as it was.
            let before = if *power == guywire_model::Power::On {
                guywire_model::Power::Off
            } else {
                guywire_model::Power::On
            };
            order.power = names(vnfcs).into_iter().map(|name| (name, before)).collect();
        }
    } else {
        order.add = specs(&target.add);
        order.replace = specs(&replace);
        order.remove = names(&target.remove);
        if let Some((power, vnfcs)) = &target.power {
            order.power = names(vnfcs).into_iter().map(|name| (name, *power)).collect();
        }
    }
    let plan = app.works.plan_machines(&order).await?;
    Ok(Work { plan, warnings: Vec::new() })
}

/// Plans what the package does before or after machines change.
pub async fn point(
    app: &App,
    operation: &Operation,
    instance: &Instance,
    target: &Target,
) -> Result<Work, WorksError> {
    let side = if operation.stage == Stage::Start { "start" } else { "end" };
    if operation.operation == OperationType::Terminate
        && side == "start"
        && operation.params.get("terminationType") == Some(&json!("FORCEFUL"))
    {
        return Ok(Work::default());
    }
    let back = if operation.direction == Direction::Back { "_rollback" } else { "" };
    let point = format!("{}{back}_{side}", operation.operation.point());
    // A change of package begins with what the old one says and ends with what the new one says.
    let package = match &target.package {
        Some((package, _)) if side == "end" => *package,
        _ => instance.package,
    };
    let package = app.store.package(package).await.map_err(trouble)?;
    let package = package.ok_or_else(|| WorksError {
        reason: "the instance's package is not there any more".to_owned(),
        retry: false,
    })?;
    let flavour = find_flavour(&package, &target.flavour)
        .or_else(|| instance.info.as_ref().and_then(|info| find_flavour(&package, &info.flavour)));
    let Some(implementation) = flavour.and_then(|flavour| flavour.lcm.get(&point)) else {
        return Ok(Work::default());
    };
    let (Some((content, _, sha256)), Some(vnfd)) = (&package.content, &package.vnfd) else {
        let reason = "the package's content is not there any more".to_owned();
        return Err(WorksError { reason, retry: false });
    };
    let order = PointOrder {
        title: format!("{point} of {}", instance.id),
        subject: subject(operation),
        infra: target.infra.clone(),
        operation: operation.operation,
        point,
        implementation: implementation.clone(),
        csar: app.config.data.join("packages").join(content),
        sha256: sha256.clone(),
        vnf: described(instance, &vnfd.id, &target.flavour),
        request: requested(operation, target),
        machines: seen(operation, instance, target),
    };
    let planned = app.works.plan_point(&order).await?;
    Ok(Work { plan: planned.plan, warnings: planned.warnings })
}

/// At most one unfinished plan of an instance.
pub fn subject(operation: &Operation) -> String {
    format!("vnf/{}", operation.instance)
}

fn find_flavour<'a>(package: &'a PackageRecord, id: &str) -> Option<&'a Flavour> {
    package.vnfd.as_ref().and_then(|vnfd| flavour(vnfd, id).ok())
}

fn described(instance: &Instance, vnfd_id: &str, flavour: &str) -> Map<String, Value> {
    let described = json!({
        "id": instance.id,
        "name": instance.name,
        "vnfdId": vnfd_id,
        "flavourId": flavour,
    });
    match described {
        Value::Object(map) => map,
        _ => unreachable!("an object"),
    }
}

/// The request, with the parameters of instantiation beneath its own: they need not be sent again.
fn requested(operation: &Operation, target: &Target) -> Map<String, Value> {
    let mut request = operation.params.clone();
    let mut params = target.inputs.clone();
    if let Some(Value::Object(own)) = request.get("additionalParams") {
        params.extend(own.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    request.insert("additionalParams".to_owned(), Value::Object(params));
    request
}

/// The machines as the package sees them.
fn seen(operation: &Operation, instance: &Instance, target: &Target) -> Vec<PointMachine> {
    let present: &[Vnfc] = instance.info.as_ref().map_or(&[], |info| &info.vnfcs);
    let back = operation.direction == Direction::Back;
    let machine = |vnfc: &Vnfc, change| PointMachine {
        name: vnfc.machine.name.clone(),
        vdu: vnfc.vdu.clone(),
        vnfc: vnfc.id.clone(),
        change,
        addresses: vnfc.addresses,
    };
    let mut machines = Vec::new();
    for vnfc in present {
        let renewed = target.replace.iter().find(|(next, _)| next.id == vnfc.id);
        let goes = target.remove.iter().any(|gone| gone.id == vnfc.id);
        match (renewed, goes) {
            // What is removed is there before machines change, and not after.
            (_, true) if operation.stage == Stage::Start => machines.push(machine(vnfc, "removed")),
            (_, true) => {}
            (Some((next, _)), _) if operation.stage == Stage::End => machines.push(machine(next, "replaced")),
            (Some(_), _) => machines.push(machine(vnfc, "replaced")),
            (None, false) => machines.push(machine(vnfc, "kept")),
        }
    }
    // What is added is there after machines have changed; on the way back, before.
    match (back, operation.stage) {
        (false, Stage::End) => machines.extend(target.add.iter().map(|vnfc| machine(vnfc, "added"))),
        (true, Stage::Start) => machines.extend(target.add.iter().map(|vnfc| machine(vnfc, "removed"))),
        _ => {}
    }
    machines
}

fn trouble(error: crate::store::StoreError) -> WorksError {
    WorksError { reason: error.message, retry: true }
}
