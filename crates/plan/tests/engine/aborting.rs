//! A journal that ends its process just before or just after a chosen write.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use guywire_plan::{
    Cancel, Cursor, Event, ExecutorId, Journal, JournalError, Lease, Plan, PlanHeader, PlanId,
    journal::{Batch, HeldLock},
};

pub struct Aborting {
    inner: Arc<dyn Journal>,
    writes: AtomicU64,
    before: u64,
    after: u64,
}

impl Aborting {
    pub fn new(inner: Arc<dyn Journal>) -> Self {
        let number =
            |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        Self {
            inner,
            writes: AtomicU64::new(0),
            before: number("ABORT_BEFORE"),
            after: number("ABORT_AFTER"),
        }
    }

    async fn write<T>(
        &self,
        write: impl Future<Output = Result<T, JournalError>>,
    ) -> Result<T, JournalError> {
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        if number == self.before {
            std::process::abort();
        }
        let result = write.await;
        if number == self.after {
            std::process::abort();
        }
        result
    }
}

#[async_trait]
impl Journal for Aborting {
    fn place(&self) -> &str {
        self.inner.place()
    }

    fn id(&self) -> &str {
        self.inner.id()
    }

    fn commits(&self) -> u64 {
        self.inner.commits()
    }

    async fn create(&self, plan: &Plan) -> Result<PlanId, JournalError> {
        self.write(self.inner.create(plan)).await
    }

    async fn header(&self, plan: PlanId) -> Result<PlanHeader, JournalError> {
        self.inner.header(plan).await
    }

    async fn list(&self, limit: u32) -> Result<Vec<PlanHeader>, JournalError> {
        self.inner.list(limit).await
    }

    async fn find(&self, once: &str) -> Result<Option<PlanId>, JournalError> {
        self.inner.find(once).await
    }

    async fn abandon(&self, plan: PlanId, reason: &str) -> Result<(), JournalError> {
        self.inner.abandon(plan, reason).await
    }

    async fn latest(&self, subject: &str) -> Result<Option<PlanHeader>, JournalError> {
        self.inner.latest(subject).await
    }

    async fn plan(&self, plan: PlanId) -> Result<Plan, JournalError> {
        self.inner.plan(plan).await
    }

    async fn events(
        &self,
        plan: Option<PlanId>,
        after: Cursor,
        limit: u32,
    ) -> Result<Vec<Event>, JournalError> {
        self.inner.events(plan, after, limit).await
    }

    async fn changed(&self, after: Cursor, patience: Duration) -> Result<(), JournalError> {
        self.inner.changed(after, patience).await
    }

    async fn acquire(&self, plan: PlanId, owner: &ExecutorId, term: Duration) -> Result<Lease, JournalError> {
        self.write(self.inner.acquire(plan, owner, term)).await
    }

    async fn claim(
        &self,
        owner: &ExecutorId,
        term: Duration,
        except: &[PlanId],
    ) -> Result<Option<Lease>, JournalError> {
        self.write(self.inner.claim(owner, term, except)).await
    }

    async fn renew(&self, lease: &Lease, term: Duration) -> Result<Instant, JournalError> {
        self.write(self.inner.renew(lease, term)).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), JournalError> {
        self.write(self.inner.release(lease)).await
    }

    async fn append(&self, lease: &Lease, batch: &Batch) -> Result<(), JournalError> {
        self.write(self.inner.append(lease, batch)).await
    }

    async fn supersede(&self, lease: &Lease, plan: &Plan, reason: &str) -> Result<PlanId, JournalError> {
        self.write(self.inner.supersede(lease, plan, reason)).await
    }

    async fn request_cancel(&self, plan: PlanId, cancel: Cancel) -> Result<(), JournalError> {
        self.write(self.inner.request_cancel(plan, cancel)).await
    }

    async fn request_resume(&self, plan: PlanId) -> Result<(), JournalError> {
        self.write(self.inner.request_resume(plan)).await
    }

    async fn locks(&self) -> Result<Vec<HeldLock>, JournalError> {
        self.inner.locks().await
    }
}
