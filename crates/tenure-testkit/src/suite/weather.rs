//! A subject whose clients all live in bad weather.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_backend::{Backend, Call, Clock};

use crate::{Ailment, Chaos, Slow, Subject, Weather};

/// Wraps each client of a subject in [`Chaos`].
///
/// # Examples
/// ```
/// use tenure_testkit::{Subject, Weather, suite::InWeather};
///
/// fn on_a_rough_day<S: Subject>(subject: S, seed: u64) -> impl Subject {
///     InWeather::new(subject, seed, Weather::ROUGH)
/// }
/// ```
#[derive(Debug)]
pub struct InWeather<S> {
    subject: S,
    weather: Weather,
    seeds: AtomicU64,
}

impl<S: Subject> InWeather<S> {
    /// The subject in that weather; each client has a seed of its own, counted from `seed`.
    pub fn new(subject: S, seed: u64, weather: Weather) -> Self {
        InWeather {
            subject,
            weather,
            seeds: AtomicU64::new(seed),
        }
    }

    /// Puts one client into the weather.
    fn chaos(&self) -> impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Backend> + use<S> {
        let (seed, weather) = (self.seeds.fetch_add(1, Ordering::Relaxed), self.weather);
        move |client| Arc::new(Chaos::new(client, seed, weather))
    }

    fn wrap(&self, client: Call<Arc<dyn Backend>>) -> Call<Arc<dyn Backend>> {
        let chaos = self.chaos();
        Call::new(async move { Ok(chaos(client.await?)) })
    }
}

impl<S: Subject> Subject for InWeather<S> {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        self.wrap(self.subject.client())
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.subject.pass(time)
    }

    fn client_on(&self, clock: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        self.subject.client_on(clock).map(|client| self.wrap(client))
    }

    fn restart(&self) -> Option<Call<()>> {
        self.subject.restart()
    }

    fn ail(&self, ailment: Option<Ailment>) -> Option<Call<()>> {
        self.subject.ail(ailment)
    }

    fn slow(&self) -> Option<Call<Slow>> {
        let (slow, chaos) = (self.subject.slow()?, self.chaos());
        Some(Call::new(async move {
            let Slow { backend, door } = slow.await?;
            let backend = chaos(backend);
            Ok(Slow { backend, door })
        }))
    }
}
