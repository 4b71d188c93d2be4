//! Requests that no client sends: whatever arrives is refused or the connection is closed, and the manager goes on.

use crate::{http::Http, manager::Manager, random::Random};

/// How many requests are sent.
const REQUESTS: usize = 2_000;

/// Kinds of requests of which more would have to follow.
const INCOMPLETE: [usize; 5] = [5, 6, 7, 15, 16];

/// Paths that take something.
const PATHS: &[&str] = &[
    "/vnflcm/v2/vnf_instances",
    "/vnflcm/v1/vnf_instances",
    "/vnflcm/v2/vnf_lcm_op_occs",
    "/vnflcm/v2/subscriptions",
    "/vnfpkgm/v1/vnf_packages",
    "/vnffm/v1/alarms",
    "/v1.0/vims",
    "/guywire/v1/credentials",
    "/oauth2/token",
];

#[test]
fn garbage_is_refused_and_nothing_else_happens() {
    let manager = Manager::start();
    let http = Http::new(&manager.url, &manager.token);
    let mut random = Random(7);
    let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
    for round in 0..REQUESTS {
        let (what, bytes) = make(round, &http, &mut random);
        let status = http.raw(&bytes, INCOMPLETE.contains(&(round % 20))).map_or(0, |answer| answer.status);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned();
        // Zero stands for a connection that was closed without a word.
        assert!(
            status == 0 || (400..500).contains(&status),
            "{what} ({round}) was answered with {status}: {shown}\n{}",
            manager.said()
        );
        *statuses.entry(status).or_default() += 1;
    }
    println!("{REQUESTS} malformed requests: {statuses:?}");
    assert!(statuses.len() > 4, "they are refused for several reasons: {statuses:?}");
    assert_eq!(http.send("GET", "/healthz", "", None).status, 200, "it lives");
    let said = manager.said();
    assert!(!said.contains("panicked") && !said.contains("our own fault"), "{said}");
    for list in ["/vnflcm/v2/vnf_instances", "/vnflcm/v2/subscriptions", "/vnfpkgm/v1/vnf_packages"] {
        assert_eq!(http.get(list), serde_json::json!([]), "nothing was made: {list}");
    }
}

/// What is wrong with a request, and the request.
#[allow(clippy::too_many_lines, reason = "it is a table")]
fn make(round: usize, http: &Http, random: &mut Random) -> (&'static str, Vec<u8>) {
    let path = *random.pick(PATHS);
    let listed = PATHS[random.below(6)];
    let id = &http.credentials(path);
    let get = |target: String| {
        let id = http.credentials(&target);
        format!("GET {target} HTTP/1.1\r\n{id}Connection: close\r\n\r\n").into_bytes()
    };
    match round % 20 {
        0 => (
            "a broken percent-encoding",
            get(format!("{path}?filter=%{}", random.pick(&["", "2", "zz", "%", "g0"]))),
        ),
        1 => ("a NUL in the query", get(format!("{listed}?filter=%00{}", random.next()))),
        2 => (
            "bytes that are no UTF-8 in the path",
            get(format!("{path}/%ff%fe%{:02x}", 128 + random.below(120))),
        ),
        3 => ("huge headers", with_header(id, path, &"x".repeat(70_000 + random.below(100_000)))),
        4 => ("many headers", {
            let many =
                (0..500 + random.below(500)).fold(String::new(), |all, at| all + &format!("X-{at}: y\r\n"));
            format!("GET {path} HTTP/1.1\r\n{id}{many}\r\n").into_bytes()
        }),
        5 => ("chunks that are none", {
            let size = *random.pick(&["zz", "-1", "ffffffffffffffffff", "5;\u{0}", " ", "5\r\nab"]);
            post(id, path, "Transfer-Encoding: chunked\r\n", size.as_bytes())
        }),
        6 => (
            "a body that is shorter than it should be",
            post(id, path, "Content-Length: 5000\r\n", b"{\"a\": 1}"),
        ),
        7 => ("a length that is none", {
            let length = *random.pick(&["-1", "x", "99999999999999999999999", "1, 2", "0x10", ""]);
            post(id, path, &format!("Content-Length: {length}\r\n"), b"{}")
        }),
        8 => ("JSON that is no UTF-8", {
            let noise = random.bytes(40);
            json(id, path, &[b"{\"vnfdId\": \"\xff", noise.as_slice(), b"\"}"].concat())
        }),
        9 => ("deeply nested JSON", {
            let depth = 100 + random.below(100_000);
            json(
                id,
                path,
                format!("{{\"vnfdId\": {}", random.pick(&["[", "{\"a\":"]).repeat(depth)).as_bytes(),
            )
        }),
        10 => ("nested JSON that is closed", {
            let depth = 130 + random.below(5_000);
            json(id, path, format!("{{\"metadata\": {}{}}}", "[".repeat(depth), "]".repeat(depth)).as_bytes())
        }),
        11 => ("huge numbers", {
            let number = *random.pick(&[
                "1e999",
                "-1e999",
                "123456789012345678901234567890",
                "1e-9999",
                "0x1",
                "NaN",
                "01",
            ]);
            json(id, path, format!("{{\"vnfdId\": {number}, \"numberOfSteps\": {number}}}").as_bytes())
        }),
        12 => (
            "the same attribute twice",
            json(id, path, b"{\"vnfdId\": \"a\", \"vnfdId\": \"b\", \"name\": \"a\", \"name\": \"b\"}"),
        ),
        13 => (
            "a filter without an end",
            get(format!("{listed}?filter={}", "(eq,".repeat(1 + random.below(8_000)))),
        ),
        14 => (
            "a filter that names a deep attribute",
            get(format!("{listed}?filter=(like,{},x)", "a/".repeat(1 + random.below(8_000)))),
        ),
        15 => ("a request line that is none", {
            let count = 1 + random.below(400);
            let mut noise = random.bytes(count);
            noise.extend_from_slice(b"\r\n\r\n");
            noise
        }),
        16 => (
            "a version that is none",
            format!("GET {path} HTTP/{}\r\n{id}\r\n", random.pick(&["9.9", "x", "", "1.", "2.0"]))
                .into_bytes(),
        ),
        17 => (
            "a method that is none",
            format!(
                "{} {path} HTTP/1.1\r\n{id}Connection: close\r\n\r\n",
                random.pick(&["BREW", "PROPFIND", "TRACE", "get", "CONNECT"])
            )
            .into_bytes(),
        ),
        18 => ("a media type that is none", {
            let media = *random.pick(&[
                "text/html",
                "application/xml",
                "a",
                "/",
                "application/json; charset=utf-16",
                "\u{e9}",
            ]);
            post(id, path, &format!("Content-Type: {media}\r\nContent-Length: 9\r\n"), b"<a>1</a>x")
        }),
        _ => (
            "a marker or an id that is none",
            match random.below(3) {
                0 => get(format!("{listed}?nextpage_opaque_marker={}", random.next())),
                1 => get(format!("{path}/{}", "0".repeat(1 + random.below(60_000)))),
                _ => get(format!("{listed}?all_fields&fields=a&exclude_fields=b&{}", random.next())),
            },
        ),
    }
}

fn with_header(id: &str, path: &str, value: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\n{id}X-Long: {value}\r\nConnection: close\r\n\r\n").into_bytes()
}

fn post(id: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\n{id}{headers}Connection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn json(id: &str, path: &str, body: &[u8]) -> Vec<u8> {
    post(id, path, &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()), body)
}
