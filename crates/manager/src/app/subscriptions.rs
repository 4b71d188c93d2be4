//! Who wants to hear of what: requests become subscriptions, subscriptions become answers.

mod wire;

use guywire_secrets::{Secret, SecretRef};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use url::Url;
pub use wire::{
    AuthType, Authentication, FmFilter, FmSubscriptionRequest, InstanceSubscriptionFilter, LccnFilter,
    LccnSubscriptionRequest, LccnSubscriptionRequestV2, PkgmFilter, PkgmSubscriptionRequest, Wanted,
};

use super::{
    App,
    callback::{Callbacks, Credentials, Outgoing},
};
use crate::{
    domain::{Api, AppError, CallbackAuth, ErrorKind, Subscription, SubscriptionId, Verbosity},
    store::Delivery,
};

/// The longest address of a callback.
const LONGEST_URI: usize = 2048;
/// The largest filter, as JSON. Every change is held against every filter.
const LARGEST_FILTER: usize = 64 * 1024;
/// The most subscriptions: a bound on the work that every change makes.
const MOST: u32 = 1_000;

/// What became of a request for a subscription.
#[derive(Debug)]
pub enum Subscribed {
    /// It is new.
    New(Box<Subscription>),
    /// There is the same one already.
    Known(SubscriptionId),
}

/// Makes a subscription, after its callback has answered.
pub async fn subscribe(app: &App, api: Api, wanted: Wanted) -> Result<Subscribed, AppError> {
    check_uri("callbackUri", &wanted.callback)?;
    let given = wanted.filter.given.as_ref().map(Value::to_string).unwrap_or_default();
    if given.len() > LARGEST_FILTER {
        return Err(AppError::invalid(format!(
            "filter: it has {} bytes and {LARGEST_FILTER} are allowed; make several subscriptions of it",
            given.len()
        )));
    }
    let all = app.store.deliveries(None, MOST).await?;
    // SOL003 leaves it open what becomes of a second one like the first. Tacker's v2 makes it; v1 points to the first.
    let twin = all.iter().map(|(subscription, _)| subscription).find(|known| {
        api != Api::LcmV2
            && known.api == api
            && known.callback == wanted.callback
            && known.filter == wanted.filter
    });
    if let Some(twin) = twin {
        return Ok(Subscribed::Known(twin.id));
    }
    if all.len() >= MOST as usize {
        return Err(AppError::new(
            ErrorKind::Unprocessable,
            format!(
                "there are {MOST} subscriptions already, which is the most; delete some that nobody needs"
            ),
        ));
    }
    let credentials = wanted.authentication.map(|given| prove(&app.callbacks, given)).transpose()?;
    if app.config.outbound.test_callback {
        test(app, &wanted.callback, credentials.as_ref()).await?;
    }
    let id = SubscriptionId::new();
    let auth = match credentials {
        Some(credentials) => Some(keep(app, id, credentials).await?),
        None => None,
    };
    let subscription = Subscription {
        id,
        api,
        callback: wanted.callback,
        filter: wanted.filter,
        verbosity: wanted.verbosity,
        auth,
        created: Timestamp::now(),
    };
    if let Err(error) = app.store.insert_subscription(&subscription).await {
        forget(app, &subscription).await?;
        return Err(error.into());
    }
    Ok(Subscribed::New(Box::new(subscription)))
}

/// One subscription of an interface.
pub async fn find(app: &App, api: Api, id: SubscriptionId) -> Result<Subscription, AppError> {
    let found = app.store.subscription(id).await?.filter(|found| found.api == api);
    found.ok_or_else(|| {
        AppError::not_found(format!("there is no subscription {id} at {}/subscriptions", api.root()))
    })
}

/// Ends a subscription; what waits for it is not delivered any more.
pub async fn unsubscribe(app: &App, api: Api, id: SubscriptionId) -> Result<(), AppError> {
    let subscription = find(app, api, id).await?;
    app.store.delete_subscription(id).await?;
    forget(app, &subscription).await
}

