//! The manager as a process: everything wired together, started, and stopped in order.

use std::{fs::File, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use guywire_manager::{
    app::{
        App, Config, Nfvo,
        access::{ensure_admin, renew_admin},
        alarms,
        callback::{Callbacks, Outbound},
        deliver,
        grant::Grant,
        lcm, packages, vims,
    },
    domain::CallbackAuth,
    http::{self, ServeOptions, TlsFiles},
    store::Store,
};
use guywire_plan::{Handlers, Options};
use rustix::fs::{FlockOperation, flock};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    cli::manager::{ManagerCommand, Serve, Signatures},
    installation::Installation,
    works::LocalWorks,
};

mod backup;

/// How long requests that are under way may take when the manager is told to stop.
const GRACE: Duration = Duration::from_secs(10);

/// Runs the command.
pub async fn run(command: ManagerCommand, installation: &Installation) -> anyhow::Result<ExitCode> {
    match command {
        ManagerCommand::Serve(options) => serve(installation, *options).await,
        ManagerCommand::Backup { file } => backup::write(installation, &file).await,
        ManagerCommand::Restore { file } => backup::restore(installation, &file).await,
        ManagerCommand::RenewToken => {
            renew_admin(&*store(installation).await?, installation.data()).await?;
            println!("{}", installation.data().join("admin-token").display());
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The manager's database.
async fn store(installation: &Installation) -> anyhow::Result<Arc<Store>> {
    Ok(Arc::new(match installation.database() {
        Some(url) => Store::postgres(url).await?,
        None => Store::sqlite(&installation.data().join("manager.db")).await?,
    }))
}

async fn serve(installation: &Installation, options: Serve) -> anyhow::Result<ExitCode> {
    // Held until the end; a file in the data directory cannot be shared by two managers, a server can.
    let _alone = if installation.database().is_none() { Some(alone(installation)?) } else { None };
    let bound = http::bind(ServeOptions {
        listen: options.listen.clone(),
        tls: tls(&options),
        no_auth: options.no_auth,
        grace: GRACE,
    })?;
    if options.tls_cert.is_none() && options.listen.iter().any(|address| !address.ip().is_loopback()) {
        tracing::warn!("tokens travel unencrypted beyond this host: give --tls-cert and --tls-key");
    }
    let url = options.public_url.clone().unwrap_or_else(|| bound.url());
    let store = store(installation).await?;
    let app = application(installation, &options, store, url.trim_end_matches('/').to_owned()).await?;
    ensure_admin(&app.store, installation.data()).await?;
    vims::ensure_default(&app.store).await?;
    packages::recover(&app).await?;

    let stop = CancellationToken::new();
    let work = TaskTracker::new();
    work.spawn(lcm::drive(app.clone(), stop.clone()));
    work.spawn(deliver::run(app.clone(), stop.clone()));
    work.spawn(alarms::watch(app.clone(), stop.clone()));
    let (serving, serving_stop) = (app.clone(), stop.clone());
    let served = tokio::spawn(bound_serve(bound, serving, serving_stop, url));
    signalled().await?;
    tracing::info!("stopping: requests under way are answered, plans go on at the next start");
    stop.cancel();
    work.close();
    served.await??;
    work.wait().await;
    app.store.db().close().await;
    Ok(ExitCode::SUCCESS)
}

async fn bound_serve(
    bound: http::Bound,
    app: App,
    stop: CancellationToken,
    url: String,
) -> anyhow::Result<()> {
    for address in bound.addresses() {
        tracing::info!(%address, "listening");
    }
    // For whoever started us: a line that can be waited for.
    println!("listening on {url}");
    bound.serve(app, http::all(), stop).await;
    Ok(())
}

async fn application(
    installation: &Installation,
    options: &Serve,
    store: Arc<Store>,
    url: String,
) -> anyhow::Result<App> {
    let installed = Arc::new(installation.clone());
    let pool = installation.pool();
    let secrets = Arc::new(installation.secrets()?);
    let outbound = Outbound {
        test_callback: !options.no_callback_test,
        identity: options.client_cert.clone().zip(options.client_key.clone()),
        ca: options.trust.clone(),
        ..Outbound::default()
    };
    let callbacks = Callbacks::new(&outbound, installation.data(), secrets.clone())?;
    let nfvo = nfvo(options, installation)?;
    let grant = Grant { callbacks: callbacks.clone(), nfvo: nfvo.clone() };
    let term = Options { term: Duration::from_secs(options.lease.into()), ..Options::default() };
    let engine = installation.engine_with(&pool, Handlers::new().with(grant), term).await?;
    let config = Config {
        data: installation.data().to_owned(),
        url,
        nfvo,
        outbound,
        packages: package_policy(options)?,
    };
    Ok(App {
        store,
        engine,
        works: Arc::new(LocalWorks::new(installed, pool)?),
        secrets,
        callbacks,
        config: Arc::new(config),
    })
}

fn nfvo(options: &Serve, installation: &Installation) -> anyhow::Result<Option<Nfvo>> {
    let Some(url) = &options.nfvo else { return Ok(None) };
    let parsed = url::Url::parse(url).with_context(|| format!("--nfvo: {url:?} is no URL"))?;
    if !["http", "https"].contains(&parsed.scheme()) || parsed.password().is_some() {
        bail!(
            "--nfvo: write http:// or https://, and no password into it: use --nfvo-user and --nfvo-password"
        );
    }
    let auth = match (&options.nfvo_user, &options.nfvo_password, &options.nfvo_token_url) {
        // Without a user our certificate says who asks, if there is one.
        (None, ..) => {
            let identity = options.client_cert.is_some() || installation.data().join("client.pem").exists();
            (identity && parsed.scheme() == "https").then_some(CallbackAuth::Mtls)
        }
        (Some(user), Some(password), None) => {
            Some(CallbackAuth::Basic { user: user.clone(), password: password.clone() })
        }
        (Some(client), secret, Some(endpoint)) => Some(CallbackAuth::OAuth2 {
            client: client.clone(),
            secret: secret.clone(),
            endpoint: endpoint.clone(),
        }),
        (Some(_), None, None) => bail!("--nfvo-user needs --nfvo-password"),
    };
    Ok(Some(Nfvo { url: url.trim_end_matches('/').to_owned(), auth }))
}

fn package_policy(options: &Serve) -> anyhow::Result<guywire_package::Policy> {
    use guywire_package::Signature;
    let mut policy = guywire_package::Policy {
        signature: match options.package_signatures {
            Signatures::Ignore => Signature::Ignore,
            Signatures::Present => Signature::IfPresent,
            Signatures::Required => Signature::Required,
        },
        ..guywire_package::Policy::default()
    };
    if let Some(file) = &options.package_trust {
        let pem = std::fs::read(file).with_context(|| format!("--package-trust {}", file.display()))?;
        policy.trust.push(pem);
    }
    Ok(policy)
}

fn tls(options: &Serve) -> Option<TlsFiles> {
    let (cert, key) = options.tls_cert.clone().zip(options.tls_key.clone())?;
    Some(TlsFiles { cert, key, client_ca: options.client_ca.clone() })
}

/// Makes sure that no other manager works on the same data directory.
fn alone(installation: &Installation) -> anyhow::Result<File> {
    let path = installation.data().join("manager.lock");
    let file = File::create(&path).with_context(|| format!("{}: cannot be made", path.display()))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!(
            "another manager works on {}; stop it, choose another directory with --data, or let both share a PostgreSQL \
             database with --database",
            installation.data().display()
        );
    }
    Ok(file)
}

/// Returns when the process is told to stop.
async fn signalled() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
