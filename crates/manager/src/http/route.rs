//! One table of routes: what is dispatched, authorised, described and tested is read from it and from nowhere else.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{Call, Reply};
use crate::domain::AppError;

/// What a handler returns.
pub type Answer = Result<Reply, AppError>;

/// Does what a route is for. An `async fn(Call) -> Answer` fits.
pub type Handler = Arc<dyn Fn(Call) -> BoxFuture<'static, Answer> + Send + Sync>;

/// Gives the schema of a type.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One method of one resource.
#[derive(Clone)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, with parameters in braces: `/vnflcm/v1/vnf_instances/{vnfInstanceId}`. A last `{*name}` takes the rest.
    pub path: &'static str,
    /// Who may call it.
    pub access: Access,
    /// The interface whose `Version` header applies.
    pub api: Option<ApiVersions>,
    /// How it is described.
    pub doc: Doc,
    /// The longest body it takes, in bytes; `None` means that the handler bounds it.
    pub body_limit: Option<u64>,
    /// What it does.
    pub handler: Handler,
}

/// Who may call a route. Each role may do what those before it may.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Anybody, without any credentials.
    Open,
    /// Whoever may look.
    Reader,
    /// Whoever may change VNFs.
    Operator,
    /// Whoever may change who may do what.
    Admin,
}

/// An interface and the versions of it that are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiVersions {
    /// The interface, such as `vnflcm`.
    pub name: &'static str,
    /// The part of the path, such as `/vnflcm/v2`.
    pub prefix: &'static str,
    /// The version that is served and that answers carry.
    pub version: &'static str,
    /// Whether requests must carry a `Version`.
    pub mandatory: bool,
    /// Whether any minor version of the same major one is taken.
    pub lenient: bool,
}

/// `/vnflcm/v1`, SOL003 2.6.1. Tacker looks at no version here, so a missing one is fine.
pub const LCM_V1: ApiVersions =
    ApiVersions { name: "vnflcm", prefix: "/vnflcm/v1", version: "1.3.0", mandatory: false, lenient: true };
/// `/vnflcm/v2`, SOL003 3.3.1.
pub const LCM_V2: ApiVersions =
    ApiVersions { name: "vnflcm", prefix: "/vnflcm/v2", version: "2.0.0", mandatory: true, lenient: false };
/// `/vnfpkgm/v1`.
pub const PKGM_V1: ApiVersions =
    ApiVersions { name: "vnfpkgm", prefix: "/vnfpkgm/v1", version: "1.3.0", mandatory: false, lenient: true };
/// `/vnffm/v1`.
pub const FM_V1: ApiVersions =
    ApiVersions { name: "vnffm", prefix: "/vnffm/v1", version: "1.3.0", mandatory: false, lenient: true };

/// How a route is described in the `OpenAPI` document; its query parameters are also what requests are checked against.
#[derive(Clone, Default)]
pub struct Doc {
    /// One line.
    pub summary: &'static str,
    /// The group it belongs to.
    pub tag: &'static str,
    /// The body it takes.
    pub request: Option<RequestDoc>,
    /// The query parameters it knows.
    pub query: Vec<QueryDoc>,
    /// What it answers when all is well.
    pub answers: Vec<AnswerDoc>,
}

/// A body that a route takes.
#[derive(Clone)]
pub struct RequestDoc {
    /// Its media types, the usual one first.
    pub media: &'static [&'static str],
    /// Its schema, if it is JSON or a form.
    pub schema: Option<SchemaOf>,
    /// Whether it must be there.
    pub required: bool,
}

/// A query parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryDoc {
    /// Its name.
    pub name: &'static str,
    /// One line.
    pub description: &'static str,
}