/// A subscription as SOL003 shows it: never with what we prove ourselves with.
pub fn shown(subscription: &Subscription, address: &str) -> Value {
    let href = format!("{address}{}/subscriptions/{}", subscription.api.root(), subscription.id);
    let mut body = json!({
        "id": subscription.id,
        "callbackUri": subscription.callback,
        "_links": { "self": { "href": href } },
    });
    if let Some(filter) = &subscription.filter.given {
        body["filter"] = filter.clone();
    }
    if subscription.api == Api::LcmV2 {
        body["verbosity"] = json!(subscription.verbosity);
    }
    body
}

/// A subscription of any interface, and how delivery to it fares.
pub fn shown_with_delivery(subscription: &Subscription, delivery: &Delivery, address: &str) -> Value {
    let mut body = shown(subscription, address);
    body["api"] = json!(subscription.api.root());
    body["verbosity"] = json!(subscription.verbosity);
    body["created"] = json!(subscription.created);
    body["authentication"] = json!(match &subscription.auth {
        None => "none",
        Some(CallbackAuth::Basic { .. }) => "BASIC",
        Some(CallbackAuth::OAuth2 { secret: Some(_), .. }) => "OAUTH2_CLIENT_CREDENTIALS",
        Some(CallbackAuth::OAuth2 { secret: None, .. }) => "OAUTH2_CLIENT_CERT",
        Some(CallbackAuth::Mtls) => "TLS_CERT",
    });
    body["delivery"] = json!({
        "waiting": delivery.waiting,
        "failures": delivery.failures,
        "nextTry": delivery.next_try,
        "lastError": delivery.last_error,
        "lastErrorTime": delivery.last_error_at,
        "lastSuccessTime": delivery.last_success_at,
        "delivered": delivery.delivered,
        "dropped": delivery.dropped,
    });
    body
}

/// SOL003: the callback must answer a GET with 204 before anything is sent to it.
async fn test(app: &App, callback: &str, credentials: Option<&Credentials>) -> Result<(), AppError> {
    let what = match app.callbacks.send(&Outgoing::get(callback), credentials).await {
        Ok(answer) if answer.status == StatusCode::NO_CONTENT => return Ok(()),
        Ok(answer) => answer.complaint(),
        Err(error) => error.reason,
    };
    Err(AppError::new(
        ErrorKind::Unprocessable,
        format!("callbackUri: a GET to it must be answered with 204 No Content before it is used; {what}"),
    ))
}

/// Chooses the first way to prove who we are that was offered and that we have.
fn prove(callbacks: &Callbacks, given: Authentication) -> Result<Credentials, AppError> {
    let missing = |name: &str, of: AuthType| {
        AppError::invalid(format!("authentication.{name}: it is needed for authType {}", json!(of)))
    };
    let Some(first) = given.auth_type.first().copied() else {
        return Err(AppError::invalid("authentication.authType: it is empty; name at least one"));
    };
    match first {
        AuthType::Basic => {
            let params = given.params_basic.ok_or_else(|| missing("paramsBasic", first))?;
            let user = params.user_name.ok_or_else(|| missing("paramsBasic.userName", first))?;
            let password = params.password.ok_or_else(|| missing("paramsBasic.password", first))?;
            Ok(Credentials::Basic { user, password: Secret::new(password) })
        }
        AuthType::Oauth2ClientCredentials => {
            let name = "paramsOauth2ClientCredentials";
            let params = given.params_oauth2_client_credentials.ok_or_else(|| missing(name, first))?;
            let need = |part: &str| missing(&format!("{name}.{part}"), first);
            let client = params.client_id.ok_or_else(|| need("clientId"))?;
            let secret = params.client_password.ok_or_else(|| need("clientPassword"))?;
            let endpoint = params.token_endpoint.ok_or_else(|| need("tokenEndpoint"))?;
            check_uri("authentication.paramsOauth2ClientCredentials.tokenEndpoint", &endpoint)?;
            Ok(Credentials::OAuth2 { client, secret: Some(Secret::new(secret)), endpoint })
        }
        AuthType::Oauth2ClientCert => {
            let name = "paramsOauth2ClientCert";
            let params = given.params_oauth2_client_cert.ok_or_else(|| missing(name, first))?;
            check_uri("authentication.paramsOauth2ClientCert.tokenEndpoint", &params.token_endpoint)?;
            let own = own_certificate(callbacks, first)?;
            let (kind, value) = (&params.certificate_ref.kind, &params.certificate_ref.value);
            if kind != "x5t#S256" || value.trim_end_matches('=') != own {
                return Err(AppError::new(
                    ErrorKind::Unprocessable,
                    format!(
                        "authentication.{name}.certificateRef: it does not name the manager's certificate, whose \
                         x5t#S256 is {own}"
                    ),
                ));
            }
            let endpoint = params.token_endpoint;
            Ok(Credentials::OAuth2 { client: params.client_id, secret: None, endpoint })
        }
        AuthType::TlsCert => own_certificate(callbacks, first).map(|_| Credentials::Certificate),
    }
}

