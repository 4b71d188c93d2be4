//! What a request means for an instance, before machines are chosen. No I/O: the same check answers the caller and
//! guides the operation.

use std::collections::BTreeMap;

use guywire_model::Power;
use guywire_package::{Flavour, Vnfd};
use serde_json::{Map, Value};

use super::Request;
use crate::{
    app::requests::{
        ChangeCurrentVnfPkgRequest, ChangeVnfFlavourRequest, ExtVirtualLinkData, HealVnfRequest,
        OperateVnfRequest, ScaleInfo, ScaleType, ScaleVnfRequest, ScaleVnfToLevelRequest, StopType,
    },
    domain::{AppError, ErrorKind, ExtLink, Info, Instance, VnfState},
};

/// What an instance should look like afterwards.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// The flavour.
    pub flavour: String,
    /// The level, if the scale is a level's.
    pub level: Option<String>,
    /// The scale.
    pub scale: BTreeMap<String, u32>,
    /// Machines of each VDU.
    pub counts: BTreeMap<String, u32>,
    /// Components to make anew, by name.
    pub replace: Vec<String>,
    /// Components to switch, by name, and how.
    pub power: Option<(Power, Vec<String>)>,
    /// On or off afterwards.
    pub vnf_state: VnfState,
    /// Whether machines are made anew one after the other.
    pub one_by_one: bool,
    /// External networks.
    pub ext_links: Vec<ExtLink>,
    /// Parameters of the package.
    pub inputs: Map<String, Value>,
}

/// Reads what `request` means for `instance`, which follows `vnfd`; `next` is the descriptor that a change of package
/// names.
pub fn outline(
    request: &Request,
    instance: &Instance,
    vnfd: &Vnfd,
    next: Option<&Vnfd>,
) -> Result<Outline, AppError> {
    match (request, &instance.info) {
        (Request::Instantiate(_), Some(_)) => Err(AppError::conflict(
            "the instance is INSTANTIATED; terminate it before it is instantiated again",
        )),
        (Request::Instantiate(wanted), None) => {
            let flavour = flavour(vnfd, &wanted.flavour_id)?;
            let (level, scale, counts) = sized(
                flavour,
                wanted.instantiation_level_id.as_deref(),
                wanted.target_scale_level_info.as_deref(),
            )?;
            Ok(Outline {
                flavour: flavour.id.clone(),
                level,
                scale,
                counts,
                replace: Vec::new(),
                power: None,
                vnf_state: VnfState::Started,
                one_by_one: false,
                ext_links: merged(&[], &wanted.ext_virtual_links)?,
                inputs: wanted.additional_params.clone(),
            })
        }
        (_, None) => Err(AppError::conflict(format!(
            "{} needs an instance that is INSTANTIATED, and this one is not; instantiate it first",
            request.operation().as_str()
        ))),
        (request, Some(info)) => change(request, info, vnfd, next),
    }
}

/// What a request means for an instance that has machines.
fn change(request: &Request, info: &Info, vnfd: &Vnfd, next: Option<&Vnfd>) -> Result<Outline, AppError> {
    let present = flavour(vnfd, &info.flavour)?;
    let as_it_is = Outline {
        flavour: info.flavour.clone(),
        level: info.level.clone(),
        scale: info.scale.clone(),
        counts: counted(info),
        replace: Vec::new(),
        power: None,
        vnf_state: info.vnf_state,
        one_by_one: false,
        ext_links: info.ext_links.clone(),
        inputs: info.inputs.clone(),
    };
    match request {
        Request::Instantiate(_) | Request::ModifyInfo(_) => Ok(as_it_is),
        Request::Scale(wanted) => scale(wanted, info, present, as_it_is),
        Request::ScaleToLevel(wanted) => scale_to_level(wanted, info, present, as_it_is),
        Request::ChangeFlavour(wanted) => change_flavour(wanted, info, vnfd, as_it_is),
        Request::Operate(wanted) => operate(wanted, info, as_it_is),
        Request::Heal(wanted) => heal(wanted, info, as_it_is),
        Request::Terminate(_) => {
            Ok(Outline { counts: BTreeMap::new(), scale: BTreeMap::new(), level: None, ..as_it_is })
        }
        Request::ChangeExtConn(wanted) => {
            if wanted.ext_virtual_links.is_empty() {
                return Err(AppError::invalid("extVirtualLinks: name at least one network"));
            }
            Ok(Outline { ext_links: merged(&info.ext_links, &wanted.ext_virtual_links)?, ..as_it_is })
        }
        Request::ChangeVnfpkg(wanted) => change_package(wanted, info, present, next, as_it_is),
    }
}

