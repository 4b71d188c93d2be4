//! The `OpenAPI` document: the table of routes, written down. Pure.

use std::collections::BTreeMap;

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{Access, Answer, Call, Reply, Route, problem};
use crate::domain::Problem;

/// Describes routes in `OpenAPI` 3.1.
pub fn openapi(routes: &[Route]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>().to_value();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        let described = operation(route, &mut generator);
        let path = route.path.replace("{*", "{");
        paths.entry(path).or_default().insert(route.method.as_str().to_lowercase(), described);
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Guywire VNF manager",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "ETSI SOL003 (vnflcm v1 and v2, vnfpkgm v1, vnffm v1), a registry of VIMs, and operations.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {"Problem": {
                "description": "What was wrong, where, and what to do",
                "content": {problem::MEDIA: {"schema": problem}},
            }},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
                "oauth2": {"type": "oauth2", "flows": {
                    "clientCredentials": {"tokenUrl": "/oauth2/token", "scopes": {}},
                }},
                "certificate": {"type": "mutualTLS"},
                "session": {"type": "apiKey", "in": "cookie", "name": super::auth::COOKIE},
            },
        },
    })
}

/// The routes.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/openapi.json", Access::Reader, show)
            .doc("versions", "This document")
            .answers::<Value>(200, "The document"),
    ]
}

async fn show(call: Call) -> Answer {
    Ok(Reply::ok(&openapi(call.shared.table.routes())).with_content_etag())
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut parameters = path_parameters(route.path);
    for query in &route.doc.query {
        parameters.push(json!({
            "name": query.name,
            "in": "query",
            "description": query.description,
            "required": false,
            "schema": {"type": "string"},
        }));
    }
    if let Some(api) = &route.api {
        parameters.push(json!({
            "name": "Version",
            "in": "header",
            "description": "The version of the interface",
            "required": api.mandatory,
            "schema": {"type": "string", "enum": [api.version]},
        }));
    }
    let mut described = json!({
        "operationId": operation_id(route),
        "summary": route.doc.summary,
        "tags": [route.doc.tag],
        "parameters": parameters,
        "responses": responses(route, generator),
        "security": security(route.access),
        "x-guywire-role": route.access.as_str(),
    });
    if let Some(request) = &route.doc.request {
        let schema = match request.schema {
            Some(schema) => schema(generator).to_value(),
            None => json!({"type": "string", "format": "binary"}),
        };
        let content: Map<String, Value> =
            request.media.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect();
        described["requestBody"] = json!({"required": request.required, "content": content});
    }
    described
}

fn responses(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut all: BTreeMap<String, Value> = BTreeMap::new();
    for answer in &route.doc.answers {
        let entry = all.entry(answer.status.to_string()).or_insert_with(
            || json!({"description": answer.description, "headers": headers(route, answer.status)}),
        );
        if let Some((media, schema)) = answer.body {
            let described = match schema {
                Some(schema) => json!({"schema": schema(generator).to_value()}),
                None => json!({}),
            };
            entry["content"][media] = described;
        }
    }
    for status in problems(route) {
        let reference = json!({"$ref": "#/components/responses/Problem"});
        all.entry(status.to_string()).or_insert(reference);
    }
    json!(all)
}

/// What can go wrong with a route, from what it is.
fn problems(route: &Route) -> Vec<u16> {
    // A request may always be malformed, and we may always fail. 422 is for what refers to something that is not there.
    let mut all = vec![400, 404, 405, 406, 431, 500, 503];
    if route.access != Access::Open {
        all.extend([401, 403]);
    }
    if route.doc.request.is_some() || route.method != http::Method::GET {
        all.extend([409, 412, 413, 415, 422]);
    }
    if route.path == "/console/session" {
        all.extend([401, 403]);
    }
    if route.doc.answers.iter().any(|answer| answer.status == 206) {
        all.push(416);
    }
    if route.method == http::Method::GET {
        all.push(304);
        // What a package holds cannot be read before it is onboarded.
        if route.path.contains("{vnfPkgId}/") {
            all.push(409);
        }
    }
    all
}

fn headers(route: &Route, status: u16) -> Value {
    let text = |description: &str| json!({"description": description, "schema": {"type": "string"}});
    let mut all = Map::new();
    if route.api.is_some() {
        all.insert("Version".to_owned(), text("The version of the interface"));
    }
    if matches!(status, 201..=203 | 303) {
        all.insert("Location".to_owned(), text("Where it, or what becomes of it, is found"));
    }
    if route.doc.query.iter().any(|query| query.name == "nextpage_opaque_marker") {
        all.insert("Link".to_owned(), text("The next page, if there is one"));
    }
    Value::Object(all)
}

fn security(access: Access) -> Value {
    match access {
        Access::Open => json!([]),
        _ => json!([{"bearer": []}, {"token": []}, {"oauth2": []}, {"certificate": []}, {"session": []}]),
    }
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names =
        path.split('/').filter_map(|part| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')));
    names
        .map(|name| {
            let id = name.ends_with("Id") && !name.starts_with('*');
            let schema =
                if id { json!({"type": "string", "format": "uuid"}) } else { json!({"type": "string"}) };
            json!({"name": name.trim_start_matches('*'), "in": "path", "required": true, "schema": schema})
        })
        .collect()
}

/// A name for generators of clients: the method and the path's words.
fn operation_id(route: &Route) -> String {
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut id = route.method.as_str().to_lowercase();
    for word in words {
        id.push('_');
        id.push_str(word);
    }
    id
}
