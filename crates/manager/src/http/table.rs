//! From a path and a method to a route. Pure.

use std::collections::{BTreeMap, HashMap};

use http::Method;

use super::{Route, query};
use crate::domain::{AppError, ErrorKind};

/// All routes as a tree of their paths' segments.
#[derive(Default)]
pub struct Table {
    routes: Vec<Route>,
    root: Node,
}

#[derive(Default)]
struct Node {
    fixed: HashMap<&'static str, Node>,
    param: Option<(&'static str, Box<Node>)>,
    /// A parameter that takes all that is left.
    rest: Option<(&'static str, Ends)>,
    ends: Ends,
}

/// Routes by method.
type Ends = BTreeMap<&'static str, usize>;

/// A route that was found.
#[derive(Debug)]
pub struct Found<'a> {
    /// The route.
    pub route: &'a Route,
    /// The parameters of its path, decoded.
    pub params: Vec<(&'static str, String)>,
}

/// Why there is no route.
#[derive(Debug)]
pub struct NoRoute {
    /// For the caller.
    pub error: AppError,
    /// The methods that the resource has, for `Allow`.
    pub allow: Vec<&'static str>,
}

impl Table {
    /// A table of routes.
    ///
    /// # Panics
    ///
    /// If two routes have the same method and path, or name the same parameter differently: slips of ours.
    pub fn new(routes: Vec<Route>) -> Self {
        let mut table = Self::default();
        for (index, route) in routes.iter().enumerate() {
            table.root.insert(route, index);
        }
        table.routes = routes;
        table
    }

    /// All routes.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The route for a method and a path as they were sent. `HEAD` is a `GET` whose body is not sent.
    pub fn find(&self, method: &Method, path: &str) -> Result<Found<'_>, NoRoute> {
        let nothing = || {
            NoRoute::new(
                ErrorKind::NotFound,
                format!("there is nothing at {path}; the paths are in /openapi.json"),
            )
        };
        let inside = path.strip_prefix('/').ok_or_else(nothing)?;
        let segments: Vec<&str> = if inside.is_empty() { Vec::new() } else { inside.split('/').collect() };
        let mut raw = Vec::new();
        let ends = self.root.find(&segments, inside, &mut raw).ok_or_else(nothing)?;
        let word = if method == Method::HEAD { "GET" } else { method.as_str() };
        let Some(&index) = ends.get(word) else {
            let allow: Vec<&'static str> = ends.keys().copied().collect();
            let detail = format!("{method} is no method of {path}; it has {}", allow.join(", "));
            return Err(NoRoute { error: AppError::new(ErrorKind::Method, detail), allow });
        };
        let params = raw
            .into_iter()
            .map(|(name, text)| Ok((name, query::decode_plain(text, "the path")?)))
            .collect::<Result<_, AppError>>()
            .map_err(|error| NoRoute { error, allow: Vec::new() })?;
        Ok(Found { route: &self.routes[index], params })
    }
}

impl Node {
    fn insert(&mut self, route: &Route, index: usize) {
        let mut node = self;
        let segments = route.path.trim_start_matches('/').split('/').filter(|segment| !segment.is_empty());
        for segment in segments {
            let name = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
            node = match name {
                None => node.fixed.entry(segment).or_default(),
                Some(name) if name.starts_with('*') => {
                    let (_, ends) = node.rest.get_or_insert_with(|| (&name[1..], Ends::new()));
                    assert!(
                        ends.insert(method_word(&route.method), index).is_none(),
                        "{route:?} is there twice"
                    );
                    return;
                }
                Some(name) => {
                    let (known, child) = node.param.get_or_insert_with(|| (name, Box::default()));
                    assert_eq!(
                        *known, name,
                        "{route:?} has another name for a parameter than its neighbours"
                    );
                    child
                }
            };
        }
        assert!(node.ends.insert(method_word(&route.method), index).is_none(), "{route:?} is there twice");
    }