/// One aspect by steps.
fn scale(
    wanted: &ScaleVnfRequest,
    info: &Info,
    present: &Flavour,
    as_it_is: Outline,
) -> Result<Outline, AppError> {
    let aspect = present.aspect(&wanted.aspect_id).ok_or_else(|| {
        let known = listed(present.aspects.iter().map(|aspect| aspect.id.as_str()));
        AppError::invalid(format!(
            "aspectId: flavour {} has no aspect {:?}; it has {known}",
            present.id, wanted.aspect_id
        ))
    })?;
    if wanted.number_of_steps == 0 {
        return Err(AppError::invalid("numberOfSteps: must be 1 or more"));
    }
    let now = info.scale.get(&aspect.id).copied().unwrap_or(0);
    let then = match wanted.kind {
        ScaleType::ScaleOut => now.checked_add(wanted.number_of_steps),
        ScaleType::ScaleIn => now.checked_sub(wanted.number_of_steps),
    };
    let then = then.filter(|level| *level <= aspect.max_level).ok_or_else(|| {
        AppError::invalid(format!(
            "numberOfSteps: aspect {} stands at level {now} of 0 to {}, so {} steps are too many",
            aspect.id, aspect.max_level, wanted.number_of_steps
        ))
    })?;
    let mut scale = info.scale.clone();
    scale.insert(aspect.id.clone(), then);
    let counts = moved(present, info, &scale)?;
    Ok(Outline { level: level_of(present, &scale), scale, counts, ..as_it_is })
}

/// All aspects at once.
fn scale_to_level(
    wanted: &ScaleVnfToLevelRequest,
    info: &Info,
    present: &Flavour,
    as_it_is: Outline,
) -> Result<Outline, AppError> {
    if wanted.instantiation_level_id.is_some() == wanted.scale_info.is_some() {
        return Err(AppError::invalid("name either instantiationLevelId or scaleInfo, one of the two"));
    }
    let (level, mut scale, counts) =
        sized(present, wanted.instantiation_level_id.as_deref(), wanted.scale_info.as_deref())?;
    // An aspect that scaleInfo leaves out stays where it is.
    if level.is_none() {
        for (aspect, now) in &info.scale {
            let named = wanted.scale_info.iter().flatten().any(|entry| entry.aspect_id == *aspect);
            if !named {
                scale.insert(aspect.clone(), *now);
            }
        }
        let counts = moved(present, info, &scale)?;
        return Ok(Outline { level: level_of(present, &scale), scale, counts, ..as_it_is });
    }
    Ok(Outline { level, scale, counts, ..as_it_is })
}

/// Another flavour: machines of VDUs that it describes differently are made anew.
fn change_flavour(
    wanted: &ChangeVnfFlavourRequest,
    info: &Info,
    vnfd: &Vnfd,
    as_it_is: Outline,
) -> Result<Outline, AppError> {
    let present = flavour(vnfd, &info.flavour)?;
    let wanted_flavour = flavour(vnfd, &wanted.new_flavour_id)?;
    if wanted_flavour.id == info.flavour {
        return Err(AppError::conflict(format!("the instance has flavour {} already", info.flavour)));
    }
    let (level, scale, counts) = sized(
        wanted_flavour,
        wanted.instantiation_level_id.as_deref(),
        wanted.target_scale_level_info.as_deref(),
    )?;
    let replace = differing(info, present, wanted_flavour);
    let ext_links = merged(&info.ext_links, &wanted.ext_virtual_links)?;
    let inputs = overlaid(&info.inputs, &wanted.additional_params);
    Ok(Outline {
        flavour: wanted_flavour.id.clone(),
        level,
        scale,
        counts,
        replace,
        one_by_one: true,
        ext_links,
        inputs,
        ..as_it_is
    })
}

