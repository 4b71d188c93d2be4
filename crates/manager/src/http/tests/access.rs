//! Tokens, clients, cookies.

use http::Method;
use serde_json::{Value, json};

use super::world::{Setup, World, read};
use crate::{
    app::access::Role,
    http::{ServeError, ServeOptions, bind},
};

#[tokio::test]
async fn tokens_are_taken_in_both_headers_and_nothing_else_is() {
    let world = World::new().await;
    let status = |name: &'static str, value: String| {
        let request = world.bare(Method::GET, "/v1.0/vims").header(name, value);
        async move { read(request.send().await.expect("an answer")).await.0 }
    };
    assert_eq!(status("authorization", format!("Bearer {}", world.admin)).await, 200);
    assert_eq!(status("x-auth-token", world.admin.clone()).await, 200);
    assert_eq!(status("x-auth-token", format!("{}x", world.admin)).await, 401);
    assert_eq!(status("x-auth-token", String::new()).await, 401);
    assert_eq!(status("x-auth-token", "x".repeat(10_000)).await, 401);
    assert_eq!(status("authorization", "Basic YWRtaW46YWRtaW4=".to_owned()).await, 401);
    assert_eq!(
        status("cookie", format!("guywire_session={}", world.admin)).await,
        401,
        "a token is no cookie"
    );
}

#[tokio::test]
async fn administrators_make_and_delete_credentials() {
    let world = World::new().await;
    let body = json!({"name": "nfvo", "kind": "token", "role": "operator"});
    let (status, made) = world.post("/guywire/v1/credentials", &body).await;
    assert_eq!(status, 201, "{made}");
    let secret = made["secret"].as_str().expect("shown once").to_owned();
    let (_, list) = world.get("/guywire/v1/credentials").await;
    assert_eq!(list.as_array().map(Vec::len), Some(2));
    assert!(!list.to_string().contains(&secret) && !list.to_string().contains("hash"), "{list}");
    assert_eq!(world.post("/guywire/v1/credentials", &body).await.0, 409);
    for (body, expected) in [
        (json!({"name": "x", "role": "king"}), "role: unknown variant `king`, expected one of `reader`"),
        (json!({"name": "x", "role": "reader", "kind": "password"}), "kind: unknown variant"),
        (json!({"name": "x"}), "missing field `role`"),
        (json!({"name": "", "role": "reader"}), "name: it has 1 to 255"),
        (json!({"name": "x", "role": "reader", "expires": "tomorrow"}), "expires: "),
    ] {
        let (status, problem) = world.post("/guywire/v1/credentials", &body).await;
        assert_eq!(status, 400, "{body}");
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains(expected)), "{problem}");
    }
    let with = |token: &str| world.bare(Method::GET, "/v1.0/vims").bearer_auth(token).send();
    assert_eq!(with(&secret).await.expect("an answer").status(), 200);
    let delete =
        world.request(Method::DELETE, "/guywire/v1/credentials/nfvo").send().await.expect("an answer");
    assert_eq!(delete.status(), 204);
    assert_eq!(with(&secret).await.expect("an answer").status(), 401, "at once");
    let delete =
        world.request(Method::DELETE, "/guywire/v1/credentials/admin").send().await.expect("an answer");
    assert_eq!(delete.status(), 409, "the last administrator stays");
}

async fn token(world: &World, form: &str, basic: Option<(&str, &str)>) -> (u16, Value) {
    let mut request = world
        .bare(Method::POST, "/oauth2/token")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form.to_owned());
    if let Some((user, password)) = basic {
        request = request.basic_auth(user, Some(password));
    }
    let response = request.send().await.expect("an answer");
    assert_eq!(response.headers()["cache-control"], "no-store");
    if response.status() == 401 {
        assert_eq!(response.headers()["www-authenticate"], "Basic realm=\"guywire\"");
    }
    read(response).await
}