    /// The more specific one wins: a fixed segment before a parameter before the rest.
    fn find<'s, 'p>(
        &'s self,
        segments: &[&'p str],
        left: &'p str,
        raw: &mut Vec<(&'static str, &'p str)>,
    ) -> Option<&'s Ends> {
        let Some((first, others)) = segments.split_first() else {
            return (!self.ends.is_empty()).then_some(&self.ends);
        };
        let after = left.get(first.len() + 1..).unwrap_or_default();
        // The tree's words live as long as the program, the path's do not: they are compared, not looked up as such.
        if let Some(child) = self.fixed.get::<str>(first)
            && let Some(found) = child.find(others, after, raw)
        {
            return Some(found);
        }
        if let Some((name, child)) = &self.param
            && !first.is_empty()
        {
            let depth = raw.len();
            raw.push((name, first));
            if let Some(found) = child.find(others, after, raw) {
                return Some(found);
            }
            raw.truncate(depth);
        }
        let (name, ends) = self.rest.as_ref()?;
        if left.is_empty() {
            return None;
        }
        raw.push((name, left));
        Some(ends)
    }
}

impl NoRoute {
    fn new(kind: ErrorKind, detail: String) -> Self {
        Self { error: AppError::new(kind, detail), allow: Vec::new() }
    }
}

/// The method as a word that lives as long as the program.
fn method_word(method: &Method) -> &'static str {
    ["GET", "POST", "PUT", "PATCH", "DELETE"]
        .into_iter()
        .find(|word| *word == method.as_str())
        .expect("routes have one of these methods")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Access, Call, Reply};

    async fn nothing(_: Call) -> Result<Reply, AppError> {
        Ok(Reply::no_content())
    }

    fn table() -> Table {
        Table::new(vec![
            Route::get("/", Access::Open, nothing),
            Route::get("/a", Access::Reader, nothing),
            Route::post("/a", Access::Reader, nothing),
            Route::get("/a/{id}", Access::Reader, nothing),
            Route::get("/a/special", Access::Reader, nothing),
            Route::post("/a/{id}/go", Access::Reader, nothing),
            Route::get("/a/{id}/files/{*path}", Access::Reader, nothing),
        ])
    }

    #[test]
    fn paths_find_their_routes() {
        let table = table();
        let cases: &[(&str, &str, &str, &[&str])] = &[
            ("GET", "/", "/", &[]),
            ("GET", "/a", "/a", &[]),
            ("HEAD", "/a", "/a", &[]),
            ("POST", "/a", "/a", &[]),
            ("GET", "/a/7", "/a/{id}", &["7"]),
            ("GET", "/a/special", "/a/special", &[]),
            ("POST", "/a/special/go", "/a/{id}/go", &["special"]),
            ("GET", "/a/a%2Fb", "/a/{id}", &["a/b"]),
            ("GET", "/a/7/files/x/y%20z", "/a/{id}/files/{*path}", &["7", "x/y z"]),
        ];
        for (method, path, expected, params) in cases {
            let method: Method = method.parse().expect("a method");
            let found = table.find(&method, path).unwrap_or_else(|no| panic!("{path}: {}", no.error));
            assert_eq!(found.route.path, *expected, "{path}");
            let values: Vec<&str> = found.params.iter().map(|(_, value)| value.as_str()).collect();
            assert_eq!(values, *params, "{path}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_apart() {
        let table = table();
        let cases = [
            ("GET", "/b", 404, ""),
            ("GET", "/a/", 404, ""),
            ("GET", "//a", 404, ""),
            ("GET", "/a/7/files/", 404, ""),
            ("GET", "*", 404, ""),
            ("DELETE", "/a", 405, "GET POST"),
            ("OPTIONS", "/a/7", 405, "GET"),
            ("GET", "/a/%zz", 400, ""),
            ("GET", "/a/%ff", 400, ""),
        ];
        for (method, path, status, allow) in cases {
            let method: Method = method.parse().expect("a method");
            let no = table.find(&method, path).expect_err(path);
            assert_eq!(no.error.kind.status(), status, "{method} {path}");
            assert_eq!(no.allow.join(" "), allow, "{method} {path}");
        }
    }
}
