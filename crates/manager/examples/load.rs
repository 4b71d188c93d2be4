//! What the manager costs, asked over HTTP as its users do.
//!
//! `load PROGRAM PACKAGE DIRECTORY INSTANCES` starts `PROGRAM manager serve` on a directory of its own, uploads the
//! package, and prints one JSON object; `cargo xtask bench` runs it and judges. What is compared against is measured in
//! the same run: bare commits with the same driver, and a bare hyper server (`load bare SIZE`) asked by the same client.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1::SendRequest, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sqlx::{
    Connection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tokio::net::{TcpListener, TcpStream};

const ROUNDS: usize = 400;
const IN_FLIGHT: usize = 2_000;
/// Instances of one name among the many: a page of them is what is looked for.
const GROUP: usize = 150;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["bare", size] => bare_server(size.parse().unwrap()).await,
        [program, package, directory, instances] => {
            measure(program, package, Path::new(directory), instances.parse().unwrap()).await;
        }
        _ => panic!("usage: load PROGRAM PACKAGE DIRECTORY INSTANCES"),
    }
}

async fn measure(program: &str, package: &str, directory: &Path, instances: usize) {
    let directory = tempfile::tempdir_in(directory).unwrap();
    let data = directory.path().join("data");
    let begin = Instant::now();
    let manager = Server::start(Command::new(program).args([
        "manager",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data.to_str().unwrap(),
    ]));
    let mut client = Client::new(&manager.address, None).await;
    while client.ask(Method::GET, "/readyz", None).await.0 != StatusCode::OK {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let ready_ms = begin.elapsed().as_secs_f64() * 1e3;
    let token = std::fs::read_to_string(data.join("admin-token")).unwrap().trim().to_owned();
    let mut client = Client::new(&manager.address, Some(&token)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let idle_mb = manager.resident();
    let vnfd_id = onboard(&mut client, package).await;

    // Alternating, so that a slow moment of the machine meets both.
    let mut bare = bare_database(&directory.path().join("bare.db")).await;
    let (mut commit, mut create, mut id) = (Vec::new(), Vec::new(), String::new());
    for at in 0..ROUNDS {
        let begin = Instant::now();
        bare_commit(&mut bare, &vnfd_id).await;
        commit.push(begin.elapsed());
        let body = json!({"vnfdId": vnfd_id, "vnfInstanceName": format!("bench-{at}")});
        let begin = Instant::now();
        let (status, answer) = client.ask(Method::POST, "/vnflcm/v1/vnf_instances", Some(&body)).await;
        create.push(begin.elapsed());
        assert_eq!(status, StatusCode::CREATED, "{answer:?}");
        parse(&answer)["id"].as_str().unwrap().clone_into(&mut id);
        if at >= 200 {
            // A list of just 200 is measured below.
            let path = format!("/vnflcm/v1/vnf_instances/{id}");
            assert_eq!(client.ask(Method::DELETE, &path, None).await.0, StatusCode::NO_CONTENT);
            id.clear();
        }
    }
    if id.is_empty() {
        let (_, answer) = client.ask(Method::GET, "/vnflcm/v1/vnf_instances", None).await;
        parse(&answer)[0]["id"].as_str().unwrap().clone_into(&mut id);
    }

    let path = format!("/vnflcm/v1/vnf_instances/{id}");
    let size = client.ask(Method::GET, &path, None).await.1.len();
    let plain =
        Server::start(Command::new(std::env::current_exe().unwrap()).args(["bare", &size.to_string()]));
    let mut plain_client = Client::new(&plain.address, None).await;
    let (mut show, mut reply) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS * 5 {
        let begin = Instant::now();
        plain_client.ask(Method::GET, &path, None).await;
        reply.push(begin.elapsed());
        let begin = Instant::now();
        assert_eq!(client.ask(Method::GET, &path, None).await.0, StatusCode::OK);
        show.push(begin.elapsed());
    }

    let all = "/vnflcm/v1/vnf_instances?all_records=yes";
    let mut list = Vec::new();
    for _ in 0..ROUNDS / 4 {
        let begin = Instant::now();
        let (_, answer) = client.ask(Method::GET, all, None).await;
        list.push(begin.elapsed());
        assert_eq!(parse(&answer).as_array().unwrap().len(), 200);
    }

    let errors = crowd(&manager.address, &token, &vnfd_id, &path).await;
    fill(&manager.address, &token, &vnfd_id, instances).await;
    // The first connection was idle for longer than a server waits.
    let mut client = Client::new(&manager.address, Some(&token)).await;
    let named = page(&mut client, "(eq,vnfInstanceName,group)").await;
    let state = page(&mut client, "(eq,instantiationState,NOT_INSTANTIATED)").await;
    let free = page(&mut client, "(eq,metadata/group,7)").await;
    let full_mb = manager.resident();
    println!(
        "{}",
        json!({
            "ready_ms": ready_ms, "idle_mb": idle_mb, "full_mb": full_mb, "instances": instances,
            "commit_ms": middle(&mut commit), "create_ms": middle(&mut create), "create_p99_ms": late(&mut create),
            "reply_ms": middle(&mut reply), "show_ms": middle(&mut show), "show_p99_ms": late(&mut show),
            "list_ms": middle(&mut list), "in_flight": IN_FLIGHT, "in_flight_errors": errors,
            "page_by_name_ms": named, "page_by_state_ms": state, "page_by_metadata_ms": free,
        })
    );
}

/// Creates, uploads and waits.
async fn onboard(client: &mut Client, package: &str) -> String {
    let (status, answer) = client.ask(Method::POST, "/vnfpkgm/v1/vnf_packages", Some(&json!({}))).await;
    assert_eq!(status, StatusCode::CREATED, "{answer:?}");
    let path = format!("/vnfpkgm/v1/vnf_packages/{}", parse(&answer)["id"].as_str().unwrap());
    let content = std::fs::read(package).unwrap();
    let (status, answer) =
        client.send(Method::PUT, &format!("{path}/package_content"), "application/zip", content.into()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer:?}");
    loop {
        let shown = parse(&client.ask(Method::GET, &path, None).await.1);
        if shown["onboardingState"] == "ONBOARDED" {
            return shown["vnfdId"].as_str().unwrap().to_owned();
        }
        assert!(shown.get("onboardingFailureDetails").is_none(), "{shown}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Thousands of requests at once, each on a connection of its own; how many did not go well.
async fn crowd(address: &str, token: &str, vnfd_id: &str, path: &str) -> usize {
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(IN_FLIGHT));
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..IN_FLIGHT {
        let (address, token, vnfd_id) = (address.to_owned(), token.to_owned(), vnfd_id.to_owned());
        let (path, barrier) = (path.to_owned(), barrier.clone());
        tasks.spawn(async move {
            let mut client = Client::new(&address, Some(&token)).await;
            barrier.wait().await;
            let (status, _) = match at % 4 {
                0 => {
                    let body = json!({"vnfdId": vnfd_id, "vnfInstanceName": "crowd"});
                    client.ask(Method::POST, "/vnflcm/v1/vnf_instances", Some(&body)).await
                }
                1 => client.ask(Method::GET, "/vnflcm/v1/vnf_instances", None).await,
                _ => client.ask(Method::GET, &path, None).await,
            };
            status.is_success()
        });
    }
    let results = tasks.join_all().await;
    results.into_iter().filter(|good| !good).count()
}

/// Makes so many instances, some of which share a name.
async fn fill(address: &str, token: &str, vnfd_id: &str, instances: usize) {
    let mut tasks = tokio::task::JoinSet::new();
    let lanes = 32;
    for lane in 0..lanes {
        let (address, token, vnfd_id) = (address.to_owned(), token.to_owned(), vnfd_id.to_owned());
        tasks.spawn(async move {
            let mut client = Client::new(&address, Some(&token)).await;
            for at in (lane..instances).step_by(lanes) {
                let group = at % (instances / GROUP).max(1) == 0;
                let name = if group { "group".to_owned() } else { format!("many-{at}") };
                let body = json!({
                    "vnfdId": vnfd_id, "vnfInstanceName": name, "vnfInstanceDescription": "one of many",
                    "metadata": {"group": (at % 300).to_string()},
                });
                let (status, _) = client.ask(Method::POST, "/vnflcm/v1/vnf_instances", Some(&body)).await;
                assert_eq!(status, StatusCode::CREATED);
            }
        });
    }
    tasks.join_all().await;
}

/// The median time of a filtered page of 100.
async fn page(client: &mut Client, filter: &str) -> f64 {
    let path = format!("/vnflcm/v1/vnf_instances?filter={filter}");
    let mut times = Vec::new();
    for _ in 0..20 {
        let begin = Instant::now();
        let (status, answer) = client.ask(Method::GET, &path, None).await;
        times.push(begin.elapsed());
        assert_eq!((status, parse(&answer).as_array().unwrap().len()), (StatusCode::OK, 100), "{filter}");
    }
    middle(&mut times)
}

/// A program that says where it listens, ended when this is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).env("GUYWIRE_LOG", "error").spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").expect("where it listens").to_owned();
        Self { child, address }
    }

    fn resident(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("process {} stays: {error}", self.child.id());
        }
    }
}

/// One connection that is kept.
struct Client {
    sender: SendRequest<Full<Bytes>>,
    address: String,
    token: Option<String>,
}

impl Client {
    async fn new(address: &str, token: Option<&str>) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("connection: {error}");
            }
        });
        Self { sender, address: address.to_owned(), token: token.map(ToOwned::to_owned) }
    }

    async fn ask(&mut self, method: Method, path: &str, body: Option<&Value>) -> (StatusCode, Bytes) {
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        self.send(method, path, "application/json", bytes).await
    }

    async fn send(&mut self, method: Method, path: &str, media: &str, body: Bytes) -> (StatusCode, Bytes) {
        let mut request = Request::builder().method(method).uri(path).header("host", &self.address);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if !body.is_empty() {
            request = request.header("content-type", media);
        }
        self.sender.ready().await.unwrap();
        let answer = self.sender.send_request(request.body(Full::new(body)).unwrap()).await.unwrap();
        (answer.status(), answer.into_body().collect().await.unwrap().to_bytes())
    }
}

/// The least that a server can do.
async fn bare_server(size: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("listening on http://{}", listener.local_addr().unwrap());
    let body = Bytes::from(vec![b'x'; size]);
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let body = body.clone();
        let answer = service_fn(move |_: Request<Incoming>| {
            let body = body.clone();
            async move { Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(body))) }
        });
        tokio::spawn(async move {
            let served =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            if let Err(error) = served.await {
                eprintln!("bare server: {error}");
            }
        });
    }
}

async fn bare_database(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::query("CREATE TABLE row (id INTEGER PRIMARY KEY, body TEXT)")
        .execute(&mut connection)
        .await
        .unwrap();
    connection
}

async fn bare_commit(connection: &mut SqliteConnection, body: &str) {
    sqlx::query("INSERT INTO row (body) VALUES (?1)").bind(body).execute(connection).await.unwrap();
}

fn parse(answer: &Bytes) -> Value {
    serde_json::from_slice(answer).unwrap()
}

fn middle(times: &mut [Duration]) -> f64 {
    at(times, 50)
}

fn late(times: &mut [Duration]) -> f64 {
    at(times, 99)
}

/// A percentile, in milliseconds.
fn at(times: &mut [Duration], percent: usize) -> f64 {
    times.sort();
    times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3
}