/// Machines switched on or off.
fn operate(wanted: &OperateVnfRequest, info: &Info, as_it_is: Outline) -> Result<Outline, AppError> {
    let names = named(info, &wanted.vnfc_instance_id)?;
    let all = wanted.vnfc_instance_id.is_empty();
    let power = match (wanted.change_state_to, wanted.stop_type) {
        (VnfState::Started, _) => Power::On,
        (VnfState::Stopped, Some(StopType::Graceful)) => Power::Off,
        (VnfState::Stopped, _) => Power::Cut,
    };
    let vnf_state = if all { wanted.change_state_to } else { info.vnf_state };
    Ok(Outline { power: Some((power, names)), vnf_state, ..as_it_is })
}

/// Machines made anew.
fn heal(wanted: &HealVnfRequest, info: &Info, as_it_is: Outline) -> Result<Outline, AppError> {
    let all = match wanted.additional_params.get("all") {
        None => wanted.vnfc_instance_id.is_empty(),
        Some(Value::Bool(all)) => *all || wanted.vnfc_instance_id.is_empty(),
        Some(_) => return Err(AppError::invalid("additionalParams/all: expected true or false")),
    };
    let replace = if all { named(info, &[])? } else { named(info, &wanted.vnfc_instance_id)? };
    Ok(Outline { replace, ..as_it_is })
}

/// Another package: machines that the request names, or whose VDU is described differently, are made anew.
fn change_package(
    wanted: &ChangeCurrentVnfPkgRequest,
    info: &Info,
    present: &Flavour,
    next: Option<&Vnfd>,
    as_it_is: Outline,
) -> Result<Outline, AppError> {
    let next = next.ok_or_else(|| {
        AppError::new(
            ErrorKind::Unprocessable,
            format!("vnfdId: no onboarded package holds descriptor {:?}", wanted.vnfd_id),
        )
    })?;
    let then = next.flavour(&info.flavour).ok_or_else(|| {
        let known = listed(next.flavours.iter().map(|flavour| flavour.id.as_str()));
        AppError::new(
            ErrorKind::Unprocessable,
            format!("vnfdId: the new package has no flavour {}; it has {known}", info.flavour),
        )
    })?;
    let replace = match upgraded(&wanted.additional_params, then)? {
        Some(vdus) => {
            let of = |vnfc: &&crate::domain::Vnfc| vdus.contains(&vnfc.vdu);
            info.vnfcs.iter().filter(of).map(|vnfc| vnfc.id.clone()).collect()
        }
        None => differing(info, present, then),
    };
    let mut counts = as_it_is.counts.clone();
    counts.retain(|vdu, _| then.vdu(vdu).is_some());
    Ok(Outline {
        counts,
        replace,
        one_by_one: true,
        ext_links: merged(&info.ext_links, &wanted.ext_virtual_links)?,
        inputs: overlaid(&info.inputs, &wanted.additional_params),
        ..as_it_is
    })
}

/// The flavour of that id, or what there is instead.
pub fn flavour<'a>(vnfd: &'a Vnfd, id: &str) -> Result<&'a Flavour, AppError> {
    vnfd.flavour(id).ok_or_else(|| {
        let known = listed(vnfd.flavours.iter().map(|flavour| flavour.id.as_str()));
        AppError::invalid(format!("flavourId: descriptor {} has no flavour {id:?}; it has {known}", vnfd.id))
    })
}

