//! A request to change an instance, of whatever kind.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    app::requests::{
        ChangeCurrentVnfPkgRequest, ChangeExtVnfConnectivityRequest, ChangeVnfFlavourRequest, HealVnfRequest,
        InstantiateVnfRequest, OperateVnfRequest, ScaleVnfRequest, ScaleVnfToLevelRequest,
        TerminateVnfRequest, VnfInfoModificationRequest,
    },
    domain::OperationType,
};

/// What somebody asked for.
#[derive(Debug, Clone)]
pub enum Request {
    /// Machines are made.
    Instantiate(Box<InstantiateVnfRequest>),
    /// An aspect is scaled.
    Scale(ScaleVnfRequest),
    /// All aspects are scaled.
    ScaleToLevel(ScaleVnfToLevelRequest),
    /// Another flavour.
    ChangeFlavour(Box<ChangeVnfFlavourRequest>),
    /// Machines are switched.
    Operate(OperateVnfRequest),
    /// Machines are made anew.
    Heal(HealVnfRequest),
    /// Machines are removed.
    Terminate(TerminateVnfRequest),
    /// Other networks.
    ChangeExtConn(ChangeExtVnfConnectivityRequest),
    /// Another package.
    ChangeVnfpkg(Box<ChangeCurrentVnfPkgRequest>),
    /// Other attributes.
    ModifyInfo(Box<VnfInfoModificationRequest>),
}

impl Request {
    /// The kind of operation that it starts.
    pub fn operation(&self) -> OperationType {
        match self {
            Self::Instantiate(_) => OperationType::Instantiate,
            Self::Scale(_) => OperationType::Scale,
            Self::ScaleToLevel(_) => OperationType::ScaleToLevel,
            Self::ChangeFlavour(_) => OperationType::ChangeFlavour,
            Self::Operate(_) => OperationType::Operate,
            Self::Heal(_) => OperationType::Heal,
            Self::Terminate(_) => OperationType::Terminate,
            Self::ChangeExtConn(_) => OperationType::ChangeExtConn,
            Self::ChangeVnfpkg(_) => OperationType::ChangeVnfpkg,
            Self::ModifyInfo(_) => OperationType::ModifyInfo,
        }
    }

    /// As an operation keeps it.
    pub fn params(&self) -> Map<String, Value> {
        match self {
            Self::Instantiate(request) => object(request),
            Self::Scale(request) => object(request),
            Self::ScaleToLevel(request) => object(request),
            Self::ChangeFlavour(request) => object(request),
            Self::Operate(request) => object(request),
            Self::Heal(request) => object(request),
            Self::Terminate(request) => object(request),
            Self::ChangeExtConn(request) => object(request),
            Self::ChangeVnfpkg(request) => object(request),
            Self::ModifyInfo(request) => object(request),
        }
    }

    /// From what an operation keeps.
    pub fn parse(operation: OperationType, params: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        Ok(match operation {
            OperationType::Instantiate => Self::Instantiate(read(params)?),
            OperationType::Scale => Self::Scale(read(params)?),
            OperationType::ScaleToLevel => Self::ScaleToLevel(read(params)?),
            OperationType::ChangeFlavour => Self::ChangeFlavour(read(params)?),
            OperationType::Operate => Self::Operate(read(params)?),
            OperationType::Heal => Self::Heal(read(params)?),
            OperationType::Terminate => Self::Terminate(read(params)?),
            OperationType::ChangeExtConn => Self::ChangeExtConn(read(params)?),
            OperationType::ChangeVnfpkg => Self::ChangeVnfpkg(read(params)?),
            OperationType::ModifyInfo => Self::ModifyInfo(read(params)?),
        })
    }
}

fn object<T: Serialize>(request: &T) -> Map<String, Value> {
    match serde_json::to_value(request).expect("a request is plain data") {
        Value::Object(map) => map,
        _ => unreachable!("a struct is an object"),
    }
}

fn read<T: DeserializeOwned>(params: &Map<String, Value>) -> Result<T, serde_json::Error> {
    serde_json::from_value(Value::Object(params.clone()))
}
