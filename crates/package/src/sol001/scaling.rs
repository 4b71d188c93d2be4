//! Scaling aspects, deltas and instantiation levels, which SOL001 spreads over five policy types.

use std::collections::{BTreeMap, BTreeSet};

use super::{compute::MOST_MACHINES, topology::Policy};
use crate::{
    item::{Item, Notes},
    rejection::{Rejection, printable},
    vnfd::{Aspect, Level, Vdu},
};

/// What can be scaled, and the sizes to start at.
#[derive(Debug, Default)]
pub struct Scaling {
    pub aspects: Vec<Aspect>,
    pub levels: Vec<Level>,
    pub default_level: Option<String>,
}

/// More levels than this is a slip of the pen.
const MOST_LEVELS: u32 = 500;

/// Levels and steps are multiplied by VDUs and aspects; their product is bounded, since a few lines of text can name many.
const MOST_CELLS: usize = 100_000;

/// Reads the scaling policies; each VDU gets its number of machines at level 0.
pub fn read(policies: &[Policy], vdus: &mut [Vdu], notes: &mut Notes) -> Result<Scaling, Rejection> {
    let mut scaling = Scaling::default();
    let mut step_names: BTreeMap<String, (Vec<String>, Item)> = BTreeMap::new();
    for policy in policies {
        match policy.kind.as_str() {
            "ScalingAspects" => aspects(policy, &mut scaling, &mut step_names)?,
            "VduInitialDelta" => initial(policy, vdus)?,
            "VduScalingAspectDeltas"
            | "InstantiationLevels"
            | "VduInstantiationLevels"
            | "AffinityRule"
            | "AntiAffinityRule" => {}
            kind => notes.at(&policy.item, &format!("policies of type {} are passed over", printable(kind))),
        }
    }
    for policy in policies.iter().filter(|policy| policy.kind == "VduScalingAspectDeltas") {
        deltas(policy, &mut scaling.aspects, &step_names, vdus, notes)?;
    }
    for aspect in &scaling.aspects {
        if aspect.max_level > 0
            && aspect.steps.iter().all(BTreeMap::is_empty)
            && let Some((_, item)) = step_names.get(&aspect.id)
        {
            notes.at(item, "scales nothing: no VduScalingAspectDeltas policy names it");
        }
    }
    for policy in policies.iter().filter(|policy| policy.kind == "InstantiationLevels") {
        levels(policy, &mut scaling, notes)?;
        if scaling.levels.len() * (vdus.len() + scaling.aspects.len()) > MOST_CELLS {
            return Err(policy
                .item
                .refuse("has too many instantiation levels for this many VDUs and aspects"));
        }
    }
    for level in &mut scaling.levels {
        level.counts = counts(vdus, &scaling.aspects, &level.scale);
    }
    for policy in policies.iter().filter(|policy| policy.kind == "VduInstantiationLevels") {
        level_counts(policy, &mut scaling, vdus, notes)?;
    }
    for policy in policies.iter().filter(|policy| policy.kind == "InstantiationLevels") {
        within_bounds(policy, &scaling, vdus)?;
    }
    note_unreachable(&scaling, vdus, notes);
    Ok(scaling)
}

fn aspects(
    policy: &Policy,
    scaling: &mut Scaling,
    step_names: &mut BTreeMap<String, (Vec<String>, Item)>,
) -> Result<(), Rejection> {
    let properties = policy.item.need("properties", "the aspects")?;
    let declared = properties.need("aspects", "the scaling aspects by name")?;
    for (id, item) in declared.entries()? {
        item.entries()?;
        let max = item.need("max_scale_level", "the highest level")?;
        let max_level = max.number(0, MOST_LEVELS)?;
        let names = item.field("step_deltas").map(|names| names.texts()).transpose()?.unwrap_or_default();
        if names.len() > 1 && names.len() != max_level as usize {
            let found = names.len();
            let reason = format!(
                "has {found} step_deltas; expected 1 for equal steps, or {max_level} as max_scale_level"
            );
            return Err(item.refuse(reason));
        }
        if (step_names.len() + 1) * MOST_LEVELS as usize > MOST_CELLS {
            return Err(item.refuse("is one scaling aspect too many"));
        }
        if step_names.contains_key(id) {
            return Err(item.refuse("is declared twice"));
        }
        let name = item.field("name").map(|name| name.text()).transpose()?;
        scaling.aspects.push(Aspect {
            id: id.to_owned(),
            name: name.unwrap_or_else(|| id.to_owned()),
            description: item.field("description").map(|text| text.text()).transpose()?,
            max_level,
            steps: vec![BTreeMap::new(); max_level as usize],
        });
        step_names.insert(id.to_owned(), (names, item));
    }
    Ok(())
}