type Sized = (Option<String>, BTreeMap<String, u32>, BTreeMap<String, u32>);

/// The size that a request asks for: a level, or scales, or the default level, or none of all.
fn sized(flavour: &Flavour, level: Option<&str>, scale: Option<&[ScaleInfo]>) -> Result<Sized, AppError> {
    let zero: BTreeMap<String, u32> = flavour.aspects.iter().map(|aspect| (aspect.id.clone(), 0)).collect();
    if let Some(entries) = scale {
        if level.is_some() {
            return Err(AppError::invalid(
                "name either instantiationLevelId or scale levels, one of the two",
            ));
        }
        let mut scale = zero;
        for entry in entries {
            let aspect = flavour.aspect(&entry.aspect_id).ok_or_else(|| {
                let known = listed(flavour.aspects.iter().map(|aspect| aspect.id.as_str()));
                AppError::invalid(format!(
                    "aspectId: flavour {} has no aspect {:?}; it has {known}",
                    flavour.id, entry.aspect_id
                ))
            })?;
            if entry.scale_level > aspect.max_level {
                return Err(AppError::invalid(format!(
                    "scaleLevel: aspect {} goes from 0 to {}, not to {}",
                    aspect.id, aspect.max_level, entry.scale_level
                )));
            }
            scale.insert(aspect.id.clone(), entry.scale_level);
        }
        let counts = flavour.counts(&scale);
        check_bounds(flavour, &counts)?;
        return Ok((None, scale, counts));
    }
    let level = match level {
        Some(id) => Some(flavour.level(id).ok_or_else(|| {
            let known = listed(flavour.levels.iter().map(|level| level.id.as_str()));
            AppError::invalid(format!(
                "instantiationLevelId: flavour {} has no level {id:?}; it has {known}",
                flavour.id
            ))
        })?),
        None => flavour.default_level(),
    };
    let Some(level) = level else {
        let counts = flavour.counts(&zero);
        return Ok((None, zero, counts));
    };
    let mut scale = zero;
    scale.extend(level.scale.iter().map(|(aspect, level)| (aspect.clone(), *level)));
    let mut counts = flavour.counts(&scale);
    counts.extend(level.counts.iter().map(|(vdu, count)| (vdu.clone(), *count)));
    check_bounds(flavour, &counts)?;
    Ok((Some(level.id.clone()), scale, counts))
}

/// Machines after a change of scale: what there is, moved by what the steps add or take.
fn moved(
    flavour: &Flavour,
    info: &Info,
    scale: &BTreeMap<String, u32>,
) -> Result<BTreeMap<String, u32>, AppError> {
    let (before, after) = (flavour.counts(&info.scale), flavour.counts(scale));
    let mut counts = counted(info);
    for (vdu, then) in after {
        let now = before.get(&vdu).copied().unwrap_or(0);
        let count = counts.entry(vdu).or_insert(0);
        *count = (*count + then).saturating_sub(now);
    }
    check_bounds(flavour, &counts)?;
    Ok(counts)
}

fn check_bounds(flavour: &Flavour, counts: &BTreeMap<String, u32>) -> Result<(), AppError> {
    for vdu in &flavour.vdus {
        let count = counts.get(&vdu.id).copied().unwrap_or(0);
        if count < vdu.min || count > vdu.max {
            return Err(AppError::invalid(format!(
                "VDU {} would have {count} machines; its vdu_profile allows {} to {}",
                vdu.id, vdu.min, vdu.max
            )));
        }
    }
    Ok(())
}

/// How many machines each VDU has.
fn counted(info: &Info) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for vnfc in &info.vnfcs {
        *counts.entry(vnfc.vdu.clone()).or_insert(0) += 1;
    }
    counts
}

/// The level whose scale this is.
fn level_of(flavour: &Flavour, scale: &BTreeMap<String, u32>) -> Option<String> {
    flavour.levels.iter().find(|level| level.scale == *scale).map(|level| level.id.clone())
}