/// An answer of a route.
#[derive(Clone)]
pub struct AnswerDoc {
    /// The status.
    pub status: u16,
    /// One line.
    pub description: &'static str,
    /// Its media type and schema, if it has a body.
    pub body: Option<(&'static str, Option<SchemaOf>)>,
}

/// The longest body of most routes.
pub const BODY_LIMIT: u64 = 1024 * 1024;
/// JSON.
pub const JSON: &str = "application/json";
/// A merge patch; plain JSON and, since Tacker's clients send it, text are taken as well.
pub const MERGE_PATCH: &[&str] = &["application/merge-patch+json", JSON, "text/plain"];

/// Every parameter of a list by SOL013.
const LISTING: &[QueryDoc] = &[
    QueryDoc {
        name: "filter",
        description: "Conditions by SOL013: (eq,attribute/path,value);(in,other,a,b)",
    },
    QueryDoc { name: "all_fields", description: "Show every attribute" },
    QueryDoc { name: "fields", description: "Show these optional attributes, separated by commas" },
    QueryDoc { name: "exclude_fields", description: "Leave these attributes out, separated by commas" },
    QueryDoc { name: "exclude_default", description: "Leave out what a list leaves out by default" },
    QueryDoc {
        name: "nextpage_opaque_marker",
        description: "Where the page starts, from the Link of the one before",
    },
    QueryDoc { name: "all_records", description: "`yes` gives all pages in one" },
];

impl Route {
    /// A route of any method.
    pub fn new<F, R>(method: Method, path: &'static str, access: Access, handler: F) -> Self
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        Self {
            method,
            path,
            access,
            api: None,
            doc: Doc::default(),
            body_limit: Some(BODY_LIMIT),
            handler: Arc::new(move |call| Box::pin(handler(call))),
        }
    }

    /// Reads.
    pub fn get<F, R>(path: &'static str, access: Access, handler: F) -> Self
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        Self::new(Method::GET, path, access, handler)
    }

    /// Creates, or sets off.
    pub fn post<F, R>(path: &'static str, access: Access, handler: F) -> Self
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        Self::new(Method::POST, path, access, handler)
    }

    /// Replaces.
    pub fn put<F, R>(path: &'static str, access: Access, handler: F) -> Self
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        Self::new(Method::PUT, path, access, handler)
    }

    /// Changes.
    pub fn patch<F, R>(path: &'static str, access: Access, handler: F) -> Self
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        Self::new(Method::PATCH, path, access, handler)
    }

    /// Deletes.
    pub fn delete<F, R>(path: &'static str, access: Access, handler: F) -> Self
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        Self::new(Method::DELETE, path, access, handler)
    }

    /// The interface whose `Version` header applies.
    #[must_use]
    pub fn api(mut self, api: ApiVersions) -> Self {
        self.api = Some(api);
        self
    }

    /// The group it belongs to and one line about it.
    #[must_use]
    pub fn doc(mut self, tag: &'static str, summary: &'static str) -> Self {
        self.doc.tag = tag;
        self.doc.summary = summary;
        self
    }

    /// It takes JSON of this type; a PATCH takes it as a merge patch too.
    #[must_use]
    pub fn takes<T: JsonSchema>(mut self) -> Self {
        let media = if self.method == Method::PATCH { MERGE_PATCH } else { &[JSON] };
        self.doc.request = Some(RequestDoc { media, schema: Some(schema_of::<T>), required: true });
        self
    }

    /// It takes JSON of this type, or nothing at all.
    #[must_use]
    pub fn may_take<T: JsonSchema>(mut self) -> Self {
        self = self.takes::<T>();
        if let Some(request) = &mut self.doc.request {
            request.required = false;
        }
        self
    }

    /// It takes bytes of these media types, bounded by the handler itself.
    #[must_use]
    pub fn takes_bytes(mut self, media: &'static [&'static str]) -> Self {
        self.doc.request = Some(RequestDoc { media, schema: None, required: true });
        self.body_limit = None;
        self
    }

    /// It knows this query parameter.
    #[must_use]
    pub fn query(mut self, name: &'static str, description: &'static str) -> Self {
        self.doc.query.push(QueryDoc { name, description });
        self
    }

    /// It is a list by SOL013: filters, selectors and pages.
    #[must_use]
    pub fn listing(mut self) -> Self {
        self.doc.query.extend_from_slice(LISTING);
        self
    }

    /// It answers with JSON of this type.
    #[must_use]
    pub fn answers<T: JsonSchema>(mut self, status: u16, description: &'static str) -> Self {
        self.doc.answers.push(AnswerDoc { status, description, body: Some((JSON, Some(schema_of::<T>))) });
        self
    }

    /// It answers with something of this media type.
    #[must_use]
    pub fn answers_media(mut self, status: u16, media: &'static str, description: &'static str) -> Self {
        self.doc.answers.push(AnswerDoc { status, description, body: Some((media, None)) });
        self
    }

    /// It answers without a body.
    #[must_use]
    pub fn answers_nothing(mut self, status: u16, description: &'static str) -> Self {
        self.doc.answers.push(AnswerDoc { status, description, body: None });
        self
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({:?})", self.method, self.path, self.access)
    }
}

impl Access {
    /// The role's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}