fn initial(policy: &Policy, vdus: &mut [Vdu]) -> Result<(), Rejection> {
    let delta =
        policy.item.need("properties", "the initial delta")?.need("initial_delta", "number_of_instances")?;
    let number = delta.need("number_of_instances", "the machines at level 0")?;
    let machines = number.number(0, MOST_MACHINES)?;
    for index in targets(policy, vdus)? {
        let vdu = &mut vdus[index];
        if machines < vdu.min || machines > vdu.max {
            let reason = format!(
                "expected {} to {} as {}'s vdu_profile says, found {machines}",
                vdu.min, vdu.max, vdu.id
            );
            return Err(number.refuse(reason));
        }
        vdu.initial = machines;
    }
    Ok(())
}

fn deltas(
    policy: &Policy,
    aspects: &mut [Aspect],
    step_names: &BTreeMap<String, (Vec<String>, Item)>,
    vdus: &[Vdu],
    notes: &mut Notes,
) -> Result<(), Rejection> {
    let properties = policy.item.need("properties", "an aspect and its deltas")?;
    let wanted = properties.need("aspect", "the name of a scaling aspect")?;
    let aspect_id = wanted.word()?;
    let Some(aspect) = aspects.iter_mut().find(|aspect| aspect.id == aspect_id) else {
        notes.at(
            &wanted,
            &format!("{} is no scaling aspect; its deltas are passed over", printable(&aspect_id)),
        );
        return Ok(());
    };
    let declared = properties.need("deltas", "the deltas by name")?;
    let mut by_name = BTreeMap::new();
    for (name, delta) in declared.entries()? {
        let machines = delta.need("number_of_instances", "the machines that the step adds")?;
        by_name.insert(name, machines.number(0, MOST_MACHINES)?);
    }
    let names = step_names.get(&aspect_id).map(|(names, _)| names.as_slice()).unwrap_or_default();
    let targets = targets(policy, vdus)?;
    if targets.len() * aspect.steps.len() > MOST_CELLS {
        return Err(policy.item.refuse("scales too many VDUs over too many levels"));
    }
    for (index, step) in aspect.steps.iter_mut().enumerate() {
        // One name stands for equal steps; an aspect that names none has the one delta that is declared.
        let name = names.get(index).or(names.first());
        let added = match name {
            Some(name) => by_name.get(name.as_str()).unwrap_or_else(|| {
                let (name, aspect) = (printable(name), printable(&aspect_id));
                notes.at(&declared, &format!("has no {name}, a step of {aspect}; the step adds nothing"));
                &0
            }),
            None if by_name.len() == 1 => by_name.values().next().unwrap_or(&0),
            None => return Err(declared.refuse("expected one delta, since the aspect has no step_deltas")),
        };
        for &target in &targets {
            let machines = step.entry(vdus[target].id.clone()).or_insert(0);
            *machines = machines.saturating_add(*added);
        }
    }
    Ok(())
}

fn levels(policy: &Policy, scaling: &mut Scaling, notes: &mut Notes) -> Result<(), Rejection> {
    let properties = policy.item.need("properties", "the instantiation levels")?;
    let declared = properties.need("levels", "the instantiation levels by name")?;
    for (id, item) in declared.entries()? {
        let mut scale: BTreeMap<String, u32> =
            scaling.aspects.iter().map(|aspect| (aspect.id.clone(), 0)).collect();
        if let Some(info) = item.field("scale_info") {
            for (aspect_id, at) in info.entries()? {
                let Some(aspect) = scaling.aspects.iter().find(|aspect| aspect.id == aspect_id) else {
                    let known: Vec<_> = scaling.aspects.iter().map(|aspect| printable(&aspect.id)).collect();
                    return Err(
                        at.refuse(format!("is no scaling aspect; expected one of: {}", known.join(", ")))
                    );
                };
                let level = at.need("scale_level", "the aspect's level")?.number(0, aspect.max_level)?;
                scale.insert(aspect_id.to_owned(), level);
            }
        }
        if scaling.levels.iter().any(|level| level.id == id) {
            return Err(item.refuse("is declared twice"));
        }
        let description = item.field("description").map(|text| text.text()).transpose()?;
        scaling.levels.push(Level { id: id.to_owned(), description, scale, counts: BTreeMap::new() });
    }
    let default = properties.field("default_level");
    scaling.default_level = match (&default, scaling.levels.as_slice()) {
        (Some(item), levels) => {
            let id = item.word()?;
            if !levels.iter().any(|level| level.id == id) {
                let known: Vec<_> = levels.iter().map(|level| printable(&level.id)).collect();
                return Err(item.expected(&format!("one of the levels {}", known.join(", "))));
            }
            Some(id)
        }
        (None, []) => None,
        (None, [first, rest @ ..]) => {
            if !rest.is_empty() {
                notes.at(
                    &properties,
                    &format!("has no default_level; {} is taken, the first", printable(&first.id)),
                );
            }
            Some(first.id.clone())
        }
    };
    Ok(())
}