#[tokio::test]
async fn clients_exchange_their_secret_for_a_token() {
    let world = World::new().await;
    let body = json!({"name": "orchestrator", "kind": "client", "role": "reader"});
    let (_, made) = world.post("/guywire/v1/credentials", &body).await;
    let (id, secret) = (made["id"].as_str().expect("an id"), made["secret"].as_str().expect("a secret"));
    let grant = "grant_type=client_credentials";
    let posted = format!("{grant}&client_id={id}&client_secret={secret}");
    for (form, basic) in
        [(grant, Some((id, secret))), (posted.as_str(), None), (grant, Some(("orchestrator", secret)))]
    {
        let (status, answer) = token(&world, form, basic).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!((&answer["token_type"], &answer["expires_in"]), (&json!("Bearer"), &json!(3600)));
        let access = answer["access_token"].as_str().expect("a token");
        let list = world.bare(Method::GET, "/v1.0/vims").bearer_auth(access).send().await.expect("an answer");
        assert_eq!(list.status(), 200);
        let change =
            world.bare(Method::POST, "/v1.0/vims").bearer_auth(access).send().await.expect("an answer");
        assert_eq!(change.status(), 403, "a reader's token");
    }
    for (form, basic, status, error) in [
        (grant, None, 401, "invalid_client"),
        (grant, Some((id, "wrong")), 401, "invalid_client"),
        (grant, Some(("nobody", secret)), 401, "invalid_client"),
        ("", None, 400, "invalid_request"),
        ("grant_type=password", Some((id, secret)), 400, "unsupported_grant_type"),
        (&posted, Some((id, secret)), 400, "invalid_request"),
        (
            "grant_type=client_credentials&grant_type=client_credentials",
            Some((id, secret)),
            400,
            "invalid_request",
        ),
        ("grant_type=%zz", None, 400, "invalid_request"),
    ] {
        let (got, answer) = token(&world, form, basic).await;
        assert_eq!((got, &answer["error"]), (status, &json!(error)), "{form} {basic:?}: {answer}");
        assert!(!answer.to_string().contains(secret), "{answer}");
    }
}

#[tokio::test]
async fn the_console_logs_in_for_a_cookie_that_other_sites_cannot_use() {
    let world = World::new().await;
    let log_in =
        |token: &str| world.bare(Method::POST, "/console/session").json(&json!({"token": token})).send();
    assert_eq!(log_in("wrong").await.expect("an answer").status(), 401);
    let reader = world.token("person", Role::Operator).await;
    let response = log_in(&reader).await.expect("an answer");
    assert_eq!(response.status(), 200);
    let set = response.headers()["set-cookie"].to_str().expect("text").to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(set.contains(part), "{set}");
    }
    assert!(!set.contains("Secure"), "without TLS the browser would not send it back");
    assert_eq!(read(response).await.1, json!({"name": "person", "role": "operator"}));
    let cookie = set.split(';').next().expect("a pair").to_owned();
    let with = |method: Method, path: &str, headers: &[(&'static str, &str)]| {
        let mut request = world.bare(method, path).header("cookie", &cookie);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        async move { read(request.send().await.expect("an answer")).await.0 }
    };
    assert_eq!(with(Method::GET, "/console/session", &[]).await, 200);
    assert_eq!(with(Method::GET, "/v1.0/vims", &[]).await, 200);
    let same = ("sec-fetch-site", "same-origin");
    assert_eq!(with(Method::POST, "/v1.0/vims", &[]).await, 403, "nothing says where it comes from");
    assert_eq!(with(Method::DELETE, "/console/session", &[("origin", "http://evil.example")]).await, 403);
    assert_eq!(with(Method::DELETE, "/console/session", &[("sec-fetch-site", "cross-site")]).await, 403);
    assert_eq!(with(Method::DELETE, "/console/session", &[same]).await, 204);
    assert_eq!(with(Method::GET, "/console/session", &[]).await, 401, "logged out");
}

#[tokio::test]
async fn without_authentication_only_this_host_is_served() {
    let options = |listen: &[&str]| ServeOptions {
        listen: listen.iter().map(|text| text.parse().expect("an address")).collect(),
        tls: None,
        no_auth: true,
        grace: std::time::Duration::ZERO,
    };
    for listen in [&["0.0.0.0:0"][..], &["127.0.0.1:0", "192.0.2.1:0"], &["[::]:0"]] {
        assert!(matches!(bind(options(listen)), Err(ServeError::Open { .. })), "{listen:?}");
    }
    assert!(matches!(bind(options(&[])), Err(ServeError::Nowhere)));
    let world = World::with(Setup { no_auth: true, ..Setup::default() }).await;
    let with = |method: Method, headers: &[(&'static str, &str)]| {
        let mut request = world.bare(method, "/v1.0/vims");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        async move { read(request.send().await.expect("an answer")).await.0 }
    };
    assert_eq!(with(Method::GET, &[]).await, 200);
    assert_eq!(with(Method::POST, &[]).await, 415, "let in, and told what is missing");
    // A page of another site that a browser on this host shows.
    assert_eq!(with(Method::POST, &[("origin", "http://evil.example")]).await, 403);
    assert_eq!(with(Method::GET, &[("host", "evil.example")]).await, 403);
}

#[tokio::test]
async fn guessing_is_slowed() {
    let world = World::new().await;
    let began = std::time::Instant::now();
    for _ in 0..13 {
        let answer =
            world.bare(Method::GET, "/v1.0/vims").bearer_auth("guess").send().await.expect("an answer");
        assert_eq!(answer.status(), 401);
    }
    // 100, 200 and 300 ms after the first ten.
    assert!(began.elapsed().as_millis() >= 600, "{:?}", began.elapsed());
    let began = std::time::Instant::now();
    assert_eq!(world.get("/v1.0/vims").await.0, 200);
    assert!(began.elapsed().as_millis() < 500, "who knows the token does not wait");
}