fn own_certificate(callbacks: &Callbacks, kind: AuthType) -> Result<String, AppError> {
    callbacks.fingerprint().map_err(|error| {
        AppError::new(
            ErrorKind::Unprocessable,
            format!(
                "authentication.authType: {} needs a certificate that the manager can show, and it has none; have its \
                 operator put one there, or choose another authType",
                json!(kind)
            ),
        )
        .because(error)
    })
}

/// Moves what is secret to the store of secrets, and refers to it from then on.
async fn keep(app: &App, id: SubscriptionId, credentials: Credentials) -> Result<CallbackAuth, AppError> {
    let put = async |secret: Secret| -> Result<SecretRef, AppError> {
        let (secrets, reference) = (app.secrets.clone(), reference(id));
        let kept = reference.clone();
        // It waits for a lock and for the disk.
        let done = tokio::task::spawn_blocking(move || secrets.set(&kept, secret)).await;
        done.map_err(unkept)?.map_err(unkept)?;
        Ok(reference)
    };
    Ok(match credentials {
        Credentials::Basic { user, password } => CallbackAuth::Basic { user, password: put(password).await? },
        Credentials::OAuth2 { client, secret, endpoint } => {
            let secret = match secret {
                Some(secret) => Some(put(secret).await?),
                None => None,
            };
            CallbackAuth::OAuth2 { client, secret, endpoint }
        }
        Credentials::Certificate => CallbackAuth::Mtls,
    })
}

async fn forget(app: &App, subscription: &Subscription) -> Result<(), AppError> {
    let has_secret = matches!(
        subscription.auth,
        Some(CallbackAuth::Basic { .. } | CallbackAuth::OAuth2 { secret: Some(_), .. })
    );
    if has_secret {
        let (secrets, reference) = (app.secrets.clone(), reference(subscription.id));
        let done = tokio::task::spawn_blocking(move || secrets.remove(&reference)).await;
        done.map_err(unkept)?.map_err(unkept)?;
    }
    Ok(())
}

fn reference(id: SubscriptionId) -> SecretRef {
    format!("secret:subscription.{id}.password")
        .parse()
        .expect("a UUID has only letters that a name may have")
}

fn unkept(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> AppError {
    AppError::new(
        ErrorKind::Unavailable,
        "the manager's store of secrets cannot be written; see the manager's log",
    )
    .because(error)
}

/// An address that we may call: `http` or `https`, a host, no password in it.
fn check_uri(attribute: &str, text: &str) -> Result<(), AppError> {
    let wrong = |what: String| AppError::invalid(format!("{attribute}: {what}"));
    if text.len() > LONGEST_URI {
        return Err(wrong(format!("it has {} characters and {LONGEST_URI} are allowed", text.len())));
    }
    let url = Url::parse(text)
        .map_err(|error| wrong(format!("it is no URL ({error}); write http://host:port/path")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(format!("its scheme is {:?}; http and https are called", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("it holds a user or a password; put them into `authentication`".to_owned()));
    }
    if url.fragment().is_some() {
        return Err(wrong("it has a fragment (#), which no server ever sees; leave it out".to_owned()));
    }
    Ok(())
}

impl Wanted {
    /// A request without filter and credentials.
    pub fn all(callback: impl Into<String>) -> Self {
        Self {
            callback: callback.into(),
            filter: crate::domain::Filter::default(),
            verbosity: Verbosity::Full,
            authentication: None,
        }
    }
}