/// What `VduInstantiationLevels` says outweighs what follows from the levels of the aspects.
fn level_counts(
    policy: &Policy,
    scaling: &mut Scaling,
    vdus: &[Vdu],
    notes: &mut Notes,
) -> Result<(), Rejection> {
    let declared = policy.item.need("properties", "the levels")?.need("levels", "the machines by level")?;
    let targets = targets(policy, vdus)?;
    let scaled: BTreeSet<&str> = scaling
        .aspects
        .iter()
        .filter_map(|aspect| aspect.steps.first())
        .flat_map(|step| step.keys().map(String::as_str))
        .collect();
    for (id, item) in declared.entries()? {
        let machines =
            item.need("number_of_instances", "the machines at this level")?.number(0, MOST_MACHINES)?;
        let known: Vec<_> = scaling.levels.iter().map(|level| printable(&level.id)).collect();
        let Some(level) = scaling.levels.iter_mut().find(|level| level.id == id) else {
            return Err(
                item.refuse(format!("is no instantiation level; expected one of: {}", known.join(", ")))
            );
        };
        for &target in &targets {
            let vdu = &vdus[target];
            let follows = level.counts.insert(vdu.id.clone(), machines).unwrap_or(0);
            if follows != machines && scaled.contains(vdu.id.as_str()) {
                let shown = printable(&vdu.id);
                notes.at(
                    &item,
                    &format!("gives {machines} {shown}, while the levels of its aspects give {follows}"),
                );
            }
            if machines < vdu.min || machines > vdu.max {
                let reason =
                    format!("gives {machines} {}; its vdu_profile allows {} to {}", vdu.id, vdu.min, vdu.max);
                return Err(item.refuse(reason));
            }
        }
    }
    Ok(())
}

fn within_bounds(policy: &Policy, scaling: &Scaling, vdus: &[Vdu]) -> Result<(), Rejection> {
    for level in &scaling.levels {
        for vdu in vdus {
            let machines = level.counts.get(&vdu.id).copied().unwrap_or(0);
            if machines < vdu.min || machines > vdu.max {
                return Err(policy.item.refuse(format!(
                    "the level {} gives {machines} {}; its vdu_profile allows {} to {}",
                    printable(&level.id),
                    vdu.id,
                    vdu.min,
                    vdu.max
                )));
            }
        }
    }
    Ok(())
}

/// Levels that a VDU's maximum makes unreachable can be lived with: a request for them is refused.
fn note_unreachable(scaling: &Scaling, vdus: &[Vdu], notes: &mut Notes) {
    let highest = scaling.aspects.iter().map(|aspect| (aspect.id.clone(), aspect.max_level)).collect();
    let counts = counts(vdus, &scaling.aspects, &highest);
    for vdu in vdus {
        if let Some(machines) = counts.get(&vdu.id).filter(|machines| **machines > vdu.max) {
            let (id, max) = (&vdu.id, vdu.max);
            notes.push(format!(
                "{id}: its aspects scale up to {machines} machines, its vdu_profile allows {max}"
            ));
        }
    }
}

/// The VDUs that a policy is for, by their place in the list.
fn targets(policy: &Policy, vdus: &[Vdu]) -> Result<BTreeSet<usize>, Rejection> {
    let mut indexes = BTreeSet::new();
    for target in policy.item.need("targets", "the VDUs that the policy is for")?.items()? {
        let name = target.word()?;
        let Some(index) = vdus.iter().position(|vdu| vdu.id == name) else {
            let known: Vec<_> = vdus.iter().map(|vdu| printable(&vdu.id)).collect();
            let reason = format!(
                "{} is no VDU of this flavour; expected one of {}",
                printable(&name),
                known.join(", ")
            );
            return Err(target.refuse(reason));
        };
        indexes.insert(index);
    }
    Ok(indexes)
}

fn counts(vdus: &[Vdu], aspects: &[Aspect], scale: &BTreeMap<String, u32>) -> BTreeMap<String, u32> {
    let initial = vdus.iter().map(|vdu| (vdu.id.clone(), vdu.initial)).collect();
    crate::vnfd::scaled(initial, aspects, scale)
}