/// Components whose VDU is described differently.
fn differing(info: &Info, before: &Flavour, after: &Flavour) -> Vec<String> {
    let differs = |vdu: &str| match (before.vdu(vdu), after.vdu(vdu)) {
        (Some(one), Some(other)) => {
            one.compute != other.compute || one.image != other.image || one.boot_data != other.boot_data
        }
        _ => false,
    };
    info.vnfcs.iter().filter(|vnfc| differs(&vnfc.vdu)).map(|vnfc| vnfc.id.clone()).collect()
}

/// The VDUs that a change of package names, if it names any.
fn upgraded(params: &Map<String, Value>, flavour: &Flavour) -> Result<Option<Vec<String>>, AppError> {
    if let Some(kind) = params.get("upgrade_type")
        && kind != "RollingUpdate"
    {
        return Err(AppError::invalid(
            "additionalParams/upgrade_type: only \"RollingUpdate\" is known, one machine after the other",
        ));
    }
    let Some(vdus) = params.get("vdu_params") else { return Ok(None) };
    let wrong = || AppError::invalid("additionalParams/vdu_params: expected a list of objects with a vdu_id");
    let mut named = Vec::new();
    for entry in vdus.as_array().ok_or_else(wrong)? {
        let vdu = entry.get("vdu_id").and_then(Value::as_str).ok_or_else(wrong)?;
        if flavour.vdu(vdu).is_none() {
            let known = listed(flavour.vdus.iter().map(|vdu| vdu.id.as_str()));
            return Err(AppError::invalid(format!(
                "additionalParams/vdu_params: flavour {} has no VDU {vdu:?}; it has {known}",
                flavour.id
            )));
        }
        named.push(vdu.to_owned());
    }
    Ok(Some(named))
}

/// Components by their names or the ids of their resources; all if none is named.
fn named(info: &Info, wanted: &[String]) -> Result<Vec<String>, AppError> {
    if wanted.is_empty() {
        return Ok(info.vnfcs.iter().map(|vnfc| vnfc.id.clone()).collect());
    }
    let mut found = Vec::new();
    for id in wanted {
        let vnfc = info.vnfcs.iter().find(|vnfc| vnfc.id == *id || vnfc.resource.to_string() == *id);
        let vnfc = vnfc.ok_or_else(|| {
            let known = listed(info.vnfcs.iter().map(|vnfc| vnfc.id.as_str()));
            AppError::invalid(format!("vnfcInstanceId: the instance has no component {id:?}; it has {known}"))
        })?;
        if !found.contains(&vnfc.id) {
            found.push(vnfc.id.clone());
        }
    }
    Ok(found)
}

/// Networks as they are, with those of a request in the place of ones with the same id.
fn merged(present: &[ExtLink], wanted: &[ExtVirtualLinkData]) -> Result<Vec<ExtLink>, AppError> {
    let mut links = present.to_vec();
    for link in wanted {
        if wanted.iter().filter(|other| other.id == link.id).count() > 1 {
            return Err(AppError::invalid(format!("extVirtualLinks: {:?} is there twice", link.id)));
        }
        let ext_cps = link.ext_cps.iter().map(|cp| serde_json::to_value(cp).expect("plain data"));
        let link = ExtLink {
            id: link.id.clone(),
            vim_connection_id: link.vim_connection_id.clone(),
            resource_id: link.resource_id.clone(),
            ext_cps: ext_cps.collect(),
        };
        match links.iter_mut().find(|other| other.id == link.id) {
            Some(other) => *other = link,
            None => links.push(link),
        }
    }
    Ok(links)
}

/// Parameters of the package with those of a request laid over them.
fn overlaid(present: &Map<String, Value>, wanted: &Map<String, Value>) -> Map<String, Value> {
    let mut all = present.clone();
    all.extend(wanted.iter().map(|(key, value)| (key.clone(), value.clone())));
    all
}

/// Names in a row, for messages.
pub fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
