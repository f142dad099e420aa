//! The spans in `docs/telemetry.md`. A test binary of its own, because `tracing` caches for the whole process which spans
//! are wanted. `engine/telemetry.rs` tests the metrics.
#![cfg(feature = "memory")]

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Subscriber, span};

/// A subscriber that records spans with their fields, by their ID.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<BTreeMap<u64, Note>>>);

type Note = (String, BTreeMap<String, String>);

impl Visit for Notes {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let mut spans = self.0.lock();
        let (_, (_, fields)) = spans.iter_mut().next_back().expect("a span was made before");
        fields.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("tenure")
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let id = self.0.lock().len() as u64 + 1;
        let name = span.metadata().name().to_owned();
        self.0.lock().insert(id, (name, BTreeMap::new()));
        span.record(&mut self.clone());
        span::Id::from_u64(id)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn lock_and_work_spans_record_key_claim_and_token() {
    let notes = Notes::default();
    let expected = tracing::subscriber::with_default(notes.clone(), || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(async {
                let guard = tenure::connect("memory:")
                    .await
                    .unwrap()
                    .mutex("k")
                    .lock()
                    .await
                    .unwrap();
                guard.while_held(async {}).await.unwrap();
                (
                    guard.claim().id.to_string(),
                    guard.token().unwrap().get().to_string(),
                )
            })
    });
    let spans = notes.0.lock();
    for name in ["acquire", "hold"] {
        let (_, fields) = spans
            .values()
            .find(|(span, _)| span == name)
            .expect("there is such a span");
        assert_eq!(fields["key"], "k", "{name}");
        assert_eq!(
            (&fields["claim"], &fields["token"]),
            (&expected.0, &expected.1),
            "{name}"
        );
    }
}
